"""Tables as codes for central mechanisms, and back: bins from what the schema says publicly.

A number has a bin for each common value of the schema and 32 equally wide ones for others, on the
scale of the column's cells, linear or log. Nothing here looks at rows, so it spends no ε.
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
    """Codes of a column: of common values or categories, of bins, and last of missing values."""

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
        """What a CSV file says of each code; a number is uniform within its bin."""
        texts = [*self._single, *[""] * (self.size - len(self._single))]
        found = [texts[code] for code in codes]
        for row in np.flatnonzero((codes >= len(self._single)) & (codes < self._missing)):
            share = (codes[row] - len(self._single) + rng.random()) / self._num_bins
            number = self._cells.values(np.array([share * self._cells.num_cells]))[0]
            found[row] = self._column.write(number)  # type: ignore[union-attr] # has bins
        return found


def _plain(value: object) -> object:
    """4.0 and '4' as 4.0, so that a value has one spelling."""
    try:
        return float(str(value))
    except ValueError:
        return value


def bins_of(schema: Path) -> dict[str, Bins]:
    """How each column of a schema becomes codes and back, by name."""
    return {column.name: Bins(column) for column in read_schema(schema).columns}
