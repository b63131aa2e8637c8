"""Turns tables into codes for central mechanisms, and back, by bins that the public schema gives.

A column of numbers has a bin for each common value of the schema, and 32 bins for other values,
equally wide on the column's scale, linear or log. Rows decide no bin, so binning spends no ε.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from mdgan.samples.table.schema import AnyColumn, ScaledColumn, read_schema
from mdgan.samples.table.spread import Cells

MOST_BINS = 32
Codes = npt.NDArray[np.int64]


class Bins:
    """The codes of a column: first common values or categories, then bins, last missing values."""

    def __init__(self, column: AnyColumn) -> None:
        self._column, self._num_bins = column, 0
        if isinstance(column, ScaledColumn):
            self._cells = Cells(column)
            self._num_bins = min(self._cells.num_cells, MOST_BINS)
            is_small = self._cells.is_exact and self._cells.num_cells <= MOST_BINS
            self._single = [] if is_small else [*map(column.write, column.common)]
        else:
            self._single = [*column.choices]
        self._missing = len(self._single) + self._num_bins
        self.size = self._missing + column.may_be_missing

    def codes(self, values: pd.Series) -> Codes:
        """The code of each value of a column of a CSV file, [n]."""
        codes: Codes = np.full(len(values), self._missing)
        is_known = values.notna().to_numpy()
        if self._num_bins:
            share = self._cells.positions(values[is_known].to_numpy(float)) / self._cells.num_cells
            bins = (share * self._num_bins).astype(np.int64).clip(0, self._num_bins - 1)
            codes[is_known] = len(self._single) + bins
        places = {_plain(text): code for code, text in enumerate(self._single)}
        single = values.map(_plain).map(places)
        return np.where(single.notna(), single.fillna(0), codes).astype(np.int64)

    def texts(self, codes: Codes, rng: np.random.Generator) -> list[str]:
        """The text of each code in a CSV file; numbers are drawn uniformly within their bin."""
        texts = [*self._single, *[""] * (self.size - len(self._single))]
        cells = [texts[code] for code in codes]
        for row in np.flatnonzero((codes >= len(self._single)) & (codes < self._missing)):
            share = (codes[row] - len(self._single) + rng.random()) / self._num_bins
            number = self._cells.values(np.array([share * self._cells.num_cells]))[0]
            cells[row] = self._column.write(number)  # type: ignore[union-attr] # has bins
        return cells


def _plain(value: object) -> object:
    """Turns 4.0 and '4' into 4.0, so that a value has one spelling."""
    try:
        return float(str(value))
    except ValueError:
        return value


def bins_of(schema: Path) -> dict[str, Bins]:
    """The bins of each column of a schema, by name."""
    return {column.name: Bins(column) for column in read_schema(schema).columns}
