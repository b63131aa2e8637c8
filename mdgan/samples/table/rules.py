"""Rules of a schema: conditions that the values of each row keep together.

A rule is a text in which a name stands for the column's value:

    birth <= visit <= death             also < > >=, and a value in place of a column
    dose missing if drug missing
    age = years(birth, visit)           also months and days, and days(birth, visit) // 365.25
    total = a + b                       also a - b, or a alone

or a table by which a column *follows* from another one: {"column": "grade", "from": "points",
"values": {"0": "low", "50": "high"}}. A table from categories names every category. In a table from
numbers, the greatest key that is not above a number decides. A missing value breaks no comparison
or computation.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import one_line
from mdgan.samples.table.axis import DAY, Axis
from mdgan.samples.table.numbers import parse_number
from mdgan.samples.table.schema import (
    AnyColumn,
    Follows,
    MomentColumn,
    NumericColumn,
    ScaledColumn,
    Schema,
    WholeColumn,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FORMS = (
    "write a <= b, a missing if b missing, a = years(b, c), months or days, a = b + c or a = b - c"
)
_MISSING = re.compile(r"(.+?) missing if (.+?) missing")
_BETWEEN = re.compile(r"\s*(<=|>=|<|>|=)\s*")
_PASSED = re.compile(r"(years|months|days)\s*\((.+),(.+)\)(?:\s*//\s*(\d+(?:\.\d+)?))?")
_TERMS = re.compile(r" ([+-]) ")


class BadRule(ValueError):
    """A rule cannot be read or kept. The message names the way out."""


class Side(NamedTuple):
    """One side of a comparison: a column by its place, or else a constant's position."""

    place: int | None
    value: float = 0.0


@dataclass(frozen=True)
class ColumnOrder:
    """The rule `low` ≤ `high`, or `low` < `high` if it is strict."""

    text: str
    low: Side
    high: Side
    strict: bool

    @property
    def places(self) -> list[int]:
        """The places of the columns that it compares, the higher one first."""
        return [side.place for side in (self.high, self.low) if side.place is not None]


@dataclass(frozen=True)
class Absence:
    """The column at `place` is missing in every row where the one at `other` is."""

    text: str
    place: int
    other: int


@dataclass(frozen=True)
class Computed:
    """A column whose values are computed from other columns.

    Attributes:
        how: `years`, `months`, `days`, `+`, `-`, `=` or `table`.
        length: the number of days by which `days` divides.
        keys, codes: of a `table`, the rising values of the input, and the result from each on.
    """

    text: str
    place: int
    inputs: tuple[int, ...]
    how: str
    length: float = 1.0
    keys: tuple[float, ...] = ()
    codes: tuple[float, ...] = ()


Rule = ColumnOrder | Absence | Computed


