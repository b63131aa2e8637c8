"""Finds rules that all rows of a site keep, and hardly by chance, for `mdgan schema draft`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from mdgan.samples.table.intervals import Intervals
from mdgan.samples.table.reading import values_of_file
from mdgan.samples.table.rules import BadRule, Computed, Floats, Rules, text_of
from mdgan.samples.table.schema import (
    Follows,
    MomentColumn,
    NumberColumn,
    ScaledColumn,
    Schema,
    WholeColumn,
)
from mdgan.samples.table.texts import files_of

_MOST_COLUMNS = 60  # mdgan looks for rules between the first 60 columns
_MOST_VALUES = 200  # a column of more values follows from no other
_MOST_STEPS = 50
_MOST_RULES_OF_COLUMN = 3
_SAMPLE_ROWS = 2_000
_LEAST = 20  # rows that would break a rule if its columns were independent
_AGE_FORMS = ("years({})", "days({}) // 365.25", "days({}) // 365", "months({})", "days({})")


def with_rules(path: Path, schema: Schema) -> Schema:
    """Adds the rules that all rows keep to the schema drafted from the file or folder `path`."""
    finder = RuleFinder(schema)
    for file in files_of(path):
        for values in values_of_file(file, schema):
            finder.add_rows(values)
    return finder.add_rules()


def rules_in_words(schema: Schema) -> list[str]:
    """Lists the rules of a schema, a line each."""
    return [f"{rule.text}" for rule in Rules(schema).all]


@dataclass
class _Group:
    """The rows in which a column has one value."""

    low: Floats  # the least value of each column in them, [columns]
    high: Floats  # and the largest
    number: int = 0


class RuleFinder:
    """Reads the rows of a site piece by piece, and then proposes rules."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.num_rows = schema, 0
        self._columns = schema.columns[:_MOST_COLUMNS]
        size, self._rules = len(self._columns), Rules(schema)
        self._axes = self._rules.axes[:size]
        # At [a, b], whether a rule a <= b is possible and no row has broken it.
        self._below = np.array([[self._comparable(a, b) for b in range(size)] for a in range(size)])
        self._apart = np.zeros((size, size))  # rows in which a is missing and b is not
        self._present = np.zeros(size)
        self._sample = np.empty((0, size))  # some rows of the first piece
        self._groups: dict[int, dict[float, _Group]] = {place: {} for place in range(size)}
        self._ages = self._possible_ages()

    def _comparable(self, a: int, b: int) -> bool:
        """Whether a <= b can be a rule: both are moments, or numbers of one unit."""
        first, second = self._columns[a], self._columns[b]
        if a == b or not (isinstance(first, ScaledColumn) and isinstance(second, ScaledColumn)):
            return False
        is_moment = isinstance(first, MomentColumn)
        units = getattr(first, "unit", UNSET), getattr(second, "unit", UNSET)
        return is_moment == isinstance(second, MomentColumn) and units[0] == units[1]

    def _possible_ages(self) -> list[Computed]:
        moments = [p for p, c in enumerate(self._columns) if isinstance(c, MomentColumn)]
        whole = [p for p, c in enumerate(self._columns) if isinstance(c, WholeColumn)]
        ages = []
        for place, form, pair in product(whole, _AGE_FORMS, permutations(moments, 2)):
            names = ", ".join(self._columns[each].name for each in pair)
            text = f"{self._columns[place].name} = {form.format(names)}"
            try:
                ages += Rules(replace(self.schema, rules=(text,))).computed
            except BadRule:  # such as names that no rule can have
                continue
        return ages

    def add_rows(self, values: Floats) -> None:
        """Reads a piece of rows, [n, columns], and drops the rules that one of them breaks."""
        size = len(self._columns)
        cells = values[:, :size]
        missing = np.isnan(cells)
        self.num_rows += len(cells)
        self._present += (~missing).sum(0)
        self._apart += missing.T.astype(float) @ (~missing).astype(float)
        positions = cells.copy()
        for place, axis in enumerate(self._axes):
            if axis is not None:
                positions[:, place] = axis.positions(cells[:, place])
        if not len(self._sample):
            self._sample = positions[:: max(1, len(cells) // _SAMPLE_ROWS)]
        for place in range(size):
            self._below[place] &= ~(positions[:, place, None] > positions).any(0)
            if place in self._groups:
                self._add_groups(place, cells)
        for rows in (values[:_SAMPLE_ROWS], values):  # a few rows break most rules
            self._ages = [
                rule
                for rule in self._ages
                if not np.nan_to_num(self._rules.value_of(rule, rows) - rows[:, rule.place]).any()
            ]

    def _add_groups(self, place: int, cells: Floats) -> None:
        rows = cells[~np.isnan(cells[:, place])]
        rows = rows[np.argsort(rows[:, place], kind="stable")]
        keys, starts, counts = np.unique(rows[:, place], return_index=True, return_counts=True)
        groups = self._groups[place]
        if len(groups.keys() | set(keys.tolist())) > _MOST_VALUES:
            del self._groups[place]
            return
        if not len(keys):
            return
        low = np.minimum.reduceat(np.where(np.isnan(rows), np.inf, rows), starts)
        high = np.maximum.reduceat(np.where(np.isnan(rows), -np.inf, rows), starts)
        for n, key in enumerate(keys.tolist()):
            group = groups.setdefault(key, _Group(low[n], high[n]))
            group.low, group.high = np.minimum(group.low, low[n]), np.maximum(group.high, high[n])
            group.number += int(counts[n])

    def add_rules(self) -> Schema:
        """Returns the schema with the rules that all rows keep and no other rule contradicts."""
        schema, num_by_column = self.schema, Counter[str]()
        made, sources = set[str](), set[str]()
        for rule in self._propose_rules():
            if isinstance(rule, Follows) and rule.column in made | sources:
                continue
            extended = replace(schema, rules=(*(schema.rules or ()), rule))
            try:
                rules = Rules(extended)
                Intervals(rules)
            except BadRule:  # such as a name that no rule can have, or another rule
                continue
            name = rules.name_of(rules.all[-1])
            num_by_column[name] += 1
            if num_by_column[name] > _MOST_RULES_OF_COLUMN:
                continue
            schema = extended
            made |= {rules.columns[each.place].name for each in rules.computed}
            sources |= {rules.columns[p].name for each in rules.computed for p in each.inputs}
        return schema

    def _propose_rules(self) -> Iterator[str | Follows]:
        passed: dict[int, Computed] = {}
        for rule in self._ages:
            if (
                len(self._groups.get(rule.place, range(_LEAST))) >= 5
                and self.num_rows >= 5 * _LEAST
            ):
                passed.setdefault(rule.place, rule)
        yield from (rule.text for rule in passed.values())
        alike = self._below & self._below.T
        for first, second in np.argwhere(np.triu(alike)).tolist():
            if self._chance_would_break(first, second):
                yield f"{self._columns[second].name} = {self._columns[first].name}"
        for source, place in permutations(range(len(self._columns)), 2):
            if (table := self._propose_table(source, place)) is not None:
                yield table
        yield from self._propose_orders(set(passed))
        yield from self._propose_absences()

    def _propose_table(self, source: int, place: int) -> Follows | None:
        """Makes the table by which a column follows from another one; None if there is none."""
        groups, column, made = self._groups.get(place), self._columns[source], self._columns[place]
        if groups is None or isinstance(made, MomentColumn | NumberColumn):
            return None
        shares = np.array([group.number for group in groups.values()]) / max(1, self.num_rows)
        if self.num_rows * (1 - np.square(shares).sum()) < _LEAST:
            return None
        if isinstance(column, WholeColumn | NumberColumn):
            table = self._table_of_steps(source, column, groups)
        elif isinstance(column, MomentColumn):
            table = {}
        else:
            table = self._table_of_codes(source, column.choices, place=place)
        values: dict[str, str | int | float] = {k: text_of(made, v) for k, v in table.items()}
        return Follows(column=made.name, source=column.name, values=values) if values else None

    def _table_of_steps(
        self, source: int, column: WholeColumn | NumberColumn, groups: dict[float, _Group]
    ) -> dict[str, float]:
        """The value of a column from each number of its source on; empty if the ranges overlap."""
        ends = ((g.low[source], g.high[source], key) for key, g in groups.items())
        spans = sorted(each for each in ends if each[0] <= each[1])  # the others lack the source
        many = len(self._groups.get(source, range(_MOST_VALUES))) / 2
        is_apart = all(a[1] < b[0] for a, b in pairwise(spans))
        if not is_apart or not 1 < len(spans) <= min(_MOST_STEPS, many):
            return {}
        begins = [_round_between(a[1], b[0], column) for a, b in pairwise(spans)]
        keys = [float(column.low), *begins]
        if len({*keys}) < len(keys):  # the end of a scale lies below the bounds
            return {}
        return {column.write(k): value for k, (_, _, value) in zip(keys, spans, strict=True)}

    def _table_of_codes(self, source: int, choices: Sequence[str], place: int) -> dict[str, float]:
        """The value of a column for each category of its source; empty if one has several."""
        groups = self._groups.get(source, {})
        ends = {choices[int(key)]: (g.low[place], g.high[place]) for key, g in groups.items()}
        repeats = self.num_rows - len(groups)
        has_several = any(low != high for low, high in ends.values())
        if repeats < 5 * _LEAST or len(ends) < len(choices) or has_several:
            return {}
        return {name: float(low) for name, (low, _) in ends.items()}

    def _propose_orders(self, made: set[int]) -> Iterator[str]:
        orders = {
            (int(a), int(b))
            for a, b in np.argwhere(self._below)
            if not {a, b} & made and not self._below[b, a] and self._chance_would_break(a, b)
        }
        for a, b in sorted(orders):
            between = {c for c, other in orders if other == b and (a, c) in orders}
            if all(self._columns[c].may_be_missing for c in between):
                yield f"{self._columns[a].name} <= {self._columns[b].name}"

    def _chance_would_break(self, a: int, b: int) -> bool:
        """Whether enough rows would break a <= b if the columns were independent."""
        first, second = (self._sample[:, place] for place in (a, b))
        first, second = first[~np.isnan(first)], np.sort(second[~np.isnan(second)])
        if not len(first) or not len(second):
            return False
        above = np.searchsorted(second, first, side="left").mean() / len(second)
        both = self._present[a] - self._apart[b, a]
        return bool(both * above >= _LEAST)

    def _propose_absences(self) -> Iterator[str]:
        lacking = self.num_rows - self._present
        by_chance = np.outer(self._present, lacking) / max(1, self.num_rows)
        follows = (self._apart.T == 0) & (by_chance >= _LEAST)
        np.fill_diagonal(follows, val=False)
        both = follows & follows.T
        first = [int(np.argmax(row)) if row[:n].any() else n for n, row in enumerate(both)]
        for place, other in np.argwhere(follows).tolist():
            names = self._columns[place].name, self._columns[other].name
            if both[place, other] and first[place] == other:  # all are missing with the first
                yield f"{names[0]} missing if {names[1]} missing"
                yield f"{names[1]} missing if {names[0]} missing"
            elif not both[place, other] and first[place] == place and first[other] == other:
                yield f"{names[0]} missing if {names[1]} missing"


def _round_between(above: float, most: float, column: WholeColumn | NumberColumn) -> float:
    """The number with the fewest digits in (above, most], so that it reveals no row's value."""
    decimals = getattr(column, "decimals", 0)
    for digits in range(-15, decimals):
        rounded = np.floor(most * 10.0**digits) / 10.0**digits
        if rounded > above:
            return float(rounded)
    return float(most)
