"""Starts processes of this one: forks, or where none are safe, processes that start anew."""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from mdgan.errors import BadInput, Interrupted, reason_of
from mdgan.system import may_fork

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS = 0.1


def start(work: Callable[..., object], *arguments: Any, closes: Sequence[Any] = ()) -> BaseProcess:
    """Starts a process that does some work, on copies of the arguments if it is no fork.

    Args:
        closes: what this process alone should have, so a fork closes it first.
    """
    logger, act = logging.getLogger("mdgan"), partial(work, *arguments)
    shown = [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]
    if not may_fork():
        process = get_context("spawn").Process(
            target=_act, args=(act, (), None, shown, logger.level)
        )
        process.start()
        return process
    # Python loses a Ctrl-C whose handler runs in a hook of logging right after the fork.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        fork = get_context("fork").Process(target=_act, args=(act, closes, before))
        fork.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return fork


def _act(
    act: Callable[[], object],
    closes: Sequence[Any],
    blocked: Iterable[int] | None,
    shown: list[logging.Handler] | None = None,
    level: int = logging.NOTSET,
) -> NoReturn:
    for each in closes:
        each.close()
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if shown is not None:
        logger = logging.getLogger("mdgan")
        logger.handlers = shown
        logger.setLevel(level)
    end_process(act)


def end_process(act: Callable[[], object]) -> NoReturn:
    """Does one thing more, and ends this process without Python's clean-up.

    The clean-up would destroy torch object by object, which takes over a second. After a defect it
    would even print pages of objects that triton's binding (nanobind) calls leaked, since the
    traceback still refers to them.
    """
    status = 1
    try:
        done = act()
        status = done if isinstance(done, int) else 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the reader of a pipe may be gone
            stream.flush()
    os._exit(status)


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
        if may_fork():  # else this is a thread of its parent
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

    Where no forks are safe, each work gets a thread: no fork follows that it could harm.

    Raises:
        ForkFailed: one failed; the others are ended.
        BadInput: one says that the user can mend it.
        Interrupted: asked to stop.
    """
    processes, ends = list[BaseProcess](), dict[Connection, int]()
    try:
        for number, work in enumerate(works):
            ours, theirs = Pipe()
            if may_fork():
                processes.append(start(_tell_all, work, theirs, closes=[ours, *ends]))
                theirs.close()
            else:
                threading.Thread(target=_tell_all, args=(work, theirs), daemon=True).start()
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


def _tell_all(work: Callable[[ForkParent], None], end: Connection) -> None:
    parent = ForkParent(end)
    with contextlib.suppress(BrokenPipeError):  # the parent waits no more
        try:
            work(parent)
            parent.tell(None, "end")
        except BadInput as error:
            parent.tell(error.marked, "refused")
        except Exception as error:  # the user's models may fail in any way
            parent.tell(f"{type(error).__name__}: {reason_of(error)}", "failed")
