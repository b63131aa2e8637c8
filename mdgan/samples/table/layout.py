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

from mdgan.gan.model_state import digest_of
from mdgan.samples.table.rooms import Rooms
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema
from mdgan.samples.table.spread import (
    Floats,
    Room,
    Spread,
    is_other,
    num_counts,
    num_options,
    options_of,
)

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
        rooms: which values the rules of the schema leave; None if it has none.
        scores: the entries that are scores.
        choices: the entries of each choice.
    """

    def __init__(self, schema: Schema, without: int | None = None) -> None:
        self.schema, self.without = schema, without
        self.rooms = Rooms(Rules(schema)) if schema.rules else None
        self.places: list[ColumnPlace] = []
        width = 0
        for index, column in enumerate(self.rooms.counted if self.rooms else schema.columns):
            if index == without or column is None:
                continue
            score = width if isinstance(column, ScaledColumn) else None
            begin = width + (score is not None)
            choice = range(begin, begin + num_options(column))
            self.places.append(ColumnPlace(index, column, score, choice=choice))
            width = choice.stop
        self.width = width
        self.scores = [place.score for place in self.places if place.score is not None]
        self.choices = [place.choice for place in self.places if place.choice]

    def counted(self, values: Floats) -> Floats:
        """Values of rows as they are counted, [n, columns of the schema]."""
        return self.rooms.counts_of(values) if self.rooms else values


class Encoding:
    """How the columns of a table become the entries of samples, once their spread is known.

    Args:
        counts: float64 [number of counts], of all sites together: of cells and of options,
            one column after the other.

    Attributes:
        digest: of the counts.
    """

    def __init__(self, layout: RowLayout, counts: Tensor) -> None:
        self._layout = layout
        self.digest = digest_of({"counts": counts})
        sizes = [num_counts(place.column) for place in layout.places]
        parts = torch.split(counts.double().cpu(), sizes)
        self.spreads = [
            Spread(place.column, part.numpy())
            for place, part in zip(layout.places, parts, strict=True)
        ]
        self._each = {p.index: (p, s) for p, s in zip(layout.places, self.spreads, strict=True)}

    def encode(self, rows: Rows) -> Tensor:
        """Samples, float32 [n, width]."""
        found = np.zeros((len(rows), self._layout.width), dtype=np.float32)
        for begin in range(0, len(rows), _PIECE):
            values = self._layout.counted(rows.values[begin : begin + _PIECE])
            rooms = self._rooms_of(values)
            into = found[begin : begin + _PIECE]
            for place, spread in self._each.values():
                given = values[:, place.index]
                if place.score is not None and isinstance(place.column, ScaledColumn):
                    others = is_other(place.column, given)
                    room = rooms[place.index].of(others) if place.index in rooms else None
                    into[others, place.score] = spread.scores(given[others], room)
                if place.choice:
                    options = options_of(place.column, given)
                    into[np.arange(len(given)), place.choice.start + options] = 1
        return torch.from_numpy(found)

    def _rooms_of(self, values: Floats) -> dict[int, Room]:
        """The rooms that rows leave for their own values as they are counted, by column."""
        found: dict[int, Room] = {}

        def keep(index: int, room: Room) -> Floats:
            found[index] = room
            return values[:, index]

        if self._layout.rooms is not None:
            self._layout.rooms.walk(len(values), keep)
        return found

    def decode(self, samples: Tensor, label: Floats | None = None) -> Floats:
        """Values, float64 [n, columns of the schema].

        Args:
            label: the values of the column that is the label, [n]; NaN if they are not given.
        """
        given = samples.detach().double().cpu().numpy()
        rooms, without = self._layout.rooms, self._layout.without
        missing: dict[int, NDArray[np.bool_]] = {}

        def draw(index: int, room: Room | None = None) -> Floats:
            leader = rooms.leaders.get(index, -1) if rooms else -1
            values = _decode(*self._each[index], given, room, missing.get(leader))
            missing[index] = np.isnan(values)
            return values

        if rooms is None:
            found = np.full((len(given), len(self._layout.schema.columns)), np.nan)
        else:
            found = rooms.walk(len(given), draw)
        for index in self._each:
            if index not in missing:
                found[:, index] = draw(index)
        if without is not None and label is not None:
            found[:, without] = label
        if rooms is not None:
            rooms.finish(found)
        return found


def _decode(
    place: ColumnPlace,
    spread: Spread,
    given: Floats,
    room: Room | None,
    missing: NDArray[np.bool_] | None,
) -> Floats:
    """The values of a column as they are counted, [n].

    Args:
        room: between which values they must lie.
        missing: which are missing, as far as the room lets the others be there.
    """
    column, options = place.column, np.zeros(len(given), dtype=np.int64)
    if place.choice:
        weights = given[:, place.choice.start : place.choice.stop]
        if room is not None:
            weights = np.where(_fitting(column, room), weights, -np.inf)
        if missing is not None:
            is_missing = missing | np.isneginf(weights[:, :-1]).all(1)
            last = np.where(is_missing, np.inf, -np.inf)
            weights = np.column_stack([weights[:, :-1], last])
        options = weights.argmax(1)
    if isinstance(column, ScaledColumn):
        assert place.score is not None
        known = np.array([np.nan, *column.exact, np.nan])
        values = spread.values(given[:, place.score], room)
        return np.where(options == 0, values, known[options])
    values = options.astype(np.float64)
    return np.where(options < len(column.choices), values, np.nan)


def _fitting(column: AnyColumn, room: Room) -> NDArray[np.bool_]:
    """Which options of a column of numbers a room has, [n, options]."""
    assert isinstance(column, ScaledColumn)
    low, high = room.low[:, None], room.high[:, None]
    least, most = column.bounds  # beyond them only ends lie
    exact = np.array(column.exact).reshape(1, -1)
    fits = [np.maximum(low, least) <= np.minimum(high, most), (low <= exact) & (exact <= high)]
    if column.may_be_missing:
        fits.append(np.ones_like(low, dtype=np.bool_))
    return np.hstack(fits)
