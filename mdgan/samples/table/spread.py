"""The distribution of each column's values, from counts that all sites add up.

Training sees a number as its normal score: F is the share of all rows with smaller values, and the
score is the F-quantile of a normal distribution that is cut at ±3, divided by 3. Scores lie in
[−1, 1] and have the same distribution for every column, also one with long tails or two peaks.
Fed-TGAN (Zhao et al. 2021) fits Gaussian mixtures at each site and joins them. Counts do not depend
on which site holds which row, and sites can mask them and add noise to them.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.samples.table.schema import AnyColumn, Scaled, ScaledColumn

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_NUM_CELLS = 1024
_LOG_STRENGTH = 1e4
_CUT = 3.0
_EDGE = 1 / 64  # a value counts as at least this far inside its cell, in cells
_FEW_ROWS = 20
_NOTHING = 1e-12
_BELOW = float(torch.special.ndtr(torch.tensor(-_CUT, dtype=torch.float64)))
"""The share of a normal distribution below −3."""


def share_below(scores: Tensor) -> Tensor:
    """The share of all values that are smaller than the value of each score, float64 in [0, 1]."""
    shares: Tensor = torch.special.ndtr(scores.clamp(-1.0, 1.0) * _CUT)
    return ((shares - _BELOW) / (1 - 2 * _BELOW)).clamp(0, 1)


def score_at(shares: Tensor) -> Tensor:
    """The inverse of `share_below`: scores, float64 in [−1, 1], of shares in [0, 1]."""
    quantiles: Tensor = torch.special.ndtri(_BELOW + shares * (1 - 2 * _BELOW))
    return (quantiles / _CUT).clamp(-1, 1)


class Interval(NamedTuple):
    """The least and greatest value that a column may have in each row, float64 [n]."""

    low: Floats
    high: Floats

    def select(self, which: NDArray[np.bool_]) -> "Interval":
        """Selects rows by a mask, bool [n]."""
        return Interval(self.low[which], self.high[which])


class Cells:
    """The cells of the histogram of a column of numbers.

    A column of at most 1,024 whole values has one cell for each (`is_exact`), any other has 1,024.
    """

    def __init__(self, column: Scaled) -> None:
        self._column = column
        self._low, self._high = column.bounds
        num_values = self._high - self._low + 1
        self._decimals: int = getattr(column, "decimals", 0)
        self.is_exact = column.is_whole and num_values <= _NUM_CELLS
        self.num_cells = int(num_values) if self.is_exact else _NUM_CELLS

    def positions(self, values: Floats) -> Floats:
        """Where values lie in the row of cells, from 0 to the number of cells."""
        if self.is_exact:
            return values - self._low + 0.5
        share = (values - self._low) / (self._high - self._low)
        if self._column.spacing == "log":
            share = np.log1p(_LOG_STRENGTH * share) / np.log1p(_LOG_STRENGTH)
        return share * self.num_cells

    def values(self, positions: Floats) -> Floats:
        """The inverse of `positions`, rounded to values that the column may have."""
        if self.is_exact:
            values = np.floor(positions) + self._low
        else:
            values = np.round(self._unrounded(positions), self._decimals)
        return np.clip(values, self._low, self._high)

    def inside(self, interval: Interval) -> tuple[Floats, Floats]:
        """Cuts intervals at the column's bounds, and returns their low and high ends."""
        low, high = (np.clip(end, self._low, self._high) for end in interval)
        return low, high

    def last_values(self) -> Floats:
        """The largest value that each cell may hold."""
        edges = np.arange(1, self.num_cells + 1, dtype=np.float64)
        if self.is_exact:
            return self.values(edges - 1)
        scale = 10.0**self._decimals
        inside = np.nextafter(self._unrounded(edges), self._low)
        values: Floats = np.floor(inside * scale) / scale
        values[-1] = self._high
        return values

    def _unrounded(self, positions: Floats) -> Floats:
        share = positions / self.num_cells
        if self._column.spacing == "log":
            share = np.expm1(share * np.log1p(_LOG_STRENGTH)) / _LOG_STRENGTH
        return self._low + share * (self._high - self._low)

    def count_values(self, values: Floats) -> Codes:
        """Counts the values in each cell, int64 [cells]."""
        cells = np.clip(self.positions(values).astype(np.int64), 0, self.num_cells - 1)
        return np.bincount(cells, minlength=self.num_cells).astype(np.int64)


