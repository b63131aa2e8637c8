"""How the values of a column spread, learnt from counts that all sites add up.

A number becomes its normal score: with F, the share of all rows with smaller values, it is the
quantile of F of a normal distribution that is cut at ±3 and divided by 3. So it lies in [−1, 1] and
is spread alike whatever the column is, with long tails or two peaks. Fed-TGAN (Zhao et al. 2021)
fits Gaussian mixtures at each site instead and joins them; counts are the same for any division of
the rows over sites, and can be masked and covered by noise.
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
_EDGE = 1 / 64  # how far within its cell a value counts at least, in cells
_FEW_ROWS = 20
_NOTHING = 1e-12
_BELOW = float(torch.special.ndtr(torch.tensor(-_CUT, dtype=torch.float64)))
"""The share of a normal distribution below −3."""


def share_below(scores: Tensor) -> Tensor:
    """Which share of all values is smaller than those with some scores, float64 in [0, 1]."""
    shares: Tensor = torch.special.ndtr(scores.clamp(-1.0, 1.0) * _CUT)
    return ((shares - _BELOW) / (1 - 2 * _BELOW)).clamp(0, 1)


def score_at(shares: Tensor) -> Tensor:
    """The scores below which such shares of all values lie, float64 in [-1, 1]."""
    quantiles: Tensor = torch.special.ndtri(_BELOW + shares * (1 - 2 * _BELOW))
    return (quantiles / _CUT).clamp(-1, 1)


class Room(NamedTuple):
    """Between which values those of a column must lie in each row, [n]."""

    low: Floats
    high: Floats

    def of(self, which: NDArray[np.bool_]) -> "Room":
        """Those of some rows."""
        return Room(self.low[which], self.high[which])


class Cells:
    """The histogram of a column of numbers within its bounds.

    Columns of at most 1,024 whole values have a cell for each value, others 1,024 cells.
    """

    def __init__(self, column: Scaled) -> None:
        self._column = column
        self._low, self._high = column.bounds
        num_values = self._high - self._low + 1
        self._decimals: int = getattr(column, "decimals", 0)
        self.is_exact = column.is_whole and num_values <= _NUM_CELLS
        self.number = int(num_values) if self.is_exact else _NUM_CELLS

    def positions(self, values: Floats) -> Floats:
        """Where values lie in the row of cells, from 0 to their number."""
        if self.is_exact:
            return values - self._low + 0.5
        share = (values - self._low) / (self._high - self._low)
        if self._column.spacing == "log":
            share = np.log1p(_LOG_STRENGTH * share) / np.log1p(_LOG_STRENGTH)
        return share * self.number

    def values(self, positions: Floats) -> Floats:
        """The values at some positions, as the column may have them."""
        if self.is_exact:
            found = np.floor(positions) + self._low
        else:
            found = np.round(self._unrounded(positions), self._decimals)
        return np.clip(found, self._low, self._high)

    def inside(self, room: Room) -> tuple[Floats, Floats]:
        """The ends of rooms, as far as they are within bounds."""
        return np.clip(room.low, self._low, self._high), np.clip(room.high, self._low, self._high)

    def last_values(self) -> Floats:
        """The largest value that each cell may hold."""
        edges = np.arange(1, self.number + 1, dtype=np.float64)
        if self.is_exact:
            return self.values(edges - 1)
        scale = 10.0**self._decimals
        inside = np.nextafter(self._unrounded(edges), self._low)
        found: Floats = np.floor(inside * scale) / scale
        found[-1] = self._high
        return found

    def _unrounded(self, positions: Floats) -> Floats:
        share = positions / self.number
        if self._column.spacing == "log":
            share = np.expm1(share * np.log1p(_LOG_STRENGTH)) / _LOG_STRENGTH
        return self._low + share * (self._high - self._low)

    def count(self, values: Floats) -> Codes:
        """How many values lie in each cell."""
        cells = np.clip(self.positions(values).astype(np.int64), 0, self.number - 1)
        return np.bincount(cells, minlength=self.number).astype(np.int64)


class Spread:
    """What added counts of a column say, float64; those below 0 by noise count as 0."""

    def __init__(self, column: AnyColumn, counts: Floats) -> None:
        counts = np.maximum(counts, 0.0)
        self._column = column
        self.cells = Cells(column) if isinstance(column, ScaledColumn) else None
        number = self.cells.number if self.cells else 0
        self.histogram, self.options = counts[:number], counts[number:]
        total = self.histogram.sum()
        shares = self.histogram / total if total > 0 else np.full(number, 1 / max(number, 1))
        self._edges = np.concatenate([[0.0], np.cumsum(shares)])
        if number:
            self._edges /= self._edges[-1]

    @property
    def below_cells(self) -> Floats:
        """Which share of all values lies before each cell, and at the end 1, [cells + 1]."""
        return self._edges

    def weighed(self) -> tuple[Floats, Floats]:
        """Values, and how many rows have each: the middle one for all of a cell, NaN: missing."""
        values, counts = np.arange(len(self.options), dtype=np.float64), self.options
        exact = np.array(self._column.exact if isinstance(self._column, ScaledColumn) else ())
        if self.cells is not None:
            middle = self.cells.values(np.arange(0.5, self.cells.number, dtype=np.float64))
            values = np.concatenate([middle, exact, [np.nan]])
            counts = np.concatenate([self.histogram, self.options[1:]])
        elif self._column.may_be_missing:
            values[-1] = np.nan
        return values[: len(counts)], counts

    def scores(self, values: Floats, room: Room | None = None) -> Floats:
        """The normal scores of values, in [−1, 1], among all values, or those of rooms."""
        assert self.cells is not None
        positions = self.cells.positions(values)
        # At a cell's very edge a score would be that of the cell before, and of empty ones between.
        inside = np.clip(np.floor(positions), 0, self.cells.number - 1) + _EDGE
        below = self._below(np.maximum(positions, inside))
        if room is not None:
            first, share = self._of_room(room)
            width = np.maximum(room.high - room.low, _NOTHING)
            in_share = (below - first) / np.maximum(share, _NOTHING)
            below = np.where(share > _NOTHING, in_share, (values - room.low) / width).clip(0, 1)
        found: Floats = score_at(torch.from_numpy(below)).numpy()
        return found

    def values(self, scores: Floats, room: Room | None = None) -> Floats:
        """The values that have some scores; never one from a cell without rows.

        In a room where no row has a value, all are equally likely.
        """
        assert self.cells is not None
        below = share_below(torch.from_numpy(scores)).numpy()
        if room is None:
            return self._values_at(below)
        first, share = self._of_room(room)
        low, high = self.cells.inside(room)
        found = np.clip(self._values_at(first + below * share), low, high)
        return np.where(share > _NOTHING, found, low + below * (high - low))

    def _below(self, positions: Floats) -> Floats:
        """The share of all rows below positions in the row of cells."""
        found: Floats = np.interp(positions, np.arange(len(self._edges), dtype=float), self._edges)
        return found

    def _of_room(self, room: Room) -> tuple[Floats, Floats]:
        """The share of all rows below each room, and in it."""
        assert self.cells is not None
        low, high = map(self.cells.positions, self.cells.inside(room))
        if self.cells.is_exact:
            low, high = np.floor(low), np.floor(high) + 1
        first = self._below(low)
        return first, self._below(high) - first

    def _values_at(self, below: Floats) -> Floats:
        """The values below which such shares of all rows lie."""
        assert self.cells is not None
        cell = np.searchsorted(self._edges, below, side="right") - 1
        last = int(np.flatnonzero(np.diff(self._edges) > 0)[-1])
        cell = np.minimum(cell, last)
        width = self._edges[cell + 1] - self._edges[cell]
        within = np.where(width > 0, (below - self._edges[cell]) / np.where(width > 0, width, 1), 0)
        return self.cells.values(cell + np.clip(within, 0.0, 1 - 1e-9))


def num_options(column: AnyColumn) -> int:
    """How many entries a column's choice has; 0 if it has none."""
    if isinstance(column, ScaledColumn):
        has_any = bool(column.exact) or column.may_be_missing
        return has_any + len(column.exact) + column.may_be_missing
    return len(column.choices) + column.may_be_missing


