"""Minds one `mdgan` process for a driver: in an actor of Ray, or in a job of NVFlare.

It imports nothing heavy, since every actor loads it. When it ends, its mdgan process ends as well.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO

from mdgan.storage.private_folders import check_temporary

ENDS_WITH_INPUT = "MDGAN_ENDS_WITH_INPUT"
"""A program that starts mdgan sets this variable to have mdgan end when its standard input ends."""

_STOP_SECONDS = 8.0  # mdgan takes 4 s at most to save a run and end its processes
_WAIT_SECONDS = 1.0
_UNPOLLED_SECONDS = 30.0
_MOST_LINES = 1000


def end_with_input() -> None:
    """Makes this process end with its standard input, if the environment asks for that."""
    if os.environ.get(ENDS_WITH_INPUT):
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


News = tuple[list[tuple[str, str]], int | None]
"""Lines that a process has printed, each with its stream, `out` or `err`; and its exit status, None
until it has ended and all its lines were delivered."""


class Minder:
    """Starts one process of mdgan, collects what it prints, and ends it.

    The driver polls every second or so. If it stops polling, it has ended, or Ray takes this node
    for dead. Then the minder ends its process, since another one may be about to take its ranks.
    """

    def __init__(self) -> None:
        self._polled = time.monotonic()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []

    def where(self, wanted: int) -> tuple[str, int]:
        """Where a server can listen: the node's address, and the wanted port or else a free one."""
        address = str(import_module("ray.util").get_node_ip_address())
        for port in (wanted, 0):
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    probe.bind((address, port))
                    return address, int(probe.getsockname()[1])
        return address, wanted

    def start(self, arguments: Sequence[str], folder: str, settings: str) -> None:
        """Starts a training; a process that runs already is stopped first."""
        self.stop()
        descriptor, name = tempfile.mkstemp(".json", "mdgan-", check_temporary())
        with os.fdopen(descriptor, "w") as file:
            file.write(settings)
        self.run(["train", "--config", name, *arguments], folder, Path(name))

    def run(self, command: Sequence[str], folder: str, settings: Path | None = None) -> None:
        """Starts a command of mdgan.

        Args:
            folder: the working directory, if it exists on this node.
            settings: a file that is removed once the process has ended.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mdgan", *command],
            cwd=folder if Path(folder).is_dir() else None,
            # Another launcher may have set this variable for the cluster's daemons.
            env={n: v for n, v in os.environ.items() if n != "OMP_NUM_THREADS"}
            | {ENDS_WITH_INPUT: "1"},
            stdin=subprocess.PIPE,  # it closes when this process ends, and then mdgan ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, kind, self._lines), daemon=True)
            for stream, kind in ((self._process.stdout, "out"), (self._process.stderr, "err"))
        ]
        for reader in self._readers:
            reader.start()
        self._polled = time.monotonic()
        ending = (self._process, settings)
        threading.Thread(target=self._end_unasked, args=ending, daemon=True).start()

    def poll(self) -> News | None:
        """Waits up to a second for news; None if no process was started, or it has ended."""
        self._polled = time.monotonic()
        if self._process is None:
            return None
        lines: list[tuple[str, str]] = []
        with contextlib.suppress(queue.Empty):
            lines.append(self._lines.get(timeout=_WAIT_SECONDS))
            while len(lines) < _MOST_LINES:
                lines.append(self._lines.get_nowait())
        if not self._lines.empty() or any(reader.is_alive() for reader in self._readers):
            return lines, None
        status = self._process.wait()
        self._process = None
        return lines, status

    def leave(self, seconds: float) -> None:
        """Waits until the process ends by itself, for at most this many seconds."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def stop(self, *, wait: bool = True) -> None:
        """Asks the process to end, and kills it with its children if that takes too long."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        if wait:
            _wait_or_kill(process)

    def _end_unasked(self, process: "subprocess.Popen[str]", settings: Path | None) -> None:
        """Waits until a process ends, and ends it if the driver has stopped polling."""
        while process.poll() is None:
            time.sleep(_WAIT_SECONDS)
            if time.monotonic() - self._polled > _UNPOLLED_SECONDS:
                process.send_signal(signal.SIGTERM)
                _wait_or_kill(process)
                if self._process is process:
                    self._process = None
        if settings is not None:
            settings.unlink(missing_ok=True)
        if process.stdin is not None:
            process.stdin.close()

    @staticmethod
    def _read(stream: IO[str], kind: str, lines: "queue.SimpleQueue[tuple[str, str]]") -> None:
        with stream:
            for line in stream:
                lines.put((kind, line.rstrip("\n")))


def _wait_or_kill(process: "subprocess.Popen[str]") -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
