"""Places the values of columns on one axis, so that rules can compare different columns."""

from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mdgan.samples.table.schema import DateColumn, MomentColumn, Scaled

Floats = NDArray[np.float64]

DAY = 86_400.0
_EPOCH = datetime(1970, 1, 1)


class Axis:
    """Converts a column's values to positions: numbers as they are, moments in seconds since 1970.

    Attributes:
        decimals: the decimals of a column of numbers; 0 for moments.
        unit: the distance of neighbouring positions of moments; 1 for numbers.
        low, high: the least and greatest position, ends of the scale included.
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
                begins = [column.moment_at(value) for value in range(int(column.bounds[1]) + 1)]
                self._days = np.array([DAY * (day - _EPOCH.date()).days for day in begins])
        reached = self.positions(np.array([*column.bounds, *column.exact_values]))
        self.low, self.high = float(reached.min()), float(reached.max())

    def positions(self, values: Floats) -> Floats:
        """The positions of values; NaN stays NaN."""
        if not len(self._days):
            return self._zero + values * self.unit
        within = np.clip(np.nan_to_num(values), 0, len(self._days) - 1).astype(np.int64)
        positions = np.where(values < len(self._days), self._days[within], np.inf)
        return np.where(np.isnan(values), np.nan, np.where(values < 0, -np.inf, positions))

    def values(self, positions: Floats) -> Floats:
        """The inverse of `positions`; a result between two values of the column is not rounded."""
        if not len(self._days):
            return (positions - self._zero) / self.unit
        values = np.interp(positions, self._days, np.arange(len(self._days), dtype=np.float64))
        return np.where(np.isinf(positions), positions, values)

    def nearest(self, positions: Floats) -> Floats:
        """Rounds to the closest positions of the column's values."""
        return self._at(np.round(self._steps(positions)))

    def up(self, positions: Floats, *, beyond: bool = False) -> Floats:
        """Rounds up to the next positions of the column's values; with `beyond`, strictly up."""
        steps = np.ceil(self._steps(positions))
        steps = np.where(self._at(steps - 1) >= positions, steps - 1, steps)
        is_too_low = self._at(steps) <= positions if beyond else self._at(steps) < positions
        return self._at(np.where(is_too_low, steps + 1, steps))

    def down(self, positions: Floats, *, beyond: bool = False) -> Floats:
        """Rounds down to the next positions of the column's values; with `beyond`, strictly."""
        steps = np.floor(self._steps(positions))
        steps = np.where(self._at(steps + 1) <= positions, steps + 1, steps)
        is_too_high = self._at(steps) >= positions if beyond else self._at(steps) > positions
        return self._at(np.where(is_too_high, steps - 1, steps))

    def _steps(self, positions: Floats) -> Floats:
        """Positions in steps from one value of the column to the next; `_at` is the inverse."""
        return self.values(positions) if self.is_moment else positions * 10.0**self.decimals

    def _at(self, steps: Floats) -> Floats:
        if self.is_moment:
            return self.positions(steps)
        positions: Floats = steps / 10.0**self.decimals
        return positions
