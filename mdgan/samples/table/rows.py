"""Rows of a table as numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdgan.samples.table.schema import Schema


@dataclass(frozen=True)
class Rows:
    """n rows that fit a schema.

    Attributes:
        values: float64 [n, columns of the schema]: numbers as they are, dates in days and times in
            seconds since the column's `low`, categories as codes (yes / no: 1 / 0), and NaN where
            a value is missing.
    """

    schema: Schema
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    def of(self, places: NDArray[np.int64]) -> "Rows":
        """The rows at some places, int64 [k]."""
        return Rows(self.schema, self.values[places])