class Spread:
    """The distribution of one column over the rows of all sites.

    Args:
        counts: float64 [num_counts(column)], summed over the sites: the `histogram` of rows in each
            cell, then rows with each of the `options`. Counts that noise made negative are 0.
    """

    def __init__(self, column: AnyColumn, counts: Floats) -> None:
        counts = np.maximum(counts, 0.0)
        self._column = column
        self.cells = Cells(column) if isinstance(column, ScaledColumn) else None
        number = self.cells.num_cells if self.cells else 0
        self.histogram, self.options = counts[:number], counts[number:]
        total = self.histogram.sum()
        shares = self.histogram / total if total > 0 else np.full(number, 1 / max(number, 1))
        self._edges = np.concatenate([[0.0], np.cumsum(shares)])
        if number:
            self._edges /= self._edges[-1]

    @property
    def below_cells(self) -> Floats:
        """The share of all values that lie before each cell, and 1 at the end, [cells + 1]."""
        return self._edges

    def values_with_counts(self) -> tuple[Floats, Floats]:
        """Values and the rows that have each; a cell counts at its middle, NaN is missing."""
        values, counts = np.arange(len(self.options), dtype=np.float64), self.options
        if isinstance(self._column, ScaledColumn) and self.cells is not None:
            middle = self.cells.values(np.arange(0.5, self.cells.num_cells, dtype=np.float64))
            values = np.concatenate([middle, self._column.exact_values, [np.nan]])
            counts = np.concatenate([self.histogram, self.options[1:]])
        elif self._column.may_be_missing:
            values[-1] = np.nan
        return values[: len(counts)], counts

    def scores(self, values: Floats, interval: Interval | None = None) -> Floats:
        """The normal scores of values, in [−1, 1], within the whole column or within intervals."""
        assert self.cells is not None
        positions = self.cells.positions(values)
        # A value on the edge of its cell has the same share below it as the end of the cell before
        # (and as any empty cell between), so `values` could return a value from there.
        inside = np.clip(np.floor(positions), 0, self.cells.num_cells - 1) + _EDGE
        below = self._share_below(np.maximum(positions, inside))
        if interval is not None:
            first, share = self._share_inside(interval)
            width = np.maximum(interval.high - interval.low, _NOTHING)
            in_share = (below - first) / np.maximum(share, _NOTHING)
            below = np.where(share > _NOTHING, in_share, (values - interval.low) / width).clip(0, 1)
        scores: Floats = score_at(torch.from_numpy(below)).numpy()
        return scores

    def values(self, scores: Floats, interval: Interval | None = None) -> Floats:
        """The inverse of `scores`; it never returns a value from a cell without rows.

        Within an interval that holds no row's value, all values are equally likely.
        """
        assert self.cells is not None
        below = share_below(torch.from_numpy(scores)).numpy()
        if interval is None:
            return self._values_at(below)
        first, share = self._share_inside(interval)
        low, high = self.cells.inside(interval)
        values = np.clip(self._values_at(first + below * share), low, high)
        return np.where(share > _NOTHING, values, low + below * (high - low))

    def _share_below(self, positions: Floats) -> Floats:
        """The share of all rows below positions in the row of cells."""
        shares: Floats = np.interp(positions, np.arange(len(self._edges), dtype=float), self._edges)
        return shares

    def _share_inside(self, interval: Interval) -> tuple[Floats, Floats]:
        """The share of all rows below each interval, and the share inside it."""
        assert self.cells is not None
        low, high = map(self.cells.positions, self.cells.inside(interval))
        if self.cells.is_exact:
            low, high = np.floor(low), np.floor(high) + 1
        first = self._share_below(low)
        return first, self._share_below(high) - first

    def _values_at(self, below: Floats) -> Floats:
        """The values below which shares `below` of all rows lie."""
        assert self.cells is not None
        cell = np.searchsorted(self._edges, below, side="right") - 1
        last = int(np.flatnonzero(np.diff(self._edges) > 0)[-1])
        cell = np.minimum(cell, last)
        width = self._edges[cell + 1] - self._edges[cell]
        within = np.where(width > 0, (below - self._edges[cell]) / np.where(width > 0, width, 1), 0)
        return self.cells.values(cell + np.clip(within, 0.0, 1 - 1e-9))


def num_options(column: AnyColumn) -> int:
    """How many options a column's choice has; 0 if it has no choice."""
    if isinstance(column, ScaledColumn):
        has_any = bool(column.exact_values) or column.may_be_missing
        return has_any + len(column.exact_values) + column.may_be_missing
    return len(column.choices) + column.may_be_missing


def num_counts(column: AnyColumn) -> int:
    """How many counts a column has: one for each cell, then one for each option."""
    cells = Cells(column).num_cells if isinstance(column, ScaledColumn) else 0
    return cells + num_options(column)


def count_column(column: AnyColumn, values: Floats) -> Codes:
    """Counts the values of a column, float64 [n] with NaN for missing, in cells and options."""
    options = np.bincount(options_of(column, values), minlength=max(1, num_options(column)))
    if not isinstance(column, ScaledColumn):
        return options.astype(np.int64)
    in_cells = Cells(column).count_values(values[is_other(column, values)])
    return np.concatenate([in_cells, options]) if num_options(column) else in_cells


def coarse_counts(column: AnyColumn, counts: Floats) -> Floats:
    """Makes the exact counts of a column so coarse that a single row hardly changes any of them.

    The cells are halved until a part holds fewer than 20 rows, which are spread evenly over it.
    """
    number = Cells(column).num_cells if isinstance(column, ScaledColumn) else 0
    return np.concatenate([_coarsened(counts[:number]), rounded_counts(counts[number:])])


def _coarsened(cells: Floats) -> Floats:
    total, half = cells.sum(), len(cells) // 2
    if total >= _FEW_ROWS and half:
        return np.concatenate([_coarsened(cells[:half]), _coarsened(cells[half:])])
    return np.full(len(cells), rounded_counts(total) / max(1, len(cells)))


def rounded_counts(counts: Floats) -> Floats:
    """Rounds counts to square numbers: a count c estimates its expectation only to about ± √c."""
    return np.square(np.round(np.sqrt(counts)))


def is_other(column: Scaled, values: Floats) -> NDArray[np.bool_]:
    """Which values are neither missing nor one of the column's exact values, bool [n]."""
    return ~np.isnan(values) & ~np.isin(values, column.exact_values)


def options_of(column: AnyColumn, values: Floats) -> Codes:
    """The option of the column's choice that each value has, [n]; all 0 without a choice."""
    missing = np.isnan(values)
    if isinstance(column, ScaledColumn):
        exact = column.exact_values
        places = np.searchsorted(exact, values) if exact else np.zeros(len(values))
        options = np.where(np.isin(values, exact), places + 1, 0)
    else:
        options = np.where(missing, 0, values)
    return np.where(missing, num_options(column) - 1, options).astype(np.int64)
