"""Histograms of several widths, which sites of a table send under noise, and back to cells.

Noise on 1,024 cells would drown a column's distribution, and cutting negative counts to 0 would add
rows that no site has. So each site counts numbers in 16 parts, in 128 parts and in all cells. The
server averages the three sums, weighted by their variances (Hay et al. 2010, "Boosting the Accuracy
of Differentially Private Histograms Through Consistency", section 4). Then it splits the rows of
each part, from the widest on, among the narrower parts inside it.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from mdgan.samples.table.schema import AnyColumn, ScaledColumn
from mdgan.samples.table.spread import Cells, Codes, Floats, num_options

_WIDE = (16, 128)
_SHOWN = 3.0  # in standard deviations of the noise; counts below it say nothing about a shape


class CountTree:
    """Converts flat counts (cells, options, classes) to sums of several widths, and back.

    Attributes:
        num_counts: the number of sums, over parts of all widths, options and classes.
        num_histograms: a single row adds 1 to at most this many of the sums.
    """

    def __init__(self, columns: Iterable[AnyColumn], num_classes: int) -> None:
        # For each flat histogram and each width, the first cell of each part.
        self._levels: list[list[Codes]] = []
        for column in columns:
            cells = Cells(column).num_cells if isinstance(column, ScaledColumn) else 0
            wide = [-(-np.arange(n) * cells // n) for n in _WIDE if n < cells]
            self._levels += [[*wide, np.arange(cells)]] if cells else []
            self._levels += [[np.arange(n)] for n in [num_options(column)] if n]
        self._levels += [[np.arange(n)] for n in [num_classes] if n]
        self.num_counts = sum(len(starts) for levels in self._levels for starts in levels)
        self.num_histograms = sum(map(len, self._levels))

    def to_sums(self, counts: Tensor) -> Tensor:
        """Sums flat counts over the parts of each width, [num_counts]."""
        ends = np.cumsum([len(levels[-1]) for levels in self._levels])
        parts = zip(self._levels, np.split(counts.numpy(), ends[:-1]), strict=True)
        wide = [np.add.reduceat(flat, starts) for levels, flat in parts for starts in levels]
        return torch.from_numpy(np.concatenate(wide))

    def to_counts(self, sums: Tensor, variance: float) -> Tensor:
        """Estimates flat counts, float64, at least 0, from sums [num_counts] and their variance."""
        ends = np.cumsum([sum(map(len, levels)) for levels in self._levels])
        parts = zip(self._levels, np.split(sums.numpy(), ends[:-1]), strict=True)
        cells = [_shared_out(levels, sums_of_one, variance**0.5) for levels, sums_of_one in parts]
        return torch.from_numpy(np.concatenate(cells))


def _shared_out(levels: list[Codes], sums: Floats, deviation: float) -> Floats:
    """Estimates the cells of one histogram from its sums of all widths."""
    *wide, best = np.split(sums, np.cumsum([len(starts) for starts in levels])[:-1])
    known = [(best, np.ones(len(best)))]  # estimates, and their variances in units of the noise's
    within = [np.searchsorted(below, above) for above, below in pairwise(levels)]
    for of_parts, firsts in zip(reversed(wide), reversed(within), strict=True):
        below, spread = (np.add.reduceat(each, firsts) for each in known[0])
        known.insert(0, ((spread * of_parts + below) / (spread + 1), spread / (spread + 1)))
    cells = np.array([max(known[0][0].sum(), 0.0)])
    ends = [np.zeros(1, dtype=np.int64), *within]
    for starts, (guess, spread), firsts in zip(levels, known, ends, strict=True):
        bounds, widths = [*firsts, len(guess)], np.diff([*starts, len(best)])
        parts = zip(cells, map(slice, bounds, bounds[1:]), strict=True)
        least = _SHOWN * deviation * np.sqrt(spread)
        cells = np.concatenate([_shares(m, guess[p], least[p], widths[p]) for m, p in parts])
    return cells


def _shares(mass: float, guess: Floats, least: Floats, widths: Codes) -> Floats:
    """Splits `mass` rows among parts: as `guess` says, or by width if noise hides the shape."""
    if mass == 0 or bool((guess < least).all()):
        return np.asarray(mass * widths / widths.sum())
    largest = -np.sort(-guess)
    beyond = (np.cumsum(largest) - mass) / np.arange(1, len(guess) + 1)
    last = max(1, int((largest > beyond).sum())) - 1
    return np.asarray(np.maximum(guess - beyond[last], 0.0))
