"""Runs jobs in forks of this process. They send it JSON values, and do not outlive it."""

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
    """A fork failed or was killed; the message says why in one line."""


class ForkParent:
    """A fork's end of the link to its parent process."""

    def __init__(self, end: Connection) -> None:
        self._end = end

    def tell(self, value: Any, kind: str = "value") -> None:
        """Sends the parent a value that JSON can hold."""
        self._end.send_bytes(json.dumps([kind, value]).encode())

    def end_with_it(self) -> None:
        """Makes this fork end when its parent ends; it must not fork afterwards."""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            self._end.recv_bytes()  # the parent never sends; this returns when it ends
        os._exit(1)


def in_forks(
    works: Sequence[Callable[[ForkParent], None]],
    hear: Callable[[int, Any], None],
    interrupted: threading.Event | None = None,
) -> None:
    """Runs each job in its own fork; calls `hear` with a job's number and each value it sends.

    Raises:
        ForkFailed: a job failed; all others were ended.
        BadInput: a job raised it.
        Interrupted: `interrupted` was set.
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
                    kind, value = json.loads(end.recv_bytes())
                except EOFError as error:
                    why = "its process was killed, as if memory were used up"
                    raise ForkFailed(why) from error
                if kind == "value":
                    hear(ends[end], value)
                elif kind == "end":
                    del ends[end]
                else:
                    raise BadInput(value) if kind == "refused" else ForkFailed(value)
    finally:
        for process in processes:
            process.kill()  # not SIGTERM, for which a fork may have inherited our handler
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
