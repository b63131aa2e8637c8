"""What leaves a site of a table under noise: histograms of several widths, and what they tell.

Noise on 1,024 cells drowns how a column spreads, and cutting negative counts to 0 makes rows that
no site has. So numbers are counted in 16, 128 and all of their cells at once. The sums are put
together by their variances (Hay et al. 2010, "Boosting the Accuracy of Differentially Private
Histograms Through Consistency", section 4), and then each part, from the widest on, shares its rows
among the narrower ones within it.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from mdgan.samples.table.schema import AnyColumn, ScaledColumn
from mdgan.samples.table.spread import Cells, Codes, Floats, num_options

_WIDE = (16, 128)
_SHOWN = 3.0  # standard deviations of the noise; smaller parts show no shape


class CountTree:
    """How flat counts become those of several widths, and back.

    Attributes:
        num_counts: of all widths, of options and of classes.
        num_histograms: in how many of these a single row is 1, at most.
    """

    def __init__(self, columns: Iterable[AnyColumn], num_classes: int) -> None:
        # Of each flat histogram: of each width, the first cell of each part.
        self._levels: list[list[Codes]] = []
        for column in columns:
            cells = Cells(column).number if isinstance(column, ScaledColumn) else 0
            wide = [-(-np.arange(n) * cells // n) for n in _WIDE if n < cells]
            self._levels += [[*wide, np.arange(cells)]] if cells else []
            self._levels += [[np.arange(n)] for n in [num_options(column)] if n]
        self._levels += [[np.arange(n)] for n in [num_classes] if n]
        self.num_counts = sum(len(starts) for levels in self._levels for starts in levels)
        self.num_histograms = sum(map(len, self._levels))

    def of(self, counts: Tensor) -> Tensor:
        """The counts of all widths, [num_counts], of flat ones."""
        ends = np.cumsum([len(levels[-1]) for levels in self._levels])
        parts = zip(self._levels, np.split(counts.numpy(), ends[:-1]), strict=True)
        wide = [np.add.reduceat(own, starts) for levels, own in parts for starts in levels]
        return torch.from_numpy(np.concatenate(wide))

    def flat(self, sums: Tensor, variance: float) -> Tensor:
        """Flat counts, float64, at least 0, of sums, float64 [num_counts], with noise in each."""
        ends = np.cumsum([sum(map(len, levels)) for levels in self._levels])
        parts = zip(self._levels, np.split(sums.numpy(), ends[:-1]), strict=True)
        cells = [_shared_out(levels, own, variance**0.5) for levels, own in parts]
        return torch.from_numpy(np.concatenate(cells))


def _shared_out(levels: list[Codes], sums: Floats, deviation: float) -> Floats:
    """The cells of one histogram, from its sums of all widths."""
    *wide, best = np.split(sums, np.cumsum([len(starts) for starts in levels])[:-1])
    known = [(best, np.ones(len(best)))]  # estimates, and their variances in units of the noise's
    within = [np.searchsorted(below, above) for above, below in pairwise(levels)]
    for own, firsts in zip(reversed(wide), reversed(within), strict=True):
        below, spread = (np.add.reduceat(each, firsts) for each in known[0])
        known.insert(0, ((spread * own + below) / (spread + 1), spread / (spread + 1)))
    cells = np.array([max(known[0][0].sum(), 0.0)])
    ends = [np.zeros(1, dtype=np.int64), *within]
    for starts, (guess, spread), firsts in zip(levels, known, ends, strict=True):
        bounds, widths = [*firsts, len(guess)], np.diff([*starts, len(best)])
        parts = zip(cells, map(slice, bounds, bounds[1:]), strict=True)
        least = _SHOWN * deviation * np.sqrt(spread)
        cells = np.concatenate([_shares(m, guess[p], least[p], widths[p]) for m, p in parts])
    return cells


def _shares(mass: float, guess: Floats, least: Floats, widths: Codes) -> Floats:
    """Shares a mass as near as possible to a guess, or evenly where that shows no shape."""
    if mass == 0 or bool((guess < least).all()):
        return np.asarray(mass * widths / widths.sum())
    largest = -np.sort(-guess)
    beyond = (np.cumsum(largest) - mass) / np.arange(1, len(guess) + 1)
    last = max(1, int((largest > beyond).sum())) - 1
    return np.asarray(np.maximum(guess - beyond[last], 0.0))
