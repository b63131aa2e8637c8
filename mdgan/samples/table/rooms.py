"""How rows are made that keep the rules of a schema: which values each column may have in a row.

Columns that rules compare are made one after the other. What the earlier ones are in a row leaves a
*room* for the next one, from a least to a greatest value, and its score says where in this room its
value lies, by the share of all rows. A column beside an earlier one, its *anchor*, is counted and
made as the difference of the two, which is at least 0.

Rooms are never empty: every rule says of two columns that one is at least the other plus so much.
If all columns have their least possible values, all such rules are kept, and the same is true with
the greatest ones (as in simple temporal networks, Dechter, Meiri and Pearl 1991). A column that may
be missing binds no other one until it is made, and is missing where it has no room.
"""

from collections.abc import Callable
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from mdgan.samples.table.axis import DAY, Axis
from mdgan.samples.table.rules import BadRule, Computed, Floats, Rules
from mdgan.samples.table.schema import AnyColumn, NumberColumn, ScaledColumn, WholeColumn
from mdgan.samples.table.spread import Room

_MONTH = 365.2425 / 12
_MONTHS_DIFFER = 4  # a number of months is at most so many days longer or shorter than its mean


class _Link(NamedTuple):
    """`high` is `least` to `most` above `low`; of a sum, both together are."""

    low: int
    high: int
    least: float = 0.0
    most: float = inf
    strict: bool = False
    is_sum: bool = False
    decimals: int | None = None  # of numbers that are added


class Anchor(NamedTuple):
    """A column is counted by its difference to another one.

    Attributes:
        sign: 1 if it is above the other, else −1.
        unit: of differences.
        start: what the other column counts as where it is missing.
    """

    place: int
    sign: int
    unit: float
    start: float


