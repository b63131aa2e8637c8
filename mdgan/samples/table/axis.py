"""Where values of a column lie, so that those of several columns can be compared."""

from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mdgan.samples.table.schema import DateColumn, MomentColumn, Scaled

Floats = NDArray[np.float64]

DAY = 86_400.0
_EPOCH = datetime(1970, 1, 1)


class Axis:
    """The positions of a column's values: numbers as they are, moments in seconds since 1970.

    Attributes:
        decimals: how many numbers have.
    """

    def __init__(self, column: Scaled) -> None:
        self.is_moment = isinstance(column, MomentColumn)
        self.decimals: int = getattr(column, "decimals", 0)
        self.unit = DAY if isinstance(column, DateColumn) else 1.0
        self._zero, self._days = 0.0, np.empty(0)
        if isinstance(column, MomentColumn):
            low, high = map(datetime.fromisoformat, (column.low, column.high))
            self._zero = (low - _EPOCH).total_seconds()
            if self.unit == DAY and column.bounds[1] != (high - low).days:  # months or weeks
                begins = [column.moment(value) for value in range(int(column.bounds[1]) + 1)]
                self._days = np.array([DAY * (day - _EPOCH.date()).days for day in begins])
        reached = self.positions(np.array([*column.bounds, *column.exact]))
        self.low, self.high = float(reached.min()), float(reached.max())

    def positions(self, values: Floats) -> Floats:
        """Where values lie."""
        if not len(self._days):
            return self._zero + values * self.unit
        within = np.clip(np.nan_to_num(values), 0, len(self._days) - 1).astype(np.int64)
        found = np.where(values < len(self._days), self._days[within], np.inf)
        return np.where(np.isnan(values), np.nan, np.where(values < 0, -np.inf, found))

    def values(self, positions: Floats) -> Floats:
        """The values at positions."""
        if not len(self._days):
            return (positions - self._zero) / self.unit
        found = np.interp(positions, self._days, np.arange(len(self._days), dtype=np.float64))
        return np.where(np.isinf(positions), positions, found)

    def nearest(self, positions: Floats) -> Floats:
        """The closest positions that the column has."""
        return self._at(np.round(self._steps(positions)))

    def up(self, positions: Floats, *, beyond: bool = False) -> Floats:
        """The least positions of the column that are at least these; with `beyond`, above them."""
        steps = np.ceil(self._steps(positions))
        steps = np.where(self._at(steps - 1) >= positions, steps - 1, steps)
        is_too_low = self._at(steps) <= positions if beyond else self._at(steps) < positions
        return self._at(np.where(is_too_low, steps + 1, steps))

    def down(self, positions: Floats, *, beyond: bool = False) -> Floats:
        """The greatest positions that are at most these; with `beyond`, below them."""
        steps = np.floor(self._steps(positions))
        steps = np.where(self._at(steps + 1) <= positions, steps + 1, steps)
        is_too_high = self._at(steps) >= positions if beyond else self._at(steps) > positions
        return self._at(np.where(is_too_high, steps - 1, steps))

    def _steps(self, positions: Floats) -> Floats:
        if self.is_moment:
            return self.values(positions)
        return positions * 10.0**self.decimals

    def _at(self, steps: Floats) -> Floats:
        if self.is_moment:
            return self.positions(steps)
        found: Floats = steps / 10.0**self.decimals
        return found
