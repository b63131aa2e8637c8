"""Starts and ends the processes of `mdgan chaos`, and reads their output."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import psutil

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.02


class Actor:
    """One `mdgan` command with all its processes, in a separate session."""

    def __init__(self, name: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self.name = name  # stands before every line of output
        # Lines of output, with seconds since 1970.
        self.lines: list[tuple[float, str]] = []
        self.began = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mdgan", *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.session = self._process.pid  # the number of the session that its processes share
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def status(self) -> int | None:
        """The exit status of the command; None while it runs."""
        return self._process.poll()

    def said(self, text: str) -> bool:
        """Whether the command printed a line that contains a text."""
        return any(text in line for _, line in list(self.lines))

    def ask_to_stop(self) -> None:
        """Asks the command to stop, as Ctrl-C would, and wakes up halted processes."""
        self._signal_all(signal.SIGCONT)
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, timeout_seconds: float) -> list[int]:
        """Waits until all processes have ended; after the timeout kills and returns the others."""
        deadline = time.monotonic() + timeout_seconds
        while (alive := self._alive()) and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(_LOOK_SECONDS)
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        return [process.pid for process in alive]

    def _alive(self) -> list[psutil.Process]:
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.session and is_alive(process.pid):
                    alive.append(process)
        return alive

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._alive():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                process.send_signal(number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for line in printed:
                self.lines.append((time.time(), line.rstrip()))
                _log.info("%9s | %s", self.name, line.rstrip(), extra={"shown": "result"})


def is_alive(process: int) -> bool:
    """Whether a process lives, perhaps halted; a zombie does not."""
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
