"""Finds rules between columns that all rows of a site keep, though they would hardly by chance."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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

_MOST_COLUMNS = 60  # that are compared with each other
_MOST_VALUES = 200  # of a column that another one may follow from
_MOST_STEPS = 50
_MOST_OF_COLUMN = 3
_SEEN_ROWS = 2_000
_LEAST = 20  # rows that would break a rule if columns had nothing to do with each other
_PASSED = ("years({})", "days({}) // 365.25", "days({}) // 365", "months({})", "days({})")


def with_rules(path: Path, schema: Schema) -> Schema:
    """A schema that was drafted from a file, or a folder of files, with the rules it proposes."""
    finder = RuleFinder(schema)
    for file in files_of(path):
        for values in values_of_file(file, schema):
            finder.add(values)
    return finder.found()


def rules_in_words(schema: Schema) -> list[str]:
    """The rules of a schema, a line each."""
    return [f"{rule.text}" for rule in Rules(schema).all]


@dataclass
class _Group:
    """The rows in which a column has one value: their number, and between what others lie."""

    low: Floats
    high: Floats
    number: int = 0


@dataclass
class RuleFinder:
    """Takes in the rows of a site in pieces, and proposes rules."""

    schema: Schema
    num_rows: int = 0
    _groups: dict[int, dict[float, _Group]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = self.schema.columns[:_MOST_COLUMNS]
        size, self._rules = len(self._columns), Rules(self.schema)
        self._axes = self._rules.axes[:size]
        self._below = np.array([[self._alike(a, b) for b in range(size)] for a in range(size)])
        self._apart = np.zeros((size, size))  # rows in which a is missing and b is not
        self._present = np.zeros(size)
        self._seen = np.empty((0, size))
        self._groups = {place: {} for place in range(size)}
        self._passed = self._possible()

    def _alike(self, a: int, b: int) -> bool:
        """Whether two columns can be compared: they are moments, or numbers of one unit."""
        first, second = self._columns[a], self._columns[b]
        if a == b or not (isinstance(first, ScaledColumn) and isinstance(second, ScaledColumn)):
            return False
        is_moment = isinstance(first, MomentColumn)
        units = getattr(first, "unit", UNSET), getattr(second, "unit", UNSET)
        return is_moment == isinstance(second, MomentColumn) and units[0] == units[1]

    def _possible(self) -> list[Computed]:
        moments = [p for p, c in enumerate(self._columns) if isinstance(c, MomentColumn)]
        whole = [p for p, c in enumerate(self._columns) if isinstance(c, WholeColumn)]
        found = []
        for place, form, pair in product(whole, _PASSED, permutations(moments, 2)):
            names = ", ".join(self._columns[each].name for each in pair)
            text = f"{self._columns[place].name} = {form.format(names)}"
            try:
                found += Rules(replace(self.schema, rules=(text,))).computed
            except BadRule:  # such as names that no rule can have
                continue
        return found

    def add(self, values: Floats) -> None:
        """Takes in rows, [n, columns]."""
        size = len(self._columns)
        given = values[:, :size]
        missing = np.isnan(given)
        self.num_rows += len(given)
        self._present += (~missing).sum(0)
        self._apart += missing.T.astype(float) @ (~missing).astype(float)
        positions = given.copy()
        for place, axis in enumerate(self._axes):
            if axis is not None:
                positions[:, place] = axis.positions(given[:, place])
        if not len(self._seen):
            self._seen = positions[:: max(1, len(given) // _SEEN_ROWS)]
        for place in range(size):
            self._below[place] &= ~(positions[:, place, None] > positions).any(0)
            if place in self._groups:
                self._group(place, given)
        for rows in (values[:_SEEN_ROWS], values):  # most are found wrong at once
            self._passed = [rule for rule in self._passed if self._keep(rule, rows)]

    def _keep(self, rule: Computed, rows: Floats) -> bool:
        apart = self._rules.value_of(rule, rows) - rows[:, rule.place]
        return not np.nan_to_num(apart).any()

    def _group(self, place: int, given: Floats) -> None:
        rows = given[~np.isnan(given[:, place])]
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

    # What was found.

    def found(self) -> Schema:
        """The schema with the rules that all rows keep."""
        schema, of_column = self.schema, Counter[str]()
        made, sources = set[str](), set[str]()
        for rule in self._proposed():
            if isinstance(rule, Follows) and rule.column in made | sources:
                continue
            with_it = replace(schema, rules=(*(schema.rules or ()), rule))
            try:
                rules = Rules(with_it)
                Intervals(rules)
            except BadRule:  # such as a name that no rule can have, or another rule
                continue
            name = rules.name_of(rules.all[-1])
            of_column[name] += 1
            if of_column[name] > _MOST_OF_COLUMN:
                continue
            schema = with_it
            made |= {rules.columns[each.place].name for each in rules.computed}
            sources |= {rules.columns[p].name for each in rules.computed for p in each.inputs}
        return schema

    def _proposed(self) -> Iterator[str | Follows]:
        passed: dict[int, Computed] = {}
        for rule in self._passed:
            if (
                len(self._groups.get(rule.place, range(_LEAST))) >= 5
                and self.num_rows >= 5 * _LEAST
            ):
                passed.setdefault(rule.place, rule)
        yield from (rule.text for rule in passed.values())
        alike = self._below & self._below.T
        for first, second in np.argwhere(np.triu(alike)).tolist():
            if self._is_sure(first, second):
                yield f"{self._columns[second].name} = {self._columns[first].name}"
        for source, place in permutations(range(len(self._columns)), 2):
            if (table := self._table(source, place)) is not None:
                yield table
        yield from self._orders(set(passed))
        yield from self._absences()

    def _table(self, source: int, place: int) -> Follows | None:
        """By which table a column follows from another one; None if it does not."""
        groups, column, made = self._groups.get(place), self._columns[source], self._columns[place]
        if groups is None or isinstance(made, MomentColumn | NumberColumn):
            return None
        shares = np.array([group.number for group in groups.values()]) / max(1, self.num_rows)
        if self.num_rows * (1 - np.square(shares).sum()) < _LEAST:
            return None
        if isinstance(column, WholeColumn | NumberColumn):
            found = self._steps(source, column, groups)
        elif isinstance(column, MomentColumn):
            found = {}
        else:
            found = self._codes(source, column.choices, place=place)
        values: dict[str, str | int | float] = {k: text_of(made, v) for k, v in found.items()}
        return Follows(column=made.name, source=column.name, values=values) if values else None

    def _steps(
        self, source: int, column: WholeColumn | NumberColumn, groups: dict[float, _Group]
    ) -> dict[str, float]:
        """From which number on a column has each value; empty if its values mix."""
        ends = ((g.low[source], g.high[source], key) for key, g in groups.items())
        spans = sorted(each for each in ends if each[0] <= each[1])  # but where it is missing
        many = len(self._groups.get(source, range(_MOST_VALUES))) / 2
        is_apart = all(a[1] < b[0] for a, b in pairwise(spans))
        if not is_apart or not 1 < len(spans) <= min(_MOST_STEPS, many):
            return {}
        begins = [_round_between(a[1], b[0], column) for a, b in pairwise(spans)]
        keys = [float(column.low), *begins]
        if len({*keys}) < len(keys):  # the end of a scale lies below the bounds
            return {}
        return {column.write(k): value for k, (_, _, value) in zip(keys, spans, strict=True)}

    def _codes(self, source: int, choices: Sequence[str], place: int) -> dict[str, float]:
        """Which value each category has; empty if one has several."""
        groups = self._groups.get(source, {})
        found = {choices[int(key)]: (g.low[place], g.high[place]) for key, g in groups.items()}
        repeats = self.num_rows - len(groups)
        if repeats < 5 * _LEAST or len(found) < len(choices):
            return {}
        if any(low != high for low, high in found.values()):
            return {}
        return {name: float(low) for name, (low, _) in found.items()}

    def _orders(self, made: set[int]) -> Iterator[str]:
        kept = {
            (int(a), int(b))
            for a, b in np.argwhere(self._below)
            if not {a, b} & made and not self._below[b, a] and self._is_sure(a, b)
        }
        for a, b in sorted(kept):
            between = {c for c, other in kept if other == b and (a, c) in kept}
            if all(self._columns[c].may_be_missing for c in between):
                yield f"{self._columns[a].name} <= {self._columns[b].name}"

    def _is_sure(self, a: int, b: int) -> bool:
        """Whether enough rows would break the order if the columns were independent."""
        first, second = (self._seen[:, place] for place in (a, b))
        first, second = first[~np.isnan(first)], np.sort(second[~np.isnan(second)])
        if not len(first) or not len(second):
            return False
        above = np.searchsorted(second, first, side="left").mean() / len(second)
        both = self._present[a] - self._apart[b, a]
        return bool(both * above >= _LEAST)

    def _absences(self) -> Iterator[str]:
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
    """The number of the fewest digits above one and at most another, so that it tells of no row."""
    decimals = getattr(column, "decimals", 0)
    for digits in range(-15, decimals):
        found = np.floor(most * 10.0**digits) / 10.0**digits
        if found > above:
            return float(found)
    return float(most)
