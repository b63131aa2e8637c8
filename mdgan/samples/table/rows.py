"""Rows of a table as numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdgan.samples.table.schema import ScaledColumn, Schema


@dataclass(frozen=True)
class Rows:
    """n rows that fit a schema."""

    schema: Schema
    # float64 [n, columns of the schema]: numbers as they are, dates in days and times in seconds
    # since the column's `low`, categories as codes (yes / no: 1 / 0), and NaN where a value is
    # missing.
    values: NDArray[np.float64]
    # Whose row each is, texts [n]; None if the schema names no person.
    persons: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def of(self, places: NDArray[np.int64]) -> "Rows":
        """The rows at some places, int64 [k]."""
        persons = None if self.persons is None else self.persons[places]
        return Rows(self.schema, self.values[places], persons)

    def fits(self) -> NDArray[np.bool_]:
        """Which rows have nothing but what the schema allows, [n]."""
        found = np.ones(len(self), dtype=np.bool_)
        for column, values in zip(self.schema.columns, self.values.T, strict=True):
            missing = np.isnan(values)
            if isinstance(column, ScaledColumn):
                low, high = column.bounds
                known = np.array([column.rounded(value) for value in values[~missing].tolist()])
                is_value = (known == values[~missing]) & (low <= known) & (known <= high)
            else:
                is_value = np.isin(values[~missing], range(len(column.choices)))
            found[~missing] &= is_value
            found[missing] &= column.may_be_missing
        return found
