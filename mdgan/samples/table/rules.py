"""Rules between the columns of a schema: what the values of one row have to do with each other.

A rule is a text, in which a name stands for the column's value:

    birth <= visit <= death             also < > >=, and a value in place of a column
    dose missing if drug missing
    age = years(birth, visit)           also months and days, and days(birth, visit) // 365.25
    total = a + b                       also a - b, or a alone

or says how a column *follows* from another one: {"column": "grade", "from": "points", "values":
{"0": "low", "50": "high"}}. Of categories each has a value; a number has that of the greatest key
which is not above it. Where a value is missing, a rule says nothing of it.
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
from mdgan.samples.table.numbers import number_of
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
    """Why a rule is none; says the way out."""


class Side(NamedTuple):
    """One side of a comparison: a column by its place, or where a value lies on its axis."""

    place: int | None
    value: float = 0.0


@dataclass(frozen=True)
class ColumnOrder:
    """`low` is at most `high`, or less if it is strict."""

    text: str
    low: Side
    high: Side
    strict: bool

    @property
    def places(self) -> list[int]:
        """Of its columns, those that it names last first."""
        return [side.place for side in (self.high, self.low) if side.place is not None]


@dataclass(frozen=True)
class Absence:
    """A column has no value where another one has none."""

    text: str
    place: int
    other: int


@dataclass(frozen=True)
class Computed:
    """The values of a column follow from those of others.

    Attributes:
        how: years, months, days, +, -, =, or `table`.
        length: of what `days` counts, in days.
        keys, codes: of a table the rising values of the input, and the value for each.
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
    """The rules of a schema, read.

    Attributes:
        computed: in an order in which each can be computed.

    Raises:
        BadRule: one of them is none, or contradicts others.
    """

    def __init__(self, schema: Schema) -> None:
        self.columns: Sequence[AnyColumn] = schema.columns
        self._place = {name: place for place, name in enumerate(schema.names)}
        self.axes = [Axis(c) if isinstance(c, ScaledColumn) else None for c in schema.columns]
        self.all: list[Rule] = []
        for rule in schema.rules or ():
            text = rule if isinstance(rule, str) else f"{rule.column} from {rule.source}"
            try:
                self.all += [self._follows(rule)] if isinstance(rule, Follows) else self._read(rule)
            except BadRule as why:
                raise BadRule(f"rule {one_line(text)!r}: {why}") from None
        self.comparisons = [rule for rule in self.all if isinstance(rule, ColumnOrder)]
        self.absences = [rule for rule in self.all if isinstance(rule, Absence)]
        self.computed = _in_order([rule for rule in self.all if isinstance(rule, Computed)], self)
        self._refuse_circles()
        self._refuse_compared()

    # What rows have to do with them.

    def broken(self, values: Floats) -> Iterator[tuple[Rule, Mask]]:
        """Which rows break each rule: values as in `Rows`, [n, columns]."""
        for rule in self.all:
            if isinstance(rule, Absence):
                yield rule, np.isnan(values[:, rule.other]) & ~np.isnan(values[:, rule.place])
            elif isinstance(rule, ColumnOrder):
                low, high = (self._of_side(side, values) for side in (rule.low, rule.high))
                yield rule, low >= high if rule.strict else low > high
            else:
                there, right = values[:, rule.place], self.value_of(rule, values)
                yield rule, (there != right) & ~np.isnan(there) & ~np.isnan(right)

    def name_of(self, rule: Rule) -> str:
        """The column that a message about a rule names."""
        place = rule.places[0] if isinstance(rule, ColumnOrder) else rule.place
        return self.columns[place].name

    def empty(self, values: Floats) -> None:
        """Takes out what must be missing."""
        for _ in self.absences:
            for rule in self.absences:
                values[np.isnan(values[:, rule.other]), rule.place] = np.nan

    def compute(self, values: Floats, *, kept: Sequence[int]) -> None:
        """Writes the columns that follow from others; those that are `kept` may be missing."""
        for rule in self.computed:
            found = self.value_of(rule, values)
            is_new = ~np.isnan(found)
            if rule.place in kept:
                is_new &= ~np.isnan(values[:, rule.place])
            values[is_new, rule.place] = found[is_new]

    def value_of(self, rule: Computed, values: Floats) -> Floats:
        """What a rule makes of its inputs, [n]; NaN where one is missing."""
        if rule.how == "table":
            codes, given = np.array(rule.codes), values[:, rule.inputs[0]]
            at = np.searchsorted(rule.keys, given, side="right") - 1  # NaN lies at the end
            return np.where(np.isnan(given), np.nan, codes[np.maximum(at, 0)])
        first, last = (self._of_side(Side(rule.inputs[n]), values) for n in (0, -1))
        axis = self._axis(rule.place)
        if rule.how == "=":
            return axis.values(first)
        if rule.how in "+-":
            return axis.nearest(first + last if rule.how == "+" else first - last)
        found = _months(first, last) / 12 if rule.how == "years" else _months(first, last)
        if rule.how == "days":
            found = (last - first) / (DAY * rule.length)
        return np.asarray(np.floor(found))

    def _of_side(self, side: Side, values: Floats) -> Floats:
        if side.place is None:
            return np.full(len(values), side.value)
        return self._axis(side.place).positions(values[:, side.place])

    # How they are read.

    def _read(self, text: str) -> list[Rule]:
        if found := _MISSING.fullmatch(text.strip()):
            return [self._absence(text, *map(self._column, found.groups()))]
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
            except ValueError as why:
                said = f"{one_line(name)} is no column, and as a value of {column.name} it {why}"
                raise BadRule(f"{said}; name a column, or such a value") from None
        low, high = sides if sign[0] == "<" else sides[::-1]
        return ColumnOrder(text, low, high, strict=len(sign) == 1)

    def _axis(self, place: int) -> Axis:
        axis, column = self.axes[place], self.columns[place]
        if axis is None:
            raise BadRule(f"{column.name} is a {column.kind}; name a column of numbers or moments")
        return axis

    def _computed(self, text: str, place: int, made: str) -> Computed:
        of = partial(Computed, text, place)
        if found := _PASSED.fullmatch(made):
            how, first, last, length = found.groups()
            inputs = self._column(first), self._column(last)
            for each in inputs:
                if not isinstance(self.columns[each], MomentColumn):
                    raise BadRule(f"{self.columns[each].name} is no date; name a date or a time")
            if not isinstance(self.columns[place], WholeColumn):
                raise BadRule(f"{self.columns[place].name} must be of the kind whole")
            if length and (how != "days" or not 0 < float(length) < 10_000):
                raise BadRule("only days are divided, by 0 to 10,000; write days(a, b) // 365.25")
            return of(inputs, how, length=float(length or 1))
        signs = [(made[: s.start()], s[1], made[s.end() :]) for s in _TERMS.finditer(made)]
        for left, sign, right in [(made, "=", made), *signs]:
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
        raise BadRule(f"{one_line(made)} is nothing that can be computed; {_FORMS}")

    def _follows(self, rule: Follows) -> Computed:
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
        """Refuses a column that is below itself, by way of others."""
        above: dict[int, set[int]] = {}
        for rule in self.comparisons:
            if rule.low.place is not None and rule.high.place is not None:
                above.setdefault(rule.low.place, set()).add(rule.high.place)
        for start in above:
            found, ahead = set[int](), set(above[start])
            while ahead:
                found |= ahead
                ahead = {high for low in ahead for high in above.get(low, ())} - found
            if start in found:
                name = self.columns[start].name
                raise BadRule(f"rules compare {name} with itself in a circle; take one of them out")

    def _refuse_compared(self) -> None:
        """Refuses rules of which one would have to be broken to keep another one."""
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
    """Of each rule that a row breaks the place of the row, the column to look at, and why."""
    for rule, mask in rules.broken(values):
        why = f"breaks the rule {one_line(rule.text)!r}"
        for row in np.flatnonzero(mask).tolist():
            made = ""
            if isinstance(rule, Computed):
                value = float(rules.value_of(rule, values[row : row + 1])[0])
                made = f", which gives {text_of(rules.columns[rule.place], value)}"
            yield row, rules.name_of(rule), f"{why}{made}"