def num_counts(column: AnyColumn) -> int:
    """How many counts a column has: of cells, then of options."""
    cells = Cells(column).number if isinstance(column, ScaledColumn) else 0
    return cells + num_options(column)


def count_column(column: AnyColumn, values: Floats) -> Codes:
    """The counts of a column's values, float64 [n] with NaN where one is missing."""
    options = np.bincount(options_of(column, values), minlength=max(1, num_options(column)))
    if not isinstance(column, ScaledColumn):
        return options.astype(np.int64)
    others = values[is_other(column, values)]
    counted = Cells(column).count(others)
    return np.concatenate([counted, options]) if num_options(column) else counted


def coarse_counts(column: AnyColumn, counts: Floats) -> Floats:
    """The counts of a column, without noise, so that hardly one of them follows from a single row.

    Cells are put together until fewer than 20 rows are in a part, and those spread evenly over it.
    """
    number = Cells(column).number if isinstance(column, ScaledColumn) else 0
    return np.concatenate([_even(counts[:number]), rounded_counts(counts[number:])])


def _even(cells: Floats) -> Floats:
    total, half = cells.sum(), len(cells) // 2
    if total >= _FEW_ROWS and half:
        return np.concatenate([_even(cells[:half]), _even(cells[half:])])
    return np.full(len(cells), rounded_counts(total) / max(1, len(cells)))


def rounded_counts(counts: Floats) -> Floats:
    """The nearest square: a count of c is known to ± √c as to what it stands for."""
    return np.square(np.round(np.sqrt(counts)))


def is_other(column: Scaled, values: Floats) -> NDArray[np.bool_]:
    """Which values of a column of numbers are there, and are none of the common ones."""
    return ~np.isnan(values) & ~np.isin(values, column.exact)


def options_of(column: AnyColumn, values: Floats) -> Codes:
    """Which option of its choice each value is; all 0 for a column without a choice."""
    missing = np.isnan(values)
    if isinstance(column, ScaledColumn):
        places = np.searchsorted(column.exact, values) if column.exact else np.zeros(len(values))
        is_common = np.isin(values, column.exact)
        options = np.where(is_common, places + 1, 0)
    else:
        options = np.where(missing, 0, values)
    return np.where(missing, num_options(column) - 1, options).astype(np.int64)
