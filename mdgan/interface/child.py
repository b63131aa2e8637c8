"""Trains in a child process for a Python program, tells of events, and passes Ctrl-C on."""

import contextlib
import fcntl
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from msgspec import msgpack

from mdgan.data.handed import write_ahead
from mdgan.errors import BadInput, cannot_write
from mdgan.interface import messages
from mdgan.interface.messages import ChildEvent, LineLogged
from mdgan.observe.events import ProgressEvent
from mdgan.spelling import flag

_BAD_INPUT = 2
_LOOK_SECONDS = 0.1
_LAST_SECONDS = 1.0  # in which the last lines come after the last event


class RunFailed(RuntimeError):
    """A run ended before it was finished, though nothing was wrong with what the user gave."""

    def _render_traceback_(self) -> list[str]:
        """In a notebook one line: what is wrong is not in the code of its cell."""
        return [f"RunFailed: {self}"]


def run_child(
    request: messages.ChildRequest,
    handed: bytes = b"",
    *,
    show: Callable[[LineLogged | str], object],
    follow: Callable[[ProgressEvent], bool] = lambda _: False,
    stop: threading.Event | None = None,
) -> None:
    """Does what is asked for in a process of its own; Ctrl-C stops it as on the command line.

    Args:
        handed: models for `mdgan.data.handed`.
        show: called with lines of mdgan but what is raised, and those that the user's code prints.
        follow: called with news of the run; True stops it.
        stop: stops it, too.

    Raises:
        BadInput: it says so.
        RunFailed: it failed.
        KeyboardInterrupt: the user stopped it; it has saved the run.
        Exception: what one of the functions has raised; the run is saved.
    """
    refusal: BadInput | None = None
    last: list[LineLogged] = []  # of a refusal, which is shown if anything follows
    stopped: BaseException | None = None
    said, is_asked = "", False
    with _started(msgpack.encode(request), handed) as child:
        while not child.is_over:
            try:
                event = child.next_event()
                wants_stop = stop is not None and stop.is_set()
                while last and event is not None:
                    show(last.pop())
                if isinstance(event, messages.InputRefused):
                    refusal, said = event.as_error(), f"{event.as_error()}"
                    event, last = None, [LineLogged(said, is_warning=True)]
                if isinstance(event, LineLogged) and event.is_warning:
                    said = event.text.partition("\n")[0]
                if isinstance(event, LineLogged | str):
                    show(event)
                elif event is not None and stopped is None:
                    wants_stop |= follow(event)
                if wants_stop and not (is_asked or stopped):
                    is_asked = True
                    child.process.terminate()
            except BaseException as error:
                if stopped is None or isinstance(error, KeyboardInterrupt):
                    child.process.terminate()  # saves the run; asked again, it ends at once
                if stopped is not None:  # the wait may be for a screen that takes no more lines
                    show = _show_nothing
                stopped = stopped or error
        status = child.process.wait()
    if stopped is not None:
        raise stopped
    if status == _BAD_INPUT:
        raise refusal or BadInput(said)
    if status and not is_asked:
        raise RunFailed(f"ended with status {status}{said and f': {said}'}")


def _show_nothing(_line: LineLogged | str) -> None:
    pass


class _Child:
    """A child process, what it prints, line by line, and its events."""

    def __init__(self, process: "subprocess.Popen[str]", events: int) -> None:
        assert process.stdout is not None
        self.process = process
        self._news: queue.SimpleQueue[ChildEvent | str] = queue.SimpleQueue()
        streams = (process.stdout, os.fdopen(events, "rb"))
        self._lines, self._events = (
            threading.Thread(target=self._read, args=(stream, news), daemon=True)
            for stream, news in zip(streams, (iter, messages.receive_events), strict=True)
        )
        self._lines.start()
        self._events.start()
        self._last_seconds = _LAST_SECONDS

    def _read(self, stream: IO[Any], news_in: Callable[[IO[Any]], Iterable[Any]]) -> None:
        with stream, contextlib.suppress(ValueError, OSError):  # closed, as the process was killed
            for each in news_in(stream):
                self._news.put(each)

    @property
    def is_over(self) -> bool:
        """Whether it has ended with all processes of mdgan, and has told all.

        What the user's own code has started may go on, and hold the output open.
        """
        if self._events.is_alive():
            return False
        self._lines.join(self._last_seconds)
        self._last_seconds = 0.0
        return self._news.empty()

    def next_event(self) -> ChildEvent | str | None:
        """What has come next, or comes in a moment."""
        with contextlib.suppress(queue.Empty):
            return self._news.get(timeout=_LOOK_SECONDS)
        return None


@contextlib.contextmanager
def _started(request: bytes, handed: bytes) -> Iterator[_Child]:
    """A process with a session of its own; neither it nor its ranks outlive the block."""
    events, low = os.pipe()
    sends = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)  # closed streams leave their numbers free
    os.close(low)
    numbers = (sends, len(request), len(handed))
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "mdgan.cli.serve", *map(str, numbers)],
            stdin=subprocess.PIPE,  # closed when this process ends, and then so does the child
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=(sends,),
        )
    finally:
        os.close(sends)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_ahead(process, request + handed, closes=False)
        yield _Child(process, events)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()


@contextlib.contextmanager
def output_folder(given: str | None, name: str) -> Iterator[Path]:
    """The folder given, or a new `runs/NAME-TIME`, which is removed if it stays empty."""
    if given is not None:
        yield Path(given)
        return
    began = f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        path = Path(began if number == 1 else f"{began}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except OSError as error:
            if not path.exists():  # else it is another run's
                raise cannot_write(flag("out", path), error) from error
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
