"""Rows to samples and back: which entries of a sample stand for which column.

A sample is float32 [width]. A column of numbers has one entry for its *score*, in [−1, 1]; if it
has common values or may be missing, a *choice* follows: one entry each for "another value", for
every common value and for "missing", of which one is 1 and the others are 0. A column of categories
is a choice alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema
from mdgan.samples.table.spread import Spread, is_other, num_counts, num_options, options_of

_PIECE = 65_536  # rows that are encoded together, which bounds the memory


@dataclass(frozen=True)
class ColumnPlace:
    """The entries of one column."""

    index: int  # of the column in the schema
    column: AnyColumn
    score: int | None  # the entry of its score; None if it has none
    choice: range  # its other entries; empty if it has none


class RowLayout:
    """The entries of a sample.

    Args:
        without: the index of a column that is no part of samples, since it is their label.

    Attributes:
        scores: the entries that are scores.
        choices: the entries of each choice.
    """

    def __init__(self, schema: Schema, without: int | None = None) -> None:
        self.schema = schema
        self.places: list[ColumnPlace] = []
        width = 0
        for index, column in enumerate(schema.columns):
            if index == without:
                continue
            score = width if isinstance(column, ScaledColumn) else None
            begin = width + (score is not None)
            choice = range(begin, begin + num_options(column))
            self.places.append(ColumnPlace(index, column, score, choice))
            width = choice.stop
        self.width = width
        self.scores = [place.score for place in self.places if place.score is not None]
        self.choices = [place.choice for place in self.places if place.choice]


class Encoding:
    """How the columns of a table become the entries of samples, once their spread is known.

    Args:
        counts: float64 [number of counts], of all sites together: of cells and of options,
            one column after the other.
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
