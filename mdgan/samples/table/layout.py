"""Turns rows into samples and back: which entries of a sample belong to which column.

A sample is float32 [width]. A column of numbers has one entry for its *score*, in [−1, 1]. If it
has common values or may be missing, a *choice* follows: a one-hot code whose options are "another
value", each common value, and "missing". A column of categories has only a choice.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.gan.model_state import digest_of
from mdgan.samples.table.intervals import Intervals
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema
from mdgan.samples.table.spread import (
    Floats,
    Interval,
    Spread,
    is_other,
    num_counts,
    num_options,
    options_of,
)

_PIECE = 65_536  # this many rows are encoded at a time, which bounds the memory


@dataclass(frozen=True)
class ColumnPlace:
    """Which entries of a sample belong to one column."""

    index: int  # of the column in the schema
    column: AnyColumn
    score: int | None  # the entry of its score; None for categories
    choice: range  # the entries of its choice; empty if it has none


class RowLayout:
    """Which entries of a sample belong to which column of a schema.

    Args:
        without: the index of the column that is the label, and therefore no part of samples.

    Attributes:
        intervals: the intervals that the schema's rules leave to each column; None without rules.
        scores: the entries that are scores.
        choices: the entries of each choice.
    """

    def __init__(self, schema: Schema, without: int | None = None) -> None:
        self.schema, self.without = schema, without
        self.intervals = Intervals(Rules(schema)) if schema.rules else None
        self.places: list[ColumnPlace] = []
        width = 0
        counted = self.intervals.counted if self.intervals else schema.columns
        for index, column in enumerate(counted):
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
        """Replaces values by differences to an anchor where `intervals` says so, [n, columns]."""
        return self.intervals.to_counted(values) if self.intervals else values


class Encoding:
    """Encodes rows as samples and decodes samples, by the counts of all sites.

    Args:
        counts: float64 [number of counts], summed over all sites: the cells and options of each
            column, one column after the other.

    Attributes:
        digest: the hash of the counts.
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
        """Encodes n rows as samples, float32 [n, width]."""
        samples = np.zeros((len(rows), self._layout.width), dtype=np.float32)
        for begin in range(0, len(rows), _PIECE):
            values = self._layout.counted(rows.values[begin : begin + _PIECE])
            intervals = self._intervals_of(values)
            into = samples[begin : begin + _PIECE]
            for place, spread in self._each.values():
                of_column = values[:, place.index]
                if place.score is not None and isinstance(place.column, ScaledColumn):
                    others = is_other(place.column, of_column)
                    interval = intervals.get(place.index)
                    interval = interval and interval.select(others)
                    into[others, place.score] = spread.scores(of_column[others], interval)
                if place.choice:
                    options = options_of(place.column, of_column)
                    into[np.arange(len(of_column)), place.choice.start + options] = 1
        return torch.from_numpy(samples)

    def _intervals_of(self, values: Floats) -> dict[int, Interval]:
        """The interval of each column's values in each row, given the columns made before it."""
        by_column: dict[int, Interval] = {}

        def keep(index: int, interval: Interval) -> Floats:
            by_column[index] = interval
            return values[:, index]

        if self._layout.intervals is not None:
            self._layout.intervals.make_columns(len(values), keep)
        return by_column

    def decode(self, samples: Tensor, label: Floats | None = None) -> Floats:
        """Decodes samples [n, width] to values as in `Rows`, float64 [n, columns of the schema].

        Args:
            label: values of the column that is the label, [n]; if None, the column is all NaN.
        """
        entries = samples.detach().double().cpu().numpy()
        intervals, without = self._layout.intervals, self._layout.without
        missing: dict[int, NDArray[np.bool_]] = {}

        def draw(index: int, interval: Interval | None = None) -> Floats:
            leader = intervals.leaders.get(index, -1) if intervals else -1
            of_column = _decode(*self._each[index], entries, interval, missing.get(leader))
            missing[index] = np.isnan(of_column)
            return of_column

        if intervals is None:
            values = np.full((len(entries), len(self._layout.schema.columns)), np.nan)
        else:
            values = intervals.make_columns(len(entries), draw)
        for index in self._each:
            if index not in missing:
                values[:, index] = draw(index)
        if without is not None and label is not None:
            values[:, without] = label
        if intervals is not None:
            intervals.complete(values)
        return values


def _decode(
    place: ColumnPlace,
    spread: Spread,
    entries: Floats,
    interval: Interval | None,
    missing: NDArray[np.bool_] | None,
) -> Floats:
    """Decodes one column, [n]; a column with an anchor as its difference to that.

    Args:
        entries: samples, float64 [n, width].
        interval: the interval in which each value must lie; None for no limit.
        missing: in which rows the column is missing, if they decide it alone; else None.
    """
    column, options = place.column, np.zeros(len(entries), dtype=np.int64)
    if place.choice:
        weights = entries[:, place.choice.start : place.choice.stop]
        if interval is not None:
            weights = np.where(_fitting(column, interval), weights, -np.inf)
        if missing is not None:
            is_missing = missing | np.isneginf(weights[:, :-1]).all(1)
            last = np.where(is_missing, np.inf, -np.inf)
            weights = np.column_stack([weights[:, :-1], last])
        options = weights.argmax(1)
    if isinstance(column, ScaledColumn):
        assert place.score is not None
        value_of_option = np.array([np.nan, *column.exact_values, np.nan])
        values = spread.values(entries[:, place.score], interval)
        return np.where(options == 0, values, value_of_option[options])
    values = options.astype(np.float64)
    return np.where(options < len(column.choices), values, np.nan)


def _fitting(column: AnyColumn, interval: Interval) -> NDArray[np.bool_]:
    """Which options of a column of numbers lie inside each interval, bool [n, options]."""
    assert isinstance(column, ScaledColumn)
    low, high = interval.low[:, None], interval.high[:, None]
    least, most = column.bounds  # only ends of the scale lie beyond them
    exact = np.array(column.exact_values).reshape(1, -1)
    fits = [np.maximum(low, least) <= np.minimum(high, most), (low <= exact) & (exact <= high)]
    if column.may_be_missing:
        fits.append(np.ones_like(low, dtype=np.bool_))
    return np.hstack(fits)