class Rules:
    """The rules of a schema, read and checked.

    Attributes:
        all: every rule; `a <= b <= c` is two of them.

        computed: the computed columns, each after those that it needs.

    Raises:
        BadRule: a rule cannot be read, or contradicts others.
    """

    def __init__(self, schema: Schema) -> None:
        self.columns: Sequence[AnyColumn] = schema.columns
        self._place = {name: place for place, name in enumerate(schema.names)}
        self.axes = [Axis(c) if isinstance(c, ScaledColumn) else None for c in schema.columns]
        self.all: list[Rule] = []
        for rule in schema.rules or ():
            text = rule if isinstance(rule, str) else f"{rule.column} from {rule.source}"
            try:
                self.all += self._read(rule) if isinstance(rule, str) else [self._read_table(rule)]
            except BadRule as why:
                raise BadRule(f"rule {one_line(text)!r}: {why}") from None
        self.comparisons = [rule for rule in self.all if isinstance(rule, ColumnOrder)]
        self.absences = [rule for rule in self.all if isinstance(rule, Absence)]
        self.computed = _in_order([rule for rule in self.all if isinstance(rule, Computed)], self)
        self._refuse_circles()
        self._refuse_compared()

    # Checking and computing rows. `values` are as in `Rows`, [n, columns].

    def broken(self, values: Floats) -> Iterator[tuple[Rule, Mask]]:
        """Yields each rule with the rows that break it, bool [n]."""
        for rule in self.all:
            if isinstance(rule, Absence):
                yield rule, np.isnan(values[:, rule.other]) & ~np.isnan(values[:, rule.place])
            elif isinstance(rule, ColumnOrder):
                low, high = (self._side_positions(side, values) for side in (rule.low, rule.high))
                yield rule, low >= high if rule.strict else low > high
            else:
                held, right = values[:, rule.place], self.value_of(rule, values)
                yield rule, (held != right) & ~np.isnan(held) & ~np.isnan(right)

    def name_of(self, rule: Rule) -> str:
        """The column that a message about a rule names."""
        place = rule.places[0] if isinstance(rule, ColumnOrder) else rule.place
        return self.columns[place].name

    def clear_missing(self, values: Floats) -> None:
        """Empties, in place, every value that a rule says is missing."""
        for _ in self.absences:
            for rule in self.absences:
                values[np.isnan(values[:, rule.other]), rule.place] = np.nan

    def fill_computed(self, values: Floats, *, kept: Sequence[int]) -> None:
        """Computes columns in place; those in `kept` stay missing where they are missing."""
        for rule in self.computed:
            results = self.value_of(rule, values)
            is_new = ~np.isnan(results)
            if rule.place in kept:
                is_new &= ~np.isnan(values[:, rule.place])
            values[is_new, rule.place] = results[is_new]

    def value_of(self, rule: Computed, values: Floats) -> Floats:
        """Computes a column by its rule, [n]; NaN where an input is missing."""
        if rule.how == "table":
            codes, inputs = np.array(rule.codes), values[:, rule.inputs[0]]
            at = np.searchsorted(rule.keys, inputs, side="right") - 1  # NaN sorts behind all keys
            return np.where(np.isnan(inputs), np.nan, codes[np.maximum(at, 0)])
        first, last = (self._side_positions(Side(rule.inputs[n]), values) for n in (0, -1))
        axis = self._axis(rule.place)
        if rule.how == "=":
            return axis.values(first)
        if rule.how in "+-":
            return axis.nearest(first + last if rule.how == "+" else first - last)
        if rule.how == "days":
            return np.asarray(np.floor((last - first) / (DAY * rule.length)))
        return np.asarray(np.floor(_months(first, last) / (12 if rule.how == "years" else 1)))

    def _side_positions(self, side: Side, values: Floats) -> Floats:
        if side.place is None:
            return np.full(len(values), side.value)
        return self._axis(side.place).positions(values[:, side.place])

    # Reading rules.

    def _read(self, text: str) -> list[Rule]:
        if match := _MISSING.fullmatch(text.strip()):
            return [self._absence(text, *map(self._column, match.groups()))]
        sides = _BETWEEN.split(text.strip())
        signs = sides[1::2]
        if signs == ["="]:
            return [self._computed(text, self._column(sides[0]), sides[2].strip())]
        if not signs or "=" in signs or not all(side.strip() for side in sides):
            raise BadRule(f"is none that is known; {_FORMS}")
        pairs = zip(sides[::2], signs, sides[2::2], strict=False)
        return [self._comparison(text, *pair) for pair in pairs]

    def _column(self, name: str) -> int:
        place = self._place.get(name.strip())
        if place is None:
            shown = ", ".join(list(self._place)[:20])
            raise BadRule(f"there is no column {one_line(name.strip())}; there are {shown}")
        return place

    def _absence(self, text: str, place: int, other: int) -> Absence:
        name, of_other = self.columns[place].name, self.columns[other].name
        if place == other:
            raise BadRule("names one column twice; name another one")
        if not self.columns[other].may_be_missing:
            raise BadRule(f'{of_other} is never missing; say "may_be_missing": true of it')
        if not self.columns[place].may_be_missing:
            raise BadRule(f'{name} must not be missing; say "may_be_missing": true of it')
        return Absence(text, place, other)

    def _comparison(self, text: str, left: str, sign: str, right: str) -> ColumnOrder:
        names = [left.strip(), right.strip()]
        known = [self._place[name] for name in names if name in self._place]
        if not known:
            self._column(names[0])
        if len(known) == 2 and known[0] == known[1]:
            raise BadRule("names one column twice; name another one")
        axes = [self._axis(place) for place in known]
        if len({axis.is_moment for axis in axes}) > 1:
            raise BadRule("a moment cannot be compared with a number; name two of one kind")
        sides = []
        for name in names:
            if name in self._place:
                sides.append(Side(self._place[name]))
                continue
            column = self.columns[known[0]]
            assert isinstance(column, ScaledColumn)
            try:
                sides.append(Side(None, float(axes[0].positions(np.array(column.read(name))))))
            except ValueError as error:
                why = f"{one_line(name)} is no column, and as a value of {column.name} it {error}"
                raise BadRule(f"{why}; name a column, or such a value") from None
        low, high = sides if sign[0] == "<" else sides[::-1]
        return ColumnOrder(text, low, high, strict=len(sign) == 1)

    def _axis(self, place: int) -> Axis:
        axis, column = self.axes[place], self.columns[place]
        if axis is None:
            raise BadRule(f"{column.name} is a {column.kind}; name a column of numbers or moments")
        return axis

    def _computed(self, text: str, place: int, formula: str) -> Computed:
        """Reads the right side of `column = formula`."""
        of = partial(Computed, text, place)
        if match := _PASSED.fullmatch(formula):
            how, first, last, length = match.groups()
            inputs = self._column(first), self._column(last)
            for each in inputs:
                if not isinstance(self.columns[each], MomentColumn):
                    raise BadRule(f"{self.columns[each].name} is no date; name a date or a time")
            if not isinstance(self.columns[place], WholeColumn):
                raise BadRule(f"{self.columns[place].name} must be of the kind whole")
            if length and (how != "days" or not 0 < float(length) < 10_000):
                raise BadRule("only days are divided, by 0 to 10,000; write days(a, b) // 365.25")
            return of(inputs, how, length=float(length or 1))
        signs = [(formula[: s.start()], s[1], formula[s.end() :]) for s in _TERMS.finditer(formula)]
        for left, sign, right in [(formula, "=", formula), *signs]:
            terms = left.strip(), right.strip()
            if set(terms) <= self._place.keys():
                places = self._place[terms[0]], self._place[terms[1]]
                axes = [self._axis(each) for each in (place, *places)]
                if len({(axis.is_moment, axis.unit) for axis in axes}) > 1:
                    raise BadRule("mixes kinds of columns; write days(a, b) between moments")
                if sign != "=" and axes[0].is_moment:
                    raise BadRule("adds moments; write days(a, b) for what is between two")
                if axes[1].decimals != axes[2].decimals or axes[0].decimals < axes[1].decimals:
                    raise BadRule("give its columns the same number of decimals")
                return of(places[: 1 if sign == "=" else 2], sign)
        raise BadRule(f"{one_line(formula)} is nothing that can be computed; {_FORMS}")

    def _read_table(self, rule: Follows) -> Computed:
        """Reads a table."""
        place, other = self._column(rule.column), self._column(rule.source)
        source = self.columns[other]
        table = {
            _value(source, str(key), is_edge=True): _value(self.columns[place], str(value))
            for key, value in rule.values.items()
        }
        keys = tuple(sorted(table))
        if not isinstance(source, ScaledColumn):
            lacking = [c for code, c in enumerate(source.choices) if code not in table]
            if lacking:
                raise BadRule(f"says nothing of {one_line(lacking[0])}; add it to its values")
        elif not keys or keys[0] > source.bounds[0]:
            raise BadRule(
                f"says nothing of {source.low}, the lowest value of {source.name}; add it"
            )
        text = f"{rule.column} follows from {rule.source}"
        codes = tuple(table[key] for key in keys)
        return Computed(text, place, (other,), "table", keys=keys, codes=codes)

    def _refuse_circles(self) -> None:
        """Refuses comparisons that put a column below itself, directly or through others."""
        above: dict[int, set[int]] = {}
        for rule in self.comparisons:
            if rule.low.place is not None and rule.high.place is not None:
                above.setdefault(rule.low.place, set()).add(rule.high.place)
        for start in above:
            reached, ahead = set[int](), set(above[start])
            while ahead:
                reached |= ahead
                ahead = {high for low in ahead for high in above.get(low, ())} - reached
            if start in reached:
                name = self.columns[start].name
                raise BadRule(f"rules compare {name} with itself in a circle; take one of them out")

    def _refuse_compared(self) -> None:
        """Refuses rules about computed columns, and a second rule about a term of a sum."""
        made = {rule.place for rule in self.computed}
        used = [(r.text, r.places, False) for r in self.comparisons if len(r.places) == 2]
        used += [(r.text, [*r.inputs], r.how == "+") for r in self.computed if r.how != "table"]
        every = [place for _, places, _ in used for place in places]
        for text, places, is_sum in used:
            for place in places:
                name, why = self.columns[place].name, ""
                if place in made:
                    why = f"{name} is computed itself; name the columns that it is computed from"
                elif is_sum and every.count(place) > 1:
                    why = f"{name} is part of a sum, and stands in another rule; take one out"
                if why:
                    raise BadRule(f"rule {one_line(text)!r}: {why}")


