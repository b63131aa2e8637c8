"""Makes rows that keep the rules of a schema, by an interval for each column's value in each row.

`Intervals` makes the columns that rules compare one after the other. In each row, the earlier
columns leave the next one an interval from a least to a greatest value. Its score says where in the
interval its value lies, by the share of all rows. If a rule puts a column on one side of an earlier
one, its *anchor*, then the difference of the two, at least 0, is counted and made instead.

No required column has an empty interval. Every rule says that one column is at least another plus a
constant, so all rules hold if every column has its least possible value, and also if every column
has its greatest (as in simple temporal networks, Dechter, Meiri and Pearl 1991). A column that may
be missing limits others only once it is made, and is missing where its interval is empty.
"""

from collections.abc import Callable
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from mdgan.samples.table.axis import DAY, Axis
from mdgan.samples.table.rules import BadRule, Computed, Floats, Rules
from mdgan.samples.table.schema import AnyColumn, NumberColumn, ScaledColumn, WholeColumn
from mdgan.samples.table.spread import Interval

_MONTH = 365.2425 / 12
_MONTHS_DIFFER = 4  # any n months in a row differ from n mean months by at most this many days


class _Link(NamedTuple):
    """The column `high` minus `low`, or their sum if `is_sum`, lies in [`least`, `most`]."""

    low: int
    high: int
    least: float = 0.0
    most: float = inf
    strict: bool = False  # `high` must exceed `low`
    is_sum: bool = False
    decimals: int | None = None  # sums and differences are rounded to as many


class Anchor(NamedTuple):
    """The column from which another column's values are counted as differences.

    Attributes:
        place: the index of the anchor in the schema.
        sign: 1 if the anchor is the lower of the two, else −1.
        unit: differences count positions in this unit, a day or 1.
        start: the anchor's position in rows where it is missing.
    """

    place: int
    sign: int
    unit: float
    start: float


