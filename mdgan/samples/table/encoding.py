"""Rows to samples and back."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.samples.table.layout import ColumnPlace, RowLayout
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import ScaledColumn
from mdgan.samples.table.spread import Spread, count_column, is_other, num_counts, options_of

_PIECE = 65_536
"""Rows that are encoded together, which bounds the memory."""


class Encoding:
    """How the columns of a table become the entries of samples, once their spread is known.

    Args:
        counts: float64 [number of counts], of all sites together; see `count_rows`.
    """

    def __init__(self, layout: RowLayout, counts: Tensor) -> None:
        self._layout = layout
        sizes = [num_counts(place.column) for place in layout.places]
        parts = torch.split(counts.double().cpu(), sizes)
        self.spreads = [
            Spread(place.column, part.numpy())
            for place, part in zip(layout.places, parts, strict=True)
        ]

    def encode(self, rows: Rows) -> Tensor:
        """Samples, float32 [n, width]."""
        found = np.zeros((len(rows), self._layout.width), dtype=np.float32)
        for begin in range(0, len(rows), _PIECE):
            piece = slice(begin, begin + _PIECE)
            for place, spread in zip(self._layout.places, self.spreads, strict=True):
                values, into = rows.values[piece, place.index], found[piece]
                if place.score is not None and isinstance(place.column, ScaledColumn):
                    others = is_other(place.column, values)
                    into[others, place.score] = spread.scores(values[others])
                if place.choice:
                    options = options_of(place.column, values)
                    into[np.arange(len(values)), place.choice.start + options] = 1
        return torch.from_numpy(found)

    def decode(self, samples: Tensor) -> NDArray[np.float64]:
        """Values, float64 [n, columns of the schema], NaN in the column that is the label."""
        given = samples.detach().double().cpu().numpy()
        found = np.full((len(given), len(self._layout.schema.columns)), np.nan)
        for place, spread in zip(self._layout.places, self.spreads, strict=True):
            found[:, place.index] = _decode(place, spread, given)
        return found


def count_rows(layout: RowLayout, rows: Rows) -> Tensor:
    """The counts of all columns, int64: of cells and of options, one column after the other."""
    counted = [count_column(place.column, rows.values[:, place.index]) for place in layout.places]
    return torch.from_numpy(np.concatenate(counted))


def _decode(place: ColumnPlace, spread: Spread, given: NDArray[np.float64]) -> NDArray[np.float64]:
    if place.choice:
        options = given[:, place.choice.start : place.choice.stop].argmax(1)
    else:
        options = np.zeros(len(given), dtype=np.int64)
    column = place.column
    if isinstance(column, ScaledColumn):
        assert place.score is not None
        known = np.array([np.nan, *column.common, np.nan])
        values = spread.values(given[:, place.score])
        return np.where(options == 0, values, known[options])
    values = options.astype(np.float64)
    return np.where(options < len(column.choices), values, np.nan)