def broken_rules(rules: Rules, values: Floats) -> Iterator[tuple[int, str, str]]:
    """Yields, for each rule and each row that breaks it, the row, the column to blame, and why."""
    for rule, mask in rules.broken(values):
        why = f"breaks the rule {one_line(rule.text)!r}"
        for row in np.flatnonzero(mask).tolist():
            made = ""
            if isinstance(rule, Computed):
                value = float(rules.value_of(rule, values[row : row + 1])[0])
                made = f", which gives {text_of(rules.columns[rule.place], value)}"
            yield row, rules.name_of(rule), f"{why}{made}"


def _value(column: AnyColumn, text: str, *, is_edge: bool = False) -> float:
    """Reads a text of a table; a key (`is_edge`) of numbers may lie outside the bounds."""
    try:
        if is_edge and isinstance(column, NumericColumn):
            return parse_number(text)
        if isinstance(column, ScaledColumn):
            return column.read(text)
        return float(column.choices.index(text))
    except ValueError as error:
        why = str(error) if isinstance(column, ScaledColumn) else "is none of its categories"
        problem = f"{one_line(text)} {why}, in column {column.name}"
        raise BadRule(f"{problem}; write one of its values") from None


def text_of(column: AnyColumn, value: float) -> str:
    """Writes a value that is not missing."""
    return column.write(value) if isinstance(column, ScaledColumn) else column.choices[int(value)]


