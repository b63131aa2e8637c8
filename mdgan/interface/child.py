"""Starts the child process that trains for a Python program, passes its events on, and stops it."""

import contextlib
import fcntl
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
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
_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 1.0  # how long to wait for the last lines after the last event


class RunFailed(RuntimeError):
    """A run failed before its last iteration, though the user's input was right."""

    def _render_traceback_(self) -> list[str]:
        """Shows one line in a notebook, since the fault is not in the code of the cell."""
        return [f"RunFailed: {self}"]


def run_child(
    request: messages.ChildRequest,
    pickled_models: bytes = b"",
    *,
    show: Callable[[LineLogged | str], object],
    follow: Callable[[ProgressEvent], bool] = lambda _: False,
    stop: threading.Event | None = None,
) -> None:
    """Trains or compares in a child process, which Ctrl-C stops as on the command line.

    Args:
        pickled_models: models of the program, as `mdgan.data.handed` reads them.
        show: called with each line that mdgan logs or the user's code prints, except a refusal.
        follow: called with each event of the run; if it returns True, the child stops.
        stop: if it is set, the child stops.

    Raises:
        BadInput: the child refused the request.
        RunFailed: the child failed.
        KeyboardInterrupt: the user stopped the child, which has saved the run.
        Exception: `show` or `follow` raised it; the child has saved the run.
    """
    refusal: BadInput | None = None
    unshown_refusal: list[LineLogged] = []  # shown if any event follows
    stop_error: BaseException | None = None
    reason, has_asked = "", False
    with _start_child(msgpack.encode(request), pickled_models) as child:
        while not child.is_over:
            try:
                event = child.next_event()
                wants_stop = stop is not None and stop.is_set()
                while unshown_refusal and event is not None:
                    show(unshown_refusal.pop())
                if isinstance(event, messages.InputRefused):
                    refusal, reason = event.as_error(), f"{event.as_error()}"
                    event, unshown_refusal = None, [LineLogged(reason, is_warning=True)]
                if isinstance(event, LineLogged) and event.is_warning:
                    reason = event.text.partition("\n")[0]
                if isinstance(event, LineLogged | str):
                    show(event)
                elif event is not None and stop_error is None:
                    wants_stop |= follow(event)
                if wants_stop and not (has_asked or stop_error):
                    has_asked = True
                    child.process.terminate()
            except BaseException as error:
                if stop_error is None or isinstance(error, KeyboardInterrupt):
                    child.process.terminate()  # the first signal saves the run, the second ends it
                if stop_error is not None:  # the user may be waiting for a screen that is blocked
                    show = deque[LineLogged | str](maxlen=0).append
                stop_error = stop_error or error
        status = child.process.wait()
    if stop_error is not None:
        raise stop_error
    if status == _BAD_INPUT:
        raise refusal or BadInput(reason)
    if status and not has_asked:
        raise RunFailed(f"ended with status {status}{reason and f': {reason}'}")


class _Child:
    """A child process with two threads: one reads the lines that it prints, one its events."""

    def __init__(self, process: "subprocess.Popen[str]", events: int) -> None:
        assert process.stdout is not None
        self.process = process
        self._received: queue.SimpleQueue[ChildEvent | str] = queue.SimpleQueue()
        streams = (process.stdout, os.fdopen(events, "rb"))
        self._line_reader, self._event_reader = (
            threading.Thread(target=self._receive, args=(stream, split), daemon=True)
            for stream, split in zip(streams, (iter, messages.receive_events), strict=True)
        )
        self._line_reader.start()
        self._event_reader.start()
        self._drain_seconds = _DRAIN_SECONDS

    def _receive(self, stream: IO[Any], split: Callable[[IO[Any]], Iterable[Any]]) -> None:
        with stream, contextlib.suppress(ValueError, OSError):  # the child was killed
            for item in split(stream):
                self._received.put(item)

    @property
    def is_over(self) -> bool:
        """Whether all processes of the run have ended, and `next_event` has returned all they sent.

        Programs that the user's code has started may run on, and keep the output open.
        """
        if self._event_reader.is_alive():
            return False
        self._line_reader.join(self._drain_seconds)
        self._drain_seconds = 0.0
        return self._received.empty()

    def next_event(self) -> ChildEvent | str | None:
        """Returns the next event or printed line; None if none arrives in a moment."""
        with contextlib.suppress(queue.Empty):
            return self._received.get(timeout=_POLL_SECONDS)
        return None


@contextlib.contextmanager
def _start_child(request: bytes, pickled_models: bytes) -> Iterator[_Child]:
    """Starts a child in its own session; the end of the block kills the child and its ranks."""
    events, low = os.pipe()
    sender = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)  # 0 to 2 may be free, but are for streams
    os.close(low)
    arguments = (sender, len(request), len(pickled_models))
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "mdgan.cli.serve", *map(str, arguments)],
            stdin=subprocess.PIPE,  # the child ends when it closes, at the latest with this process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=(sender,),
        )
    finally:
        os.close(sender)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        write_ahead(process, request + pickled_models, closes=False)
        yield _Child(process, events)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()


@contextlib.contextmanager
def output_folder(out: str | None, name: str) -> Iterator[Path]:
    """Yields the user's folder, or a new `runs/NAME-TIME` that is removed if it stays empty."""
    if out is not None:
        yield Path(out)
        return
    usual = f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        path = Path(usual if number == 1 else f"{usual}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except OSError as error:
            if not path.exists():  # if it exists, it is another run's
                raise cannot_write(flag("out", path), error) from error
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