class Intervals:
    """The order in which columns are made, and the interval of each in every row.

    Args:
        rules: the rules of a schema. Columns are named by their index there, their place.

    Attributes:
        counted: by place, the column of samples: the schema's, or the difference to its anchor;
            None for a column that is always computed from others.
        order: the places of the columns that have intervals, in the order in which they are made.
        bound: the places of all columns that rules compare or compute.
        kept: the places of computed columns that samples hold, too, since they may be missing.
        leaders: place → the earlier column that is missing in exactly the same rows.

    Raises:
        BadRule: no row within the bounds of the columns keeps all rules.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._bounds: dict[int, tuple[float, float]] = {}
        self._links: list[_Link] = []
        self._read_bounds()
        made = {rule.place: rule for rule in rules.computed}
        self.bound = {*self._bounds, *made}
        bound = sorted(self.bound - made.keys())
        self._required = [p for p in bound if not rules.columns[p].may_be_missing]
        self._refuse_contradiction()
        self._anchors: dict[int, Anchor] = {}
        self.order = self._order_columns(set(bound))
        optional = {p for p, column in enumerate(rules.columns) if column.may_be_missing}
        self.kept = [p for p, rule in made.items() if optional & {p, *rule.inputs}]
        self.counted: list[AnyColumn | None] = [
            None if place in made and place not in self.kept else self._counted_column(place)
            for place in range(len(rules.columns))
        ]
        self.leaders = self._find_leaders()

    # From rules to bounds and links.

    def _axis(self, place: int) -> Axis:
        axis = self.rules.axes[place]
        assert axis is not None
        return axis

    def _read_bounds(self) -> None:
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
        """Limits the columns that a column is computed from by the bounds of their result."""
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
        low, high = self._first_intervals(1)
        is_endless = self._narrow(low, high)
        for place, bounds in self._bounds.items():
            if low[place] > high[place] or bounds[0] > bounds[1] or is_endless:
                name = self.rules.columns[place].name
                raise BadRule(f"rules and bounds leave no value for {name}; widen its bounds")

    # The order of columns, and their anchors.

    def _order_columns(self, places: set[int]) -> list[int]:
        """Orders columns: required ones, those with a possible anchor, narrow bounds first."""
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
            if beside[place] and isinstance(column, ScaledColumn) and not column.exact_values:
                spans = [
                    (columns[anchor.place].may_be_missing, self._span(place, anchor), anchor)
                    for anchor in beside[place]
                ]
                self._anchors[place] = min(spans)[-1]
            order.append(place)
            waiting.remove(place)
        return order

    def _find_leaders(self) -> dict[int, int]:
        rest = [place for place in range(len(self.counted)) if place not in self.order]
        turn = {place: number for number, place in enumerate([*self.order, *rest])}
        pairs = {(rule.place, rule.other) for rule in self.rules.absences}
        mutual = sorted((p for p in pairs if p[::-1] in pairs), key=lambda p: turn[p[1]])
        leaders: dict[int, int] = {}
        for place, other in mutual:
            if turn[other] < turn[place]:
                leaders.setdefault(place, other)
        return leaders

    def _anchors_of(self, place: int, made: list[int]) -> list[Anchor]:
        """Finds the columns made so far that never lie above, or never below, a column."""
        axis, anchors = self._axis(place), list[Anchor]()
        for link in self._links:
            if link.is_sum or link.least < 0 or place not in link[:2]:
                continue
            sign = 1 if place == link.high else -1
            other = link.low if sign == 1 else link.high
            if other in made:
                unit = min(axis.unit, self._axis(other).unit)
                start = axis.low if sign == 1 else axis.high
                anchors.append(Anchor(other, sign, unit, start))
        return anchors

    def _span(self, place: int, anchor: Anchor) -> float:
        """The greatest difference of a column to its anchor, in units."""
        axis, other = self._axis(place), self._axis(anchor.place)
        if anchor.sign == 1:
            return (axis.high - min(other.low, axis.low)) / anchor.unit
        return (max(other.high, axis.high) - axis.low) / anchor.unit

    def _counted_column(self, place: int) -> AnyColumn:
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

    # Making rows.

    def make_columns(self, number: int, make: Callable[[int, Interval], Floats]) -> Floats:
        """Makes the columns that have intervals, one after the other.

        Args:
            number: the number of rows, n.
            make: takes a column's place and intervals, and returns its values, [n], or differences
                to its anchor; NaN for a missing one.

        Returns:
            Values as in `Rows`, [n, columns]; NaN in all other columns.
        """
        values = np.full((number, len(self.rules.columns)), np.nan)
        low, high = self._first_intervals(number)
        for place in self.order:
            axis = self._axis(place)
            self._narrow(low, high)
            if place not in self._required:
                low[place], high[place] = (np.full(number, b) for b in self._bounds[place])
                self._narrow_one(place, low, high)
            ends = [self._counted_values(place, edge[place], values) for edge in (low, high)]
            anchor = self._anchors.get(place)
            made = make(place, Interval(*(ends[::-1] if anchor and anchor.sign < 0 else ends)))
            if anchor is not None:
                made = self._anchor_positions(anchor, values) + made * anchor.sign * anchor.unit
            at = axis.nearest(axis.positions(made) if anchor is None else made)
            # Rounding may have left the interval by its last digits.
            at = np.minimum(np.maximum(at, low[place]), high[place])
            values[:, place] = axis.values(at)
            missing = np.isnan(at)
            low[place], high[place] = np.where(missing, -inf, at), np.where(missing, inf, at)
        return values

    def to_counted(self, values: Floats) -> Floats:
        """Replaces values as in `Rows`, [n, columns], by differences where columns have anchors."""
        counted = values.copy()
        for place in self._anchors:
            positions = self._axis(place).positions(values[:, place])
            decimals = getattr(self.counted[place], "decimals", 0)
            counted[:, place] = np.round(self._counted_values(place, positions, values), decimals)
        return counted

    def _counted_values(self, place: int, positions: Floats, values: Floats) -> Floats:
        """Turns positions of a column into values, or into differences if it has an anchor."""
        anchor = self._anchors.get(place)
        if anchor is None:
            return self._axis(place).values(positions)
        return (positions - self._anchor_positions(anchor, values)) / (anchor.sign * anchor.unit)

    def _anchor_positions(self, anchor: Anchor, values: Floats) -> Floats:
        """The anchor's position in each row, [n]."""
        positions = self._axis(anchor.place).positions(values[:, anchor.place])
        return np.where(np.isnan(positions), anchor.start, positions)

    def complete(self, values: Floats) -> None:
        """Empties what rules say is missing, and computes columns, [n, columns] in place."""
        self.rules.clear_missing(values)
        self.rules.fill_computed(values, kept=self.kept)
        self.rules.clear_missing(values)

    def _first_intervals(self, number: int) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """The low and high ends by place, [n], before any column is made."""
        ends = []
        for which, free in ((0, -inf), (1, inf)):
            bounds = {p: b[which] if p in self._required else free for p, b in self._bounds.items()}
            ends.append({place: np.full(number, bound) for place, bound in bounds.items()})
        return ends[0], ends[1]

    def _narrow(self, low: dict[int, Floats], high: dict[int, Floats]) -> bool:
        """Narrows the intervals of all required columns; returns whether they never settle."""
        for _ in range(len(self._required) + 1):
            changes = [self._narrow_one(place, low, high) for place in self._required]
            if not any(changes):
                return False
        return True

    def _narrow_one(self, place: int, low: dict[int, Floats], high: dict[int, Floats]) -> bool:
        """Narrows a column's intervals by those of linked columns; returns whether any changed."""
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
