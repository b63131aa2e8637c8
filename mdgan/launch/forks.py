"""Work in forks of this process, which tell it something as JSON and do not outlive it."""

import contextlib
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from mdgan.errors import BadInput, Interrupted, reason_of

_LOOK_SECONDS = 0.1


class ForkFailed(RuntimeError):
    """One of the forks did not come to an end; the text says why in one line."""


class ForkParent:
    """The process that has made this fork, to the fork."""

    def __init__(self, end: Connection) -> None:
        self._end = end

    def tell(self, said: Any, kind: str = "said") -> None:
        """Tells what JSON can say."""
        self._end.send_bytes(json.dumps([kind, said]).encode())

    def end_with_it(self) -> None:
        """Ends this fork when its parent is gone; for one that forks no more."""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            self._end.recv_bytes()  # nothing is ever sent
        os._exit(1)


def in_forks(
    works: Sequence[Callable[[ForkParent], None]],
    hear: Callable[[int, Any], None],
    interrupted: threading.Event | None = None,
) -> None:
    """Does each work in its own fork, all at the same time; hears what each number tells.

    Raises:
        ForkFailed: one failed; the others are ended.
        BadInput: one says that the user can mend it.
        Interrupted: asked to stop.
    """
    forking = multiprocessing.get_context("fork")
    processes, ends = [], dict[Connection, int]()
    try:
        for number, work in enumerate(works):
            ours, theirs = forking.Pipe()
            arguments = (work, theirs, [ours, *ends])
            processes.append(forking.Process(target=_be_fork, args=arguments, daemon=True))
            processes[-1].start()
            theirs.close()
            ends[ours] = number
        while ends:
            if interrupted is not None and interrupted.is_set():
                raise Interrupted
            for end in wait(list(ends), _LOOK_SECONDS):
                assert isinstance(end, Connection)
                try:
                    kind, said = json.loads(end.recv_bytes())
                except EOFError as error:
                    why = "its process was killed, as if memory were used up"
                    raise ForkFailed(why) from error
                if kind == "said":
                    hear(ends[end], said)
                elif kind == "end":
                    del ends[end]
                else:
                    raise BadInput(said) if kind == "refused" else ForkFailed(said)
    finally:
        for process in processes:
            process.kill()  # not SIGTERM: a fork may have taken over a handler of ours
            process.join()


def _be_fork(
    work: Callable[[ForkParent], None], end: Connection, parents: Sequence[Connection]
) -> None:
    for other in parents:
        other.close()
    parent = ForkParent(end)
    try:
        work(parent)
        parent.tell(None, "end")
    except BadInput as error:
        parent.tell(error.marked, "refused")
    except Exception as error:  # the user's models may fail in any way
        parent.tell(f"{type(error).__name__}: {reason_of(error)}", "failed")
