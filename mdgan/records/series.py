"""A series of numbers that takes little memory, and that can be drawn in one line of text."""

from collections.abc import Sequence
from math import isfinite, log
from statistics import fmean

_MOST_POINTS = 4096
_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "×"
_NOTHING = " "

_Point = tuple[int, float | None]


class Series:
    """A quantity over iterations. In a long run, neighbours are merged into their mean.

    Attributes:
        last: the newest value, None if it was not finite.
    """

    def __init__(self) -> None:
        self.last: float | None = None
        self._merged: list[_Point] = []
        self._pending: list[_Point] = []
        self._per_point = 1

    def add(self, iteration: int, value: float | None) -> None:
        """Adds a value."""
        self.last = value if value is not None and isfinite(value) else None
        self._pending.append((iteration, self.last))
        if len(self._pending) == self._per_point:
            self._merged.append(_merge(self._pending))
            self._pending.clear()
        if len(self._merged) == _MOST_POINTS:
            self._merged = [_merge(self._merged[n : n + 2]) for n in range(0, _MOST_POINTS, 2)]
            self._per_point *= 2

    @property
    def points(self) -> list[tuple[int, float | None]]:
        """Iterations and values, None where there was no finite one."""
        return self._merged + ([_merge(self._pending)] if self._pending else [])

    def finite(self) -> list[float]:
        """The finite values."""
        return [value for _, value in self.points if value is not None]

    def sparkline(self, width: int, until: int, *, logarithmic: bool = False) -> str:
        """Draws the mean over equal stretches of iterations, from the lowest to the highest.

        A stretch without a point looks like the one before it; × is for what is not finite.

        Args:
            width: the number of characters.
            until: the iteration at the right end; the left end is the beginning of training.
            logarithmic: draw the logarithm, if all values are above 0.
        """
        stretches: list[list[float | None]] = [[] for _ in range(width)]
        for iteration, value in self.points:
            place = (iteration - 1) * width // max(1, until)
            stretches[min(max(place, 0), width - 1)].append(value)
        means = [_mean(stretch) for stretch in stretches]
        finite = [mean for mean in means if mean is not None]
        if logarithmic and all(mean > 0 for mean in finite):
            means = [None if mean is None else log(mean) for mean in means]
            finite = [log(mean) for mean in finite]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        line = ""
        for stretch, mean in zip(stretches, means, strict=True):
            line += _block(mean, low, high) if stretch else line[-1:] or _NOTHING
        return line


def _block(value: float | None, low: float, high: float) -> str:
    if value is None:
        return _NOT_FINITE
    if high <= low:
        return _BLOCKS[len(_BLOCKS) // 2 - 1]
    return _BLOCKS[round((value - low) / (high - low) * (len(_BLOCKS) - 1))]


def _merge(points: Sequence[_Point]) -> _Point:
    return points[-1][0], _mean([value for _, value in points])


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return fmean(finite) if finite else None
