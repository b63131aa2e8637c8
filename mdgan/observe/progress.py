"""The progress line: a terminal shows it rewritten in place, a log gets one now and then."""

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

_log = logging.getLogger(__name__)

_REDRAWN_SECONDS = 0.1
LOG_SECONDS = 10.0  # time between two lines in a log
_FIRST_ITERATIONS, _FIRST_SECONDS = 10, 2.0  # until the time left is told
_WINDOW = 20
_BETWEEN = " | "


class Progress:
    """Logs how far training is, how fast it goes and how long it still takes."""

    def __init__(self, total: int, prefix: str = "") -> None:
        self.remark = ""
        self._total = total
        self._prefix = prefix
        handlers = logging.getLogger("mdgan").handlers
        redraws = any(getattr(handler, "redraws", False) for handler in handlers)
        self._every_seconds = _REDRAWN_SECONDS if redraws else LOG_SECONDS
        self._marks: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._last_shown = -float("inf")
        self.begin(0)

    def begin(self, iteration: int) -> None:
        """Restarts the clock after an iteration, 0 for a new run."""
        self._marks.clear()
        self._began = time.monotonic(), iteration

    def due(self) -> bool:
        """Whether it is time for the next line."""
        return time.monotonic() - self._last_shown >= self._every_seconds

    def show(self, iteration: int, losses: Sequence[float] = ()) -> None:
        """Logs a line: iteration, iterations a second, losses of G and D if any, time left."""
        self._last_shown = now = time.monotonic()
        self._marks.append((now, iteration))
        rate = self.rate()
        began, first = self._began
        # The first iteration begins when the machines are there, perhaps long after training.
        is_slow = len(self._marks) > 1 and now - began >= _FIRST_SECONDS
        is_known = iteration - first >= _FIRST_ITERATIONS or is_slow
        seconds_left = (self._total - iteration) / rate if rate > 0 else float("inf")
        both = [f"{name} {loss:.3f}" for name, loss in zip("GD", losses or (), strict=False)]
        if losses and isnan(losses[1]) and not isnan(losses[0]):  # there is no discriminator
            both = both[:1]
        loss_words = f"loss {' '.join(both)}" if both else ""
        pieces = [
            (0, f"{self._prefix}iteration {iteration}/{self._total}"),
            (2, f"{rate:.1f} it/s"),
            (4, loss_words),
            (3, self.remark),
            (1, f"{duration(seconds_left)} left" if is_known else ""),
        ]
        pieces = [piece for piece in pieces if piece[1]]
        line = _BETWEEN.join(text for _, text in pieces)
        _log.info("%s", line, extra={"shown": "live", "pieces": pieces})

    def rate(self) -> float:
        """Iterations per second over the last 20 lines, or up to the only one."""
        marks = [*([] if len(self._marks) > 1 else [self._began]), *self._marks]
        (then, first), (now, last) = marks[0], marks[-1]
        return (last - first) / (now - then) if now > then else 0.0


class Teller:
    """Logs what a host does, on a machine without the server.

    Args:
        samples: how many samples each worker of the host holds.
        shows_progress: whether to log progress lines; one host on a machine does.
    """

    def __init__(
        self, samples: Mapping[int, int], iterations: int, *, shows_progress: bool
    ) -> None:
        self._samples = samples
        self._iterations = iterations
        self._name = f"rank {', '.join(map(str, samples))}"
        self._progress = Progress(iterations, f"{self._name} | ") if shows_progress else None
        self._has_joined = False
        self._first = 0

    def joined(self, welcome: Mapping[str, Any]) -> None:
        """Logs that the server has admitted the host; nothing if it has joined before."""
        self._first = int(welcome["iteration"])
        if self._progress is not None:
            self._progress.begin(self._first)
        if self._has_joined:
            return
        self._has_joined = True
        holdings = ", ".join(
            f"{count:,} samples" if count else "no samples" for count in self._samples.values()
        )
        _log.info("joined as %s; holds %s; iteration %d", self._name, holdings, self._first)

    def reached(self, iteration: int) -> None:
        """Logs a progress line, if one is due, when the host begins an iteration."""
        done = iteration - 1
        if self._progress is not None and done > self._first and self._progress.due():
            self._progress.show(done)

    def done(self, iteration: int) -> None:
        """Logs that the server has ended training."""
        _log.info("%s is done after iteration %d of %d", self._name, iteration, self._iterations)


def fitting(pieces: Sequence[tuple[int, str]], columns: int) -> str:
    """Joins pieces to one line of at most `columns`; drops those with the highest number first."""
    for most in sorted({number for number, _ in pieces}, reverse=True):
        line = _BETWEEN.join(text for number, text in pieces if number <= most)
        if len(line) <= columns:
            return line
    return line[:columns]


def duration(seconds: float) -> str:
    """Writes a time for people: `42 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds == float("inf"):
        return "unknown time"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
