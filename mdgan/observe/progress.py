"""The live progress line: rewritten in place on a terminal, a line now and then in a log."""

import sys
import time
from collections import deque
from typing import TextIO

_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 10.0
_WINDOW = 20


class Progress:
    """Tells how far training is.

    Args:
        total: the number of iterations.
        stream: where to write; the standard error by default.

    Attributes:
        remark: shown in every line, if there is one.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._every_seconds = _TERMINAL_SECONDS if self._live else _LOG_SECONDS
        self._marks: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self.begin(0)
        self._last_shown = -float("inf")
        self._width = 0
        self.remark = ""

    def begin(self, iteration: int) -> None:
        """Training begins after an iteration, 0 for a new run."""
        self._marks.clear()
        self._marks.append((time.monotonic(), iteration))

    def due(self) -> bool:
        """Whether it is time to show a line again."""
        return time.monotonic() - self._last_shown >= self._every_seconds

    def show(self, iteration: int, generator_loss: float, discriminator_loss: float) -> None:
        """Shows iteration, iterations/s, losses and the time left."""
        self._last_shown = now = time.monotonic()
        self._marks.append((now, iteration))
        rate = self.rate()
        left = (self._total - iteration) / rate if rate > 0 else float("inf")
        self._write(
            f"iteration {iteration}/{self._total} | {rate:.1f} it/s | loss G "
            f"{generator_loss:.3f} D {discriminator_loss:.3f} | "
            f"{self.remark}{' | ' if self.remark else ''}{duration(left)} left"
        )

    def rate(self) -> float:
        """Iterations per second over the last lines shown."""
        (then, first), (now, last) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then) if now > then else 0.0

    def note(self, text: str) -> None:
        """Writes a line of its own."""
        self.clear()
        print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Removes the live line, if there is one."""
        if self._width:
            print("\r" + " " * self._width, end="\r", file=self._stream, flush=True)
            self._width = 0

    def _write(self, line: str) -> None:
        if self._live:
            print("\r" + line.ljust(self._width), end="", file=self._stream, flush=True)
            self._width = len(line)
        else:
            print(line, file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds == float("inf"):
        return "unknown time"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
