"""A series of numbers, drawn in one line of text."""

from collections.abc import Sequence
from math import isfinite, nan

import numpy as np

_BLOCKS = "▁▂▃▄▅▆▇█"
_LEVEL = _BLOCKS[len(_BLOCKS) // 2 - 1]
_NOT_FINITE = "×"
_NOTHING = " "


def sparkline(
    points: Sequence[tuple[int, float | None]], width: int, until: int, *, logarithmic: bool = False
) -> str:
    """Draws the mean over equal stretches of iterations, from the first to `until`.

    A stretch without a point looks like the one before it; × is for what is not finite.
    """
    values = np.array([nan if value is None else value for _, value in points], float)
    places = (np.array([i for i, _ in points], np.int64) - 1) * width // max(1, until)
    places = np.clip(places, 0, width - 1)
    finite = np.isfinite(values)
    sums = np.bincount(places[finite], values[finite], minlength=width)
    counts = np.bincount(places[finite], minlength=width)
    means = np.divide(sums, counts, out=np.full(width, nan), where=counts > 0)
    if logarithmic and (means[counts > 0] > 0).all():
        means = np.log(means)
    low, high = means[counts > 0].min(initial=np.inf), means[counts > 0].max(initial=-np.inf)
    line = ""
    for mean, number in zip(means, np.bincount(places, minlength=width), strict=True):
        if not number:
            line += line[-1:] or _NOTHING
        elif not isfinite(mean):
            line += _NOT_FINITE
        elif high <= low:
            line += _LEVEL
        else:
            line += _BLOCKS[round((mean - low) / (high - low) * (len(_BLOCKS) - 1))]
    return line
