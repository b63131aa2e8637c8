"""A series of numbers that takes little memory, and that can be drawn in one line of text."""

from array import array
from math import isfinite, nan

import numpy as np

_BLOCKS = "▁▂▃▄▅▆▇█"
_LEVEL = _BLOCKS[len(_BLOCKS) // 2 - 1]
_NOT_FINITE = "×"
_NOTHING = " "


class Series:
    """A quantity over iterations.

    Attributes:
        last: the newest value, None if it was not finite.
    """

    def __init__(self) -> None:
        self.last: float | None = None
        self._iterations = array("q")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, iteration: int, value: float | None) -> None:
        """Adds a value."""
        self.last = value if value is not None and isfinite(value) else None
        self._iterations.append(iteration)
        self._values.append(nan if self.last is None else self.last)

    def finite(self) -> list[float]:
        """The finite values."""
        return [value for value in self._values if isfinite(value)]

    def sparkline(self, width: int, until: int, *, logarithmic: bool = False) -> str:
        """Draws the mean over equal stretches of iterations, from the lowest to the highest.

        A stretch without a point looks like the one before it; × is for what is not finite.

        Args:
            width: the number of characters.
            until: the iteration at the right end; the left end is the beginning of training.
            logarithmic: draw the logarithm, if all values are above 0.
        """
        values = np.array(self._values)
        places = (np.array(self._iterations) - 1) * width // max(1, until)
        places = np.clip(places, 0, width - 1).astype(int)
        finite = np.isfinite(values)
        sums = np.bincount(places[finite], values[finite], minlength=width)
        counts = np.bincount(places[finite], minlength=width)
        means = np.divide(sums, counts, out=np.full(width, nan), where=counts > 0)
        if logarithmic and (means[counts > 0] > 0).all():
            means = np.log(means)
        low, high = means[counts > 0].min(initial=np.inf), means[counts > 0].max(initial=-np.inf)
        line = ""
        for mean, points in zip(means, np.bincount(places, minlength=width), strict=True):
            if not points:
                line += line[-1:] or _NOTHING
            elif not isfinite(mean):
                line += _NOT_FINITE
            elif high <= low:
                line += _LEVEL
            else:
                line += _BLOCKS[round((mean - low) / (high - low) * (len(_BLOCKS) - 1))]
        return line