def _value(column: AnyColumn, text: str, *, is_edge: bool = False) -> float:
    """The value of a text in a column; edges of numbers may lie beyond its bounds."""
    try:
        if is_edge and isinstance(column, NumericColumn):
            return number_of(text)
        if isinstance(column, ScaledColumn):
            return column.read(text)
        return float(column.choices.index(text))
    except ValueError as error:
        why = str(error) if isinstance(column, ScaledColumn) else "is none of its categories"
        said = f"{one_line(text)} {why}, in column {column.name}"
        raise BadRule(f"{said}; write one of its values") from None


def text_of(column: AnyColumn, value: float) -> str:
    """The text of a value that is there."""
    return column.write(value) if isinstance(column, ScaledColumn) else column.choices[int(value)]


def _months(first: Floats, last: Floats) -> Floats:
    """How many whole months lie between two moments in seconds since 1970."""
    missing = np.isnan(first) | np.isnan(last)
    months, within = [], []
    for seconds in (first, last):
        moments = np.where(missing, 0, seconds).astype("datetime64[s]")
        month = moments.astype("datetime64[M]")
        months.append(month.astype(np.int64))
        within.append((moments - month).astype(np.int64))
    found = months[1] - months[0] - (within[1] < within[0])
    return np.where(missing, np.nan, found.astype(np.float64))


def _in_order(computed: list[Computed], rules: Rules) -> list[Computed]:
    """Each after those that it needs."""
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