def _months(first: Floats, last: Floats) -> Floats:
    """Counts the whole months between moments in seconds since 1970; NaN where one is missing."""
    missing = np.isnan(first) | np.isnan(last)
    months, within = [], []
    for seconds in (first, last):
        moments = np.where(missing, 0, seconds).astype("datetime64[s]")
        month = moments.astype("datetime64[M]")
        months.append(month.astype(np.int64))
        within.append((moments - month).astype(np.int64))
    passed = months[1] - months[0] - (within[1] < within[0])
    return np.where(missing, np.nan, passed.astype(np.float64))


def _in_order(computed: list[Computed], rules: Rules) -> list[Computed]:
    """Sorts computed columns so that each stands after those that it needs."""
    by_place = {rule.place: rule for rule in computed}
    for rule in computed:
        name = rules.columns[rule.place].name
        if by_place[rule.place] is not rule:
            raise BadRule(f"rule {one_line(rule.text)!r}: {name} is computed twice; take one out")
    done: list[Computed] = []
    while waiting := [rule for rule in computed if rule not in done]:
        ready = [
            rule
            for rule in waiting
            if all(by_place[p] in done for p in rule.inputs if p in by_place)
        ]
        if not ready:
            name = rules.columns[waiting[0].place].name
            text = one_line(waiting[0].text)
            raise BadRule(f"rule {text!r}: {name} is computed from itself; take one rule out")
        done += ready
    return done