class Rooms:
    """The rooms of rows.

    Args:
        rules: of a schema.

    Attributes:
        counted: by place what stands for a column in samples; None for one that only follows.
        order: the places of columns that have rooms, in the order in which they are made.
        bound: the places of all columns that rules compare or compute.
        kept: columns that follow from others, but not in all rows.
        leaders: for columns that are missing where an earlier one is, and only there, that one.

    Raises:
        BadRule: the bounds of columns leave no row that keeps all rules.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._bounds: dict[int, tuple[float, float]] = {}
        self._links: list[_Link] = []
        self._bound_columns()
        made = {rule.place: rule for rule in rules.computed}
        self.bound = {*self._bounds, *made}
        bound = sorted(self.bound - made.keys())
        self._required = [p for p in bound if not rules.columns[p].may_be_missing]
        self._refuse_contradiction()
        self._anchors: dict[int, Anchor] = {}
        self.order = self._in_order(set(bound))
        optional = {p for p, column in enumerate(rules.columns) if column.may_be_missing}
        self.kept = [p for p, rule in made.items() if optional & {p, *rule.inputs}]
        self.counted: list[AnyColumn | None] = [
            None if place in made and place not in self.kept else self._counted(place)
            for place in range(len(rules.columns))
        ]
        self.leaders = self._leaders()

    # What the rules say.

    def _axis(self, place: int) -> Axis:
        axis = self.rules.axes[place]
        assert axis is not None
        return axis

    def _bound_columns(self) -> None:
        for comparison in self.rules.comparisons:
            low, high = comparison.low, comparison.high
            for place in comparison.places:
                self._bounds.setdefault(place, (self._axis(place).low, self._axis(place).high))
            if low.place is not None and high.place is not None:
                self._links.append(_Link(low.place, high.place, strict=comparison.strict))
            elif low.place is not None:
                most = self._axis(low.place).down(np.array(high.value), beyond=comparison.strict)
                self._narrow_bounds(low.place, -inf, float(most))
            elif high.place is not None:
                least = self._axis(high.place).up(np.array(low.value), beyond=comparison.strict)
                self._narrow_bounds(high.place, float(least), inf)
        for rule in self.rules.computed:
            if rule.how != "table":
                self._bound_inputs(rule)

    def _narrow_bounds(self, place: int, least: float, most: float) -> None:
        axis = self._axis(place)
        low, high = self._bounds.get(place, (axis.low, axis.high))
        low = max(low, float(axis.up(np.array(least))))
        self._bounds[place] = low, min(high, float(axis.down(np.array(most))))

    def _bound_inputs(self, rule: Computed) -> None:
        """What the bounds of a computed column say of those that it is computed from."""
        axis = self._axis(rule.place)
        low, high = self._bounds.get(rule.place, (axis.low, axis.high))
        for place in rule.inputs:
            self._narrow_bounds(place, -inf, inf)
        if rule.how == "=":
            self._narrow_bounds(rule.inputs[0], low, high)
            return
        first, last = rule.inputs
        if rule.how in "+-":
            places = (last, first) if rule.how == "-" else (first, last)
            is_sum = rule.how == "+"
            self._links.append(_Link(*places, low, high, is_sum=is_sum, decimals=axis.decimals))
            return
        length, differs = _LENGTHS[rule.how] * rule.length, 0 if rule.how == "days" else 1
        least = 0.0 if low == 0 else DAY * ceil(low * length + _MONTHS_DIFFER * differs)
        most = DAY * ((high + 1) * length - _MONTHS_DIFFER * differs) - 1
        self._links.append(_Link(first, last, least, most))

    def _refuse_contradiction(self) -> None:
        low, high = self._begin(1)
        is_endless = self._narrow(low, high)
        for place, bounds in self._bounds.items():
            if low[place] > high[place] or bounds[0] > bounds[1] or is_endless:
                name = self.rules.columns[place].name
                raise BadRule(f"rules and bounds leave no value for {name}; widen its bounds")

    # In which order columns are made, and as what.

    def _in_order(self, places: set[int]) -> list[int]:
        columns, order = self.rules.columns, list[int]()
        waiting = set(places)
        while waiting:
            beside = {place: self._anchors_of(place, order) for place in waiting}
            ranks = {}
            for place, (low, high) in self._bounds.items():
                if place in waiting:
                    is_apart = not beside[place]
                    ranks[place] = columns[place].may_be_missing, is_apart, high - low, place
            place = min(ranks, key=ranks.__getitem__)
            column = columns[place]
            if beside[place] and isinstance(column, ScaledColumn) and not column.exact:
                spans = [
                    (columns[anchor.place].may_be_missing, self._span(place, anchor), anchor)
                    for anchor in beside[place]
                ]
                self._anchors[place] = min(spans)[-1]
            order.append(place)
            waiting.remove(place)
        return order

    def _leaders(self) -> dict[int, int]:
        rest = [place for place in range(len(self.counted)) if place not in self.order]
        turn = {place: number for number, place in enumerate([*self.order, *rest])}
        pairs = {(rule.place, rule.other) for rule in self.rules.absences}
        mutual = sorted((p for p in pairs if p[::-1] in pairs), key=lambda p: turn[p[1]])
        found: dict[int, int] = {}
        for place, other in mutual:
            if turn[other] < turn[place]:
                found.setdefault(place, other)
        return found

    def _anchors_of(self, place: int, made: list[int]) -> list[Anchor]:
        """The columns that are made already and are always at one side of a column."""
        axis, found = self._axis(place), list[Anchor]()
        for link in self._links:
            if link.is_sum or link.least < 0 or place not in link[:2]:
                continue
            sign = 1 if place == link.high else -1
            other = link.low if sign == 1 else link.high
            if other in made:
                unit = min(axis.unit, self._axis(other).unit)
                start = axis.low if sign == 1 else axis.high
                found.append(Anchor(other, sign, unit, start))
        return found

    def _span(self, place: int, anchor: Anchor) -> float:
        """The greatest difference of two columns, in units."""
        axis, other = self._axis(place), self._axis(anchor.place)
        if anchor.sign == 1:
            return (axis.high - min(other.low, axis.low)) / anchor.unit
        return (max(other.high, axis.high) - axis.low) / anchor.unit

    def _counted(self, place: int) -> AnyColumn:
        column, anchor = self.rules.columns[place], self._anchors.get(place)
        if anchor is None:
            return column
        names = self.rules.columns[anchor.place].name, column.name
        name = " to ".join(names if anchor.sign == 1 else names[::-1])
        most, missing = self._span(place, anchor), column.may_be_missing
        decimals = max(self._axis(p).decimals for p in (place, anchor.place))
        if decimals:
            return NumberColumn(
                name=name, low=0.0, high=round(most, decimals), decimals=decimals,
                may_be_missing=missing, spacing="log",
            )  # fmt: skip
        return WholeColumn(
            name=name, low=0, high=round(most), may_be_missing=missing, spacing="log"
        )

    # Rows.

    def walk(self, number: int, make: Callable[[int, Room], Floats]) -> Floats:
        """Makes the columns that have rooms, one after the other.

        Args:
            number: of rows, n.
            make: gives the values of a column as they are counted, [n], NaN for a missing one.

        Returns:
            Values as in `Rows`, [n, columns]; NaN in all other columns.
        """
        values = np.full((number, len(self.rules.columns)), np.nan)
        low, high = self._begin(number)
        for place in self.order:
            axis = self._axis(place)
            self._narrow(low, high)
            if place not in self._required:
                low[place], high[place] = (np.full(number, b) for b in self._bounds[place])
                self._narrow_one(place, low, high)
            ends = [self._counts(place, edge[place], values) for edge in (low, high)]
            anchor = self._anchors.get(place)
            found = make(place, Room(*(ends[::-1] if anchor and anchor.sign < 0 else ends)))
            if anchor is not None:
                found = self._start(anchor, values) + found * anchor.sign * anchor.unit
            at = axis.nearest(axis.positions(found) if anchor is None else found)
            at = np.minimum(np.maximum(at, low[place]), high[place])  # but for the last digits
            values[:, place] = axis.values(at)
            missing = np.isnan(at)
            low[place], high[place] = np.where(missing, -inf, at), np.where(missing, inf, at)
        return values

    def counts_of(self, values: Floats) -> Floats:
        """Values as they are counted, [n, columns], from values as in `Rows`."""
        found = values.copy()
        for place in self._anchors:
            differences = self._counts(place, self._axis(place).positions(found[:, place]), values)
            decimals = getattr(self.counted[place], "decimals", 0)
            found[:, place] = np.round(differences, decimals)
        return found

    def _counts(self, place: int, positions: Floats, values: Floats) -> Floats:
        """Positions of a column as they are counted."""
        anchor = self._anchors.get(place)
        if anchor is None:
            return self._axis(place).values(positions)
        return (positions - self._start(anchor, values)) / (anchor.sign * anchor.unit)

    def _start(self, anchor: Anchor, values: Floats) -> Floats:
        """From where differences to a column are counted, [n]."""
        found = self._axis(anchor.place).positions(values[:, anchor.place])
        return np.where(np.isnan(found), anchor.start, found)

    def finish(self, values: Floats) -> None:
        """Takes out what must be missing, and computes the columns that follow from others."""
        self.rules.empty(values)
        self.rules.compute(values, kept=self.kept)
        self.rules.empty(values)

    def _begin(self, number: int) -> tuple[dict[int, Floats], dict[int, Floats]]:
        ends = []
        for which, free in ((0, -inf), (1, inf)):
            bounds = {p: b[which] if p in self._required else free for p, b in self._bounds.items()}
            ends.append({place: np.full(number, bound) for place, bound in bounds.items()})
        return ends[0], ends[1]

    def _narrow(self, low: dict[int, Floats], high: dict[int, Floats]) -> bool:
        """Narrows the room of all columns that must not be missing; whether it still changes."""
        for _ in range(len(self._required) + 1):
            changes = [self._narrow_one(place, low, high) for place in self._required]
            if not any(changes):
                return False
        return True

    def _narrow_one(self, place: int, low: dict[int, Floats], high: dict[int, Floats]) -> bool:
        """Narrows the room of a column by those of others; whether it changes."""
        axis, least, most = self._axis(place), low[place], high[place]
        for link in self._links:
            if place not in link[:2]:
                continue
            other = link.high if place == link.low else link.low
            begin, end = low[other], high[other]
            if link.is_sum:
                begin, end = link.least - end, link.most - begin
            elif place == link.high:
                begin, end = begin + link.least, end + link.most
            else:
                begin, end = begin - link.most, end - link.least
            if link.decimals is not None:
                begin, end = np.round(begin, link.decimals), np.round(end, link.decimals)
            is_low = link.strict and place == link.low
            least = np.maximum(least, axis.up(begin, beyond=link.strict and not is_low))
            most = np.minimum(most, axis.down(end, beyond=is_low))
        changed = bool((least != low[place]).any() or (most != high[place]).any())
        low[place], high[place] = least, most
        return changed


_LENGTHS = {"days": 1.0, "months": _MONTH, "years": 12 * _MONTH}
