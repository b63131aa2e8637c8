"""Rows of a table as a kind of sample, and the conditions by which users select them."""

import mmap
import re
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from mdgan.errors import BadInput, one_line
from mdgan.samples.contract import HeldOut, Judge, SampleKind, Shape, Where, Writer
from mdgan.samples.table.layout import Encoding, RowLayout
from mdgan.samples.table.numbers import parse_number
from mdgan.samples.table.rare import rare_shares
from mdgan.samples.table.rows import Rows, csv_of, frame_of, parquet_of
from mdgan.samples.table.schema import AnyColumn, NumberColumn, ScaledColumn, Schema, WholeColumn
from mdgan.samples.table.scores import RowsJudge
from mdgan.samples.table.spread import coarse_counts, count_column, num_counts, rounded_counts
from mdgan.samples.table.tree import CountTree
from mdgan.spelling import flag

_MOST_CLASSES = 50
_FLOAT_BYTES = 8
_CONDITION = re.compile(r"(.*?)(<=|>=|=)(.*)", re.DOTALL)
_MISSING = ""
_COMPARES: dict[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    "=": np.equal,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}


class TableKind(SampleKind):
    """Rows that fit a schema.

    Args:
        target: the column that is the label of rows and no part of samples; None for no labels.

    Attributes:
        class_names: the values of the target; empty without one.
        num_classes: K; None without a target.

    Raises:
        BadInput: the schema has no such column, or the column cannot be a label.
    """

    name: ClassVar[str] = "rows"
    judges: ClassVar[bool] = True

    def __init__(self, schema: Schema, target: str | None = None) -> None:
        self.schema = schema
        self.target = None if target is None else _place_of(schema, target)
        self.layout = RowLayout(schema, without=self.target)
        if self.layout.intervals is not None and self.target in self.layout.intervals.bound:
            way_out = "name a target that they do not bind, or take those out"
            raise BadInput(flag("target", target), "rules of the schema bind its values", way_out)
        if not self.layout.places:
            raise BadInput(flag("target", target), "the schema has no other column")
        target_column = None if self.target is None else schema.columns[self.target]
        self.class_names = _classes(target_column)
        self.num_classes = len(self.class_names) or None
        # The value of class 0.
        self._first = target_column.low if isinstance(target_column, WholeColumn) else 0
        width, scores = self.layout.width, set(self.layout.scores)
        self.shape: Shape = (width,)
        # All columns weigh alike, however many entries they have: the squared difference of two
        # random scores is 2/9 on average, and of two different choices 2.
        of_column = width / len(self.layout.places)
        self.value_weights = tuple(
            sqrt(of_column * (4.5 if n in scores else 0.5)) for n in range(width)
        )
        self._columns = [place.column for place in self.layout.places]
        self.num_counts = sum(map(num_counts, self._columns)) + len(self.class_names)
        self._tree = CountTree(self._columns, len(self.class_names))
        self.num_noisy_counts = self._tree.num_counts
        self.num_histograms = self._tree.num_histograms
        self.counts_meaning = f"{schema.sha256} {self.target} tree"
        self._encoding: Encoding | None = None
        # Processes that are forked later share this memory: when the host learns the counts from
        # the server, its slots know them, too.
        memory = mmap.mmap(-1, _FLOAT_BYTES * (1 + self.num_counts))
        self._shared = torch.frombuffer(memory, dtype=torch.float64)

    def labels_of(self, rows: Rows) -> Tensor:
        """The class of each row, int64 [n]; zeros without a target."""
        if self.target is None:
            return torch.zeros(len(rows), dtype=torch.int64)
        return torch.from_numpy(rows.values[:, self.target] - self._first).long()

    # The counts that all sites add up before training.

    @property
    def is_learnt(self) -> bool:
        return bool(self._shared[0])

    @property
    def learnt(self) -> Tensor:
        """The summed counts of all sites, float64 [num_counts]; zeros before `learn`."""
        return self._shared[1:]

    @property
    def encoding(self) -> Encoding:
        """The encoding by the summed counts; RuntimeError before `learn`."""
        if self._encoding is None:
            if not self.is_learnt:
                raise RuntimeError("rows cannot be encoded before their spread is learnt")
            of_columns = self.learnt[: self.num_counts - len(self.class_names)]
            self._encoding = Encoding(self.layout, of_columns)
        return self._encoding

    @property
    def meaning(self) -> str:
        return f"{self.counts_meaning} {self.encoding.digest}"

    def counts(self, rows: Rows) -> Tensor:
        """Counts rows for the sum of all sites, int64 [num_counts]."""
        values = self.layout.counted(rows.values)
        each = [count_column(p.column, values[:, p.index]) for p in self.layout.places]
        of_columns = torch.from_numpy(np.concatenate(each))
        if self.target is None:
            return of_columns
        classes = torch.bincount(self.labels_of(rows), minlength=len(self.class_names))
        return torch.cat([of_columns, classes])

    def noisy_form(self, counts: Tensor) -> Tensor:
        return self._tree.to_sums(counts)

    def from_noisy(self, sums: Tensor, variance: float) -> Tensor:
        return self._tree.to_counts(sums, variance)

    @property
    @override
    def class_counts(self) -> Tensor | None:
        if self.target is None or not self.is_learnt:
            return None
        return self.learnt[-len(self.class_names) :].clamp(min=0).round().long()

    def coarse(self, counts: Tensor) -> Tensor:
        sizes = [*map(num_counts, self._columns), len(self.class_names)]
        *parts, classes = (part.numpy() for part in torch.split(counts, sizes))
        coarse = map(coarse_counts, self._columns, parts)
        return torch.from_numpy(np.concatenate([*coarse, rounded_counts(classes)]))

    def learn(self, counts: Tensor) -> None:
        if tuple(counts.shape) != (self.num_counts,) or not bool(counts.isfinite().all()):
            raise ValueError(f"counts {list(counts.shape)} of a table with {self.num_counts}")
        if self.is_learnt and torch.equal(self.learnt, counts.double()):
            return
        self._shared[1:] = counts
        self._shared[0] = 1.0
        self._encoding = None

    @override
    def calibrate(self, generator: nn.Module) -> None:
        if self.is_learnt and (meet := getattr(generator, "meet", None)) is not None:
            meet(*rare_shares(self))

    # From rows to samples and back.

    def encode(self, rows: Rows) -> Tensor:
        """Encodes rows as samples, float32 [n, width]; RuntimeError before `learn`."""
        return self.encoding.encode(rows)

    def decode(self, samples: Tensor, labels: Tensor | None) -> Rows:
        """Decodes samples [n, width] and their classes, int64 [n]; RuntimeError before `learn`."""
        label = None if labels is None else labels.cpu().numpy().astype(np.float64) + self._first
        return Rows(self.schema, self.encoding.decode(samples, label))

    @override
    def in_python(self, samples: Tensor, labels: Tensor | None) -> Any:
        return frame_of(self.decode(samples, labels))

    @override
    def as_written(self, samples: Tensor) -> Tensor:
        return self.encode(self.decode(samples, None))

    def why_not(self, shape: Shape) -> str:
        return "" if shape == self.shape else f"rows of this schema have the shape {self.shape}"

    def columns(self) -> Mapping[str, str]:
        return {column.name: column.kind for column in self.schema.columns}

    def writers(self) -> Mapping[str, Writer]:
        """CSV or Parquet files of rows, or arrays of samples."""
        return {
            ".csv": lambda samples, labels: csv_of(self.decode(samples, labels)),
            ".parquet": lambda samples, labels: parquet_of(self.decode(samples, labels)),
            **super().writers(),
        }

    @override
    def where(self, conditions: Sequence[str]) -> Where:
        every = [RowCondition(self.schema, text) for text in conditions]
        named = [c for c in every if c.place == self.target and c.compare == "="]
        label = int(named[0].value - self._first) if named else None

        def keeps(samples: Tensor, labels: Tensor | None) -> Tensor:
            rows = self.decode(samples, labels)
            return torch.from_numpy(np.logical_and.reduce([c.holds(rows) for c in every]))

        spreads = zip(self.layout.places, self.encoding.spreads, strict=True)
        by_place = {
            place.index: spread.values_with_counts()
            for place, spread in spreads
            if place.column == self.schema.columns[place.index]  # else it counts differences
        }
        shares = []
        for condition in every:
            values, counts = by_place.get(condition.place, (np.empty(0), np.empty(0)))
            if number := float(counts[condition.mask(values)].sum()):
                shares.append(f"{condition.text} for {100 * number / counts.sum():.2g} %")
        return Where(label, keeps, f"of all sites' rows {', '.join(shares)}" if shares else "")

    def judge(self, held_out: HeldOut | None) -> Judge:
        return RowsJudge(self, held_out)


