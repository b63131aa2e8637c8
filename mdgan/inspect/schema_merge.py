"""Makes one schema of those that several sites have drafted, and says what it widens."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mdgan.errors import BadInput, one_line, printable
from mdgan.samples.table import schema as of_schema
from mdgan.samples.table.columns import NumericColumn, ScaledColumn
from mdgan.samples.table.moments import TWO_WAYS, UNITS
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    MomentColumn,
    NumberColumn,
    Scaled,
    Schema,
    problems_of,
)

_TOGETHER = {
    frozenset({"whole", "number"}): "number",
    frozenset({"category", "yes_no"}): "category",
}
"""Kinds of a column that become one of them."""


def merge(paths: Sequence[Path]) -> tuple[Schema, list[str]]:
    """Merges the schemas of files, in which the columns of the first come first.

    Returns:
        The schema that all files which fit one of them fit, and a line for each thing that differs.

    Raises:
        BadInput: two of them contradict each other.
    """
    drafts = [(str(path), of_schema.read_schema(path)) for path in paths]
    told: list[str] = []
    (_, merged) = reduce(lambda one, other: _merged(one, other, told), drafts)
    for problem in problems_of(merged):
        raise BadInput(" and ".join(map(str, paths)), f"do not go together: {problem}")
    return merged, told


def _merged(
    one: tuple[str, Schema], other: tuple[str, Schema], told: list[str]
) -> tuple[str, Schema]:
    (a, first), (b, second) = one, other
    both = f"{a} and {b}"
    if first.person != second.person:
        raise BadInput(
            both,
            f"{_said(first.person)} is the person in one, {_said(second.person)} in the other",
            "agree on it",
        )
    ignored = tuple(dict.fromkeys([*(first.ignore or ()), *(second.ignore or ())]))
    for name in ignored:
        if name in (*first.names, *second.names):
            holds, leaves = (a, b) if name in first.names else (b, a)
            why = f"{leaves} ignores it, and {holds} has it"
            raise BadInput(
                f"column {one_line(name)}", why, 'take it out of "ignore", or of "columns"'
            )
    by_name = {column.name: column for column in second.columns}
    columns = list[AnyColumn]()
    for column in first.columns:
        twin = by_name.pop(column.name, None)
        if twin is None:
            columns.append(_alone(column, a, told))
        else:
            columns.append(_of_both(a, column, b, twin, told))
    columns += [_alone(column, b, told) for column in by_name.values()]
    special: dict[str, Any] = {"columns": tuple(columns), "ignore": ignored or UNSET}
    special["about"] = "\n".join(dict.fromkeys(filter(None, [first.about, second.about])))
    if first.rows_are_independent != second.rows_are_independent:
        told.append('"rows_are_independent": not in both, so left out')
        special["rows_are_independent"] = UNSET
    _check_agreed("", first, second, both=both, but={*special})
    return f"{a}, {b}", replace(first, **special)


def _alone(column: AnyColumn, file: str, told: list[str]) -> AnyColumn:
    """A column of one file alone, which may be missing in the others."""
    if not column.may_be_missing:
        told.append(f"{column.name}: only in {file}, so it may be missing")
    return replace(column, may_be_missing=True)


def _of_both(a: str, one: AnyColumn, b: str, other: AnyColumn, told: list[str]) -> AnyColumn:
    both, where = f"{a} and {b}", f"column {one_line(one.name)}"
    changes: dict[str, Any] = {"may_be_missing": one.may_be_missing or other.may_be_missing}
    if one.kind != other.kind:
        kind = _TOGETHER.get(frozenset({one.kind, other.kind}))
        if kind is None:
            why = f"is {one.kind} in {a}, and {other.kind} in {b}"
            raise BadInput(where, why, "agree on one kind")
        told.append(f"{one.name}: {one.kind} in {a} and {other.kind} in {b}: {kind}")
        one, other = _as_kind(one, kind), _as_kind(other, kind)
    if one.missing != other.missing:
        changes["missing"] = _codes(where, a, one, b, other)
    if isinstance(one, ScaledColumn) and isinstance(other, ScaledColumn):
        changes |= _scaled(one, other)
    if isinstance(one, CategoryColumn) and isinstance(other, CategoryColumn):
        changes["categories"] = _categories(where, one, other, both)
        if UNSET in (one.other, other.other):
            changes["other"] = one.other or other.other
    _check_agreed(where, one, other, both=both, but={*changes})
    column = replace(one, **changes)
    told += _widened(a, one, b, other, column)
    for problem in problems_of(Schema(columns=(column,))):
        raise BadInput(f"{where}, {both}", f"do not go together: {problem.partition(': ')[2]}")
    return column


def _check_agreed(where: str, one: Any, other: Any, *, both: str, but: set[str]) -> None:
    """Refuses two that differ in something else than what can be widened."""
    for name in one.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if name not in but and here != there:
            why = f'"{name}" is {_said(here)} in one, and {_said(there)} in the other'
            raise BadInput(f"{where}, {both}".removeprefix(", "), why, "agree on one")


def _as_kind(column: AnyColumn, kind: str) -> AnyColumn:
    """A column as one of another kind that takes all its values."""
    if column.kind == kind:
        return column
    given = msgspec.to_builtins(column)
    if kind == "number":
        return msgspec.convert({**given, "kind": kind, "decimals": 0}, NumberColumn)
    given = {name: value for name, value in given.items() if name not in ("no", "yes")}
    choices = getattr(column, "choices", ())
    return msgspec.convert({**given, "kind": kind, "categories": choices}, CategoryColumn)


def _codes(where: str, a: str, one: AnyColumn, b: str, other: AnyColumn) -> tuple[str, ...]:
    """The missing codes of both; refuses one that is a value in the other."""
    for file, mine, holder, theirs in ((a, one, b, other), (b, other, a, one)):
        for code in set(mine.missing or ()) - set(theirs.missing or ()):
            try:
                if isinstance(theirs, ScaledColumn):
                    theirs.read(code)
                elif code not in theirs.choices:
                    continue
            except ValueError:
                continue
            why = f"{printable(code, 40)!r} is missing in {file}, and a value in {holder}"
            raise BadInput(where, why, "agree on one, or let a site map it")
    return tuple(dict.fromkeys([*(one.missing or ()), *(other.missing or ())]))


def _scaled(one: Scaled, other: Scaled) -> dict[str, Any]:
    """Bounds, decimals, common values and spacing that hold those of both."""
    changes: dict[str, Any] = {}
    key: Any = float if isinstance(one, NumericColumn) else datetime.fromisoformat
    changes["low"] = min(one.low, other.low, key=key)
    changes["high"] = max(one.high, other.high, key=key)
    common = [{*one.common}, {*other.common}]
    if isinstance(one, MomentColumn) and isinstance(other, MomentColumn):
        # A file has a form of its own, unless it may have the day or the month first.
        two_ways = {one.day_form, other.day_form} & TWO_WAYS
        if one.form != other.form and len(two_ways) < 2 and _unit_of(one) == _unit_of(other):
            changes["form"] = two_ways.pop() if two_ways else UNSET
        widest = replace(one, **changes)  # values count from its `low`
        shifts = (widest.units_since_low(datetime.fromisoformat(each.low)) for each in (one, other))
        common = [{v + shift for v in each} for each, shift in zip(common, shifts, strict=True)]
    if isinstance(one, NumberColumn) and isinstance(other, NumberColumn):
        changes["decimals"] = max(one.decimals, other.decimals)
    for name in {"unit", "below", "above"} & {*one.__struct_fields__}:
        if UNSET in (given := (getattr(one, name), getattr(other, name))):
            changes[name] = given[0] if given[1] is UNSET else given[1]
    in_both = common[0] & common[1]
    most = sorted(common[0] | common[1], key=lambda v: (v not in in_both, abs(v), v))
    changes["common"] = tuple(sorted(most[: of_schema.MOST_COMMON]))
    changes["spacing"] = "log" if "log" in (one.spacing, other.spacing) else "linear"
    return changes


def _unit_of(column: MomentColumn) -> str:
    return UNITS[column.day_form]


def _categories(
    where: str, one: CategoryColumn, other: CategoryColumn, both: str
) -> tuple[str, ...]:
    """The categories of both, those of the first one first."""
    if not one.is_ordered:
        return tuple(dict.fromkeys([*one.choices, *other.choices]))
    longer, shorter = sorted([one.choices, other.choices], key=len)[::-1]
    places = iter(longer)
    if all(each in places for each in shorter):
        return tuple(longer)
    shown = f"{' < '.join(one.choices)} in one, {' < '.join(other.choices)} in the other"
    raise BadInput(
        f"{where}, {both}", f"the order is {printable(shown, 200)}", "write the whole order in one"
    )


def _widened(a: str, one: AnyColumn, b: str, other: AnyColumn, merged: AnyColumn) -> Iterable[str]:
    """A line for each thing in which two columns differ."""
    for name in merged.__struct_fields__:
        here, there, now = (_said(getattr(each, name)) for each in (one, other, merged))
        if name == "low":
            highs = (_said(msgspec.to_builtins(each)["high"]) for each in (one, other, merged))
            here, there, now = map("{} to {}".format, (here, there, now), highs)
        if name != "high" and here != there:
            what = name if name != "low" else "bounds"
            yield f"{one.name}: {what} {here} in {a}, {there} in {b}: {now}"


def _said(value: object) -> str:
    if value is UNSET:
        return "nothing"
    if isinstance(value, float):
        return f"{value:.12g}"
    return printable(", ".join(map(_said, value)) if isinstance(value, tuple) else str(value), 100)
