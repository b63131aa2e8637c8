"""Bins of a table's columns: which values of a column count as one when workers count pairs.

The *entries* of a column are the bins of its score, then the options of its choice. Entries of all
columns have numbers in the order of a sample: `BINS` for each score, one for each option. Only some
entries are used: bins that are not empty, and the first of the options that count as one.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.layout import ColumnPlace, RowLayout
from mdgan.samples.table.spread import Codes, Floats, Spread, share_below

BINS = 32
"""The most bins of a score."""


@dataclass(frozen=True)
class ColumnEntries:
    """The numbers of a column's entries."""

    place: ColumnPlace
    bins: range  # of its score; empty if it has none
    options: range  # of its choice; empty if it has none

    @property
    def entries(self) -> range:
        """The numbers of all entries of the column."""
        begin = self.bins.start if self.bins else self.options.start
        return range(begin, max(self.bins.stop, self.options.stop))


def columns_of(layout: RowLayout) -> list[ColumnEntries]:
    """The columns of a table, in the order of its samples."""
    columns, begin = list[ColumnEntries](), 0
    for place in layout.places:
        bins = range(begin, begin + (0 if place.score is None else BINS))
        options = range(bins.stop, bins.stop + len(place.choice))
        columns.append(ColumnEntries(place, bins, options))
        begin = options.stop
    return columns


@dataclass(frozen=True)
class Bins:
    """The bins of all columns, and the groups of classes, as tensors of sizes that never change.

    Attributes:
        edges: by entry, where its bin begins and ends, as the shares of rows with smaller values,
            float64 [entries, 2]; both are equal for an unused bin, and 0 for options.
        group: by entry of an option, the entry that it counts as, int64 [entries]; bins count as
            themselves.
        ends: by entry of an option, the cumulative share up to it among the options that count as
            one, float64 [entries]; 1 for bins.
        class_group: the group of each class, int64 [K], or [1] without classes.
    """

    edges: Tensor
    group: Tensor
    ends: Tensor
    class_group: Tensor

    @classmethod
    def of(cls, kind: TableKind, fineness: int, least: float) -> Self:
        """Makes bins from what all sites counted before training; every process makes the same.

        Args:
            fineness: the most bins of a column of numbers; each has about as many rows.
            least: options and classes with fewer rows than this count as one.
        """
        columns = columns_of(kind.layout)
        number = columns[-1].entries.stop
        edges = np.zeros((number, 2))
        group, ends = np.arange(number), np.ones(number)
        for column, spread in zip(columns, kind.encoding.spreads, strict=True):
            if column.bins:
                at = _edges(spread, fineness)
                edges[column.bins.start :][: len(at) - 1] = np.stack([at[:-1], at[1:]], 1)
            first = column.options.start + bool(column.bins)  # before it: "another value"
            counts = spread.options[len(column.options) - (column.options.stop - first) :]
            if column.options:
                joined, shares = _joined(counts, least)
                group[first : column.options.stop] = first + joined
                ends[first : column.options.stop] = shares
        classes = np.zeros(1, dtype=np.int64)
        if (counted := kind.class_counts) is not None:
            _, classes = np.unique(_joined(counted.double().numpy(), least)[0], return_inverse=True)
        arrays = (edges, group, ends, classes)
        return cls(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))

    @classmethod
    def coarsest(cls, layout: RowLayout, num_classes: int | None) -> Self:
        """One bin for each score, and each option and class by itself."""
        columns = columns_of(layout)
        number = columns[-1].entries.stop
        edges = torch.zeros(number, 2, dtype=torch.float64)
        edges[[column.bins.start for column in columns if column.bins], 1] = 1.0
        ends = torch.ones(number, dtype=torch.float64)
        return cls(edges, torch.arange(number), ends, torch.arange(num_classes or 1))

    @property
    def num_groups(self) -> int:
        """How many groups of classes there are; 1 without classes."""
        return int(self.class_group.max()) + 1

    def is_used(self, columns: list[ColumnEntries]) -> list[Tensor]:
        """By column, whether each entry is used, bool."""
        is_used = self.group == torch.arange(len(self.group), device=self.group.device)
        for column in columns:
            for entries in (column.bins, column.options[:1] if column.bins else range(0)):
                numbers = slice(entries.start, entries.stop)
                is_used[numbers] = self.edges[numbers, 1] > self.edges[numbers, 0]
        return list(torch.split(is_used, [len(column.entries) for column in columns]))

    def used(self, columns: list[ColumnEntries]) -> list[Tensor]:
        """By column, the numbers of its used entries, rising, int64; B in all."""
        parts = self.is_used(columns)
        begins = [column.entries.start for column in columns]
        return [b + part.nonzero().flatten() for b, part in zip(begins, parts, strict=True)]

    def entries_of(self, columns: list[ColumnEntries], samples: Tensor) -> Tensor:
        """The entry of each sample in each column, int64 [n, columns]; samples are [n, width]."""
        of_columns = list[Tensor]()
        for column in columns:
            place = column.place
            entry = torch.zeros(len(samples), dtype=torch.int64)
            if place.score is not None:
                edges = self.edges[column.bins.start : column.bins.stop]
                begins = edges[edges[:, 1] > edges[:, 0], 0]
                share = share_below(samples[:, place.score].double())
                entry = column.bins.start + torch.searchsorted(begins, share, right=True) - 1
                entry = entry.clamp(min=column.bins.start)
            if column.options:
                option = samples[:, place.choice.start : place.choice.stop].argmax(1)
                chosen = self.group[column.options.start + option]
                is_bin = (option == 0) & (place.score is not None)
                entry = torch.where(is_bin, entry, chosen)
            of_columns.append(entry)
        return torch.stack(of_columns, 1)


def _edges(spread: Spread, fineness: int) -> Floats:
    """The shares of rows at which bins begin and end, from 0 to 1; a bin has whole cells."""
    below = spread.below_cells
    wanted = np.arange(1, fineness) / fineness
    place = np.searchsorted(below, wanted).clip(1, len(below) - 1)
    closer = np.where(wanted - below[place - 1] < below[place] - wanted, place - 1, place)
    return np.unique(np.concatenate([[0.0], below[closer], [1.0]]))


def _joined(counts: Floats, least: float) -> tuple[Codes, Floats]:
    """By option, the option that it counts as, and the cumulative share up to it among these."""
    group, ends = np.arange(len(counts)), np.ones(len(counts))
    few = np.flatnonzero(counts < least)
    if len(few):
        group[few] = few[0]
        weights = np.maximum(counts[few], 0.0) + 1e-9
        ends[few] = np.cumsum(weights) / weights.sum()
        ends[few[-1]] = 1.0
    return group, ends