def _classes(column: AnyColumn | None) -> tuple[str, ...]:
    """Lists the values of a target as texts; empty without one."""
    if isinstance(column, WholeColumn):
        return tuple(map(str, range(column.low, column.high + 1)))
    assert not isinstance(column, ScaledColumn)
    return () if column is None else column.choices


def _place_of(schema: Schema, target: str) -> int:
    """Finds the index of the target; BadInput if it cannot be a label."""
    named, target = flag("target", target), normalize("NFC", target)
    if target not in schema.names:
        raise BadInput(named, "the schema has no such column", f"it has {', '.join(schema.names)}")
    place = schema.place(target)
    column = schema.columns[place]
    if column.may_be_missing:
        why = "the schema lets it be missing, and every row needs one"
        raise BadInput(named, why, 'say "may_be_missing": false')
    has_few = isinstance(column, WholeColumn) and column.high - column.low < _MOST_CLASSES
    if isinstance(column, ScaledColumn) and not has_few:
        way_out = f"name one of categories, or of at most {_MOST_CLASSES} whole numbers"
        raise BadInput(named, "a column of numbers with many values cannot be a target", way_out)
    return place


class RowCondition:
    """A condition by which a user selects rows, such as `sex=F` or `age>=65`.

    Args:
        text: a column's name, one of = <= >=, and a value, or nothing for a missing value. <= and
            >= are for numbers, dates, times and ordered categories.

    Raises:
        BadInput: the text is no condition, or the schema has no such column or value.
    """

    def __init__(self, schema: Schema, text: str) -> None:
        self.text = one_line(text)
        shown = f"--where {self.text}"
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise BadInput(shown, "must be COLUMN=VALUE, COLUMN<=VALUE or COLUMN>=VALUE")
        parts = (normalize("NFC", part.strip()) for part in match.groups())
        name, self.compare, value = parts
        if name not in schema.names:
            way_out = f"there are {', '.join(schema.names)}"
            raise BadInput(shown, f"there is no column {one_line(name)}", way_out)
        self.place = schema.place(name)
        column = schema.columns[self.place]
        try:
            self.value = _read(column, self.compare, value)
        except ValueError as error:
            raise BadInput(shown, f"{one_line(value)} {error}") from error

    def holds(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether it holds for each row, bool [n]."""
        return self.mask(rows.values[:, self.place])

    def mask(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether it holds for each value of its column, bool [n]."""
        if np.isnan(self.value):
            return np.isnan(values)
        return _COMPARES[self.compare](values, self.value)


def _read(column: AnyColumn, compare: str, text: str) -> float:
    """Reads the value of a condition; the ValueError says in words what is wrong with it."""
    if text == _MISSING:
        if compare != "=" or not column.may_be_missing:
            raise ValueError("is no value of this column")
        return float("nan")
    if isinstance(column, ScaledColumn):
        value = column.read(text)
        if (
            isinstance(column, NumberColumn)
            and value not in column.ends
            and parse_number(text.replace(column.decimal or ".", ".")) != value
        ):
            raise ValueError(f"has more decimals than the column, {column.decimals}")
        return value
    if text not in column.choices:
        raise ValueError(f"is none of {', '.join(column.choices[:20])}")
    if compare != "=" and not column.is_ordered:
        raise ValueError(f"has no order; write {column.name}={text}")
    return float(column.choices.index(text))
