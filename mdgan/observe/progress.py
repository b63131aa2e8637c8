"""The progress line: rewritten many times a second on a terminal, a line now and then in a log."""

import logging
import time
from collections import deque

_log = logging.getLogger(__name__)

_REDRAWN_SECONDS = 0.1
_LOG_SECONDS = 10.0
_WINDOW = 20


class Progress:
    """Logs how far training is.

    Args:
        total: the number of iterations.

    Attributes:
        remark: shown in every line, if there is one.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        # A handler that overwrites such lines, as that of the command line, says `redraws`.
        handlers = logging.getLogger("mdgan").handlers
        redrawn = any(getattr(handler, "redraws", False) for handler in handlers)
        self._every_seconds = _REDRAWN_SECONDS if redrawn else _LOG_SECONDS
        self._marks: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self.begin(0)
        self._last_shown = -float("inf")
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
        _log.info(
            f"iteration {iteration}/{self._total} | {rate:.1f} it/s | loss G "
            f"{generator_loss:.3f} D {discriminator_loss:.3f} | "
            f"{self.remark}{' | ' if self.remark else ''}{duration(left)} left",
            extra={"shown": "live"},
        )

    def rate(self) -> float:
        """Iterations per second over the last lines shown."""
        (then, first), (now, last) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then) if now > then else 0.0


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
