"""Merges the schemas that several sites have drafted, for `mdgan schema merge`."""

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

_MERGED_KINDS = {
    frozenset({"whole", "number"}): "number",
    frozenset({"category", "yes_no"}): "category",
}
"""Two different kinds of a column that merge into one of them."""


def merge_schemas(paths: Sequence[Path]) -> tuple[Schema, list[str]]:
    """Merges the schemas of files; the columns of the first file come first.

    Returns:
        A schema that rows fit if they fit one of the files, and a line for each difference.

    Raises:
        BadInput: two of the schemas contradict each other.
    """
    drafts = [(str(path), of_schema.read_schema(path)) for path in paths]
    remarks: list[str] = []
    (_, merged) = reduce(lambda one, other: _merge_two(one, other, remarks), drafts)
    for problem in problems_of(merged):
        raise BadInput(" and ".join(map(str, paths)), f"do not go together: {problem}")
    return merged, remarks


def _merge_two(
    one: tuple[str, Schema], other: tuple[str, Schema], remarks: list[str]
) -> tuple[str, Schema]:
    (a, first), (b, second) = one, other
    both = f"{a} and {b}"
    if first.person != second.person:
        raise BadInput(
            both,
            f"{_shown(first.person)} is the person in one, {_shown(second.person)} in the other",
            "agree on it",
        )
    ignored = tuple(dict.fromkeys([*(first.ignore or ()), *(second.ignore or ())]))
    for name in ignored:
        if name in (*first.names, *second.names):
            reader, ignorer = (a, b) if name in first.names else (b, a)
            why = f"{ignorer} ignores it, and {reader} has it"
            raise BadInput(
                f"column {one_line(name)}", why, 'take it out of "ignore", or of "columns"'
            )
    by_name = {column.name: column for column in second.columns}
    columns = list[AnyColumn]()
    for column in first.columns:
        twin = by_name.pop(column.name, None)
        if twin is None:
            columns.append(_may_be_missing(column, a, remarks))
        else:
            columns.append(_join(a, column, b, twin, remarks))
    columns += [_may_be_missing(column, b, remarks) for column in by_name.values()]
    changes: dict[str, Any] = {"columns": tuple(columns), "ignore": ignored or UNSET}
    changes["about"] = "\n".join(dict.fromkeys(filter(None, [first.about, second.about])))
    if first.rows_are_independent != second.rows_are_independent:
        remarks.append('"rows_are_independent": not in both, so left out')
        changes["rows_are_independent"] = UNSET
    _check_agreed("", first, second, both=both, allowed={*changes})
    return f"{a}, {b}", replace(first, **changes)


def _may_be_missing(column: AnyColumn, file: str, remarks: list[str]) -> AnyColumn:
    """Lets a column be missing that only one file has."""
    if not column.may_be_missing:
        remarks.append(f"{column.name}: only in {file}, so it may be missing")
    return replace(column, may_be_missing=True)


def _join(a: str, one: AnyColumn, b: str, other: AnyColumn, remarks: list[str]) -> AnyColumn:
    """Merges the columns of one name in the files `a` and `b`, and remarks on what differs."""
    both, where = f"{a} and {b}", f"column {one_line(one.name)}"
    changes: dict[str, Any] = {"may_be_missing": one.may_be_missing or other.may_be_missing}
    if one.kind != other.kind:
        kind = _MERGED_KINDS.get(frozenset({one.kind, other.kind}))
        if kind is None:
            why = f"is {one.kind} in {a}, and {other.kind} in {b}"
            raise BadInput(where, why, "agree on one kind")
        remarks.append(f"{one.name}: {one.kind} in {a} and {other.kind} in {b}: {kind}")
        one, other = _as_kind(one, kind), _as_kind(other, kind)
    if one.missing != other.missing:
        changes["missing"] = _merge_codes(where, a, one, b, other)
    if isinstance(one, ScaledColumn) and isinstance(other, ScaledColumn):
        changes |= _merge_scales(one, other)
    if isinstance(one, CategoryColumn) and isinstance(other, CategoryColumn):
        changes["categories"] = _merge_categories(where, one, other, both)
        if UNSET in (one.other, other.other):
            changes["other"] = one.other or other.other
    _check_agreed(where, one, other, both=both, allowed={*changes})
    column = replace(one, **changes)
    remarks += _compare(a, one, b, other, column)
    for problem in problems_of(Schema(columns=(column,))):
        raise BadInput(f"{where}, {both}", f"do not go together: {problem.partition(': ')[2]}")
    return column


def _check_agreed(where: str, one: Any, other: Any, *, both: str, allowed: set[str]) -> None:
    """Refuses two schemas or columns that differ in a field that is not `allowed` to differ."""
    for name in one.__struct_fields__:
        first, second = getattr(one, name), getattr(other, name)
        if name not in allowed and first != second:
            why = f'"{name}" is {_shown(first)} in one, and {_shown(second)} in the other'
            raise BadInput(f"{where}, {both}".removeprefix(", "), why, "agree on one")


def _as_kind(column: AnyColumn, kind: str) -> AnyColumn:
    """Converts a column to a kind that takes all its values."""
    if column.kind == kind:
        return column
    fields = msgspec.to_builtins(column)
    if kind == "number":
        return msgspec.convert({**fields, "kind": kind, "decimals": 0}, NumberColumn)
    fields = {name: value for name, value in fields.items() if name not in ("no", "yes")}
    choices = getattr(column, "choices", ())
    return msgspec.convert({**fields, "kind": kind, "categories": choices}, CategoryColumn)


def _merge_codes(where: str, a: str, one: AnyColumn, b: str, other: AnyColumn) -> tuple[str, ...]:
    """Joins the missing codes of both columns; refuses a code that is a value in the other one."""
    for file, first, holder, second in ((a, one, b, other), (b, other, a, one)):
        for code in set(first.missing or ()) - set(second.missing or ()):
            try:
                if isinstance(second, ScaledColumn):
                    second.read(code)
                elif code not in second.choices:
                    continue
            except ValueError:
                continue
            why = f"{printable(code, 40)!r} is missing in {file}, and a value in {holder}"
            raise BadInput(where, why, "agree on one, or let a site map it")
    return tuple(dict.fromkeys([*(one.missing or ()), *(other.missing or ())]))


def _merge_scales(one: Scaled, other: Scaled) -> dict[str, Any]:
    """Widens bounds, decimals, common values and spacing so that they hold those of both."""
    changes: dict[str, Any] = {}
    key: Any = float if isinstance(one, NumericColumn) else datetime.fromisoformat
    changes["low"] = min(one.low, other.low, key=key)
    changes["high"] = max(one.high, other.high, key=key)
    common = [{*one.common}, {*other.common}]
    if isinstance(one, MomentColumn) and isinstance(other, MomentColumn):
        # Without a form a file may have any, unless day and month could be taken for each other.
        two_ways = {one.day_form, other.day_form} & TWO_WAYS
        units = {UNITS[one.day_form], UNITS[other.day_form]}
        if one.form != other.form and len(two_ways) < 2 and len(units) == 1:
            changes["form"] = two_ways.pop() if two_ways else UNSET
        widest = replace(one, **changes)  # values count from its `low`
        shifts = (widest.units_since_low(datetime.fromisoformat(each.low)) for each in (one, other))
        common = [{v + shift for v in each} for each, shift in zip(common, shifts, strict=True)]
    if isinstance(one, NumberColumn) and isinstance(other, NumberColumn):
        changes["decimals"] = max(one.decimals, other.decimals)
    for name in {"unit", "below", "above"} & {*one.__struct_fields__}:
        if UNSET in (both := (getattr(one, name), getattr(other, name))):
            changes[name] = both[0] if both[1] is UNSET else both[1]
    in_both = common[0] & common[1]
    most = sorted(common[0] | common[1], key=lambda v: (v not in in_both, abs(v), v))
    changes["common"] = tuple(sorted(most[: of_schema.MOST_COMMON]))
    changes["spacing"] = "log" if "log" in (one.spacing, other.spacing) else "linear"
    return changes


def _merge_categories(
    where: str, one: CategoryColumn, other: CategoryColumn, both: str
) -> tuple[str, ...]:
    """Joins the categories of both; refuses ordered ones whose orders differ."""
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


def _compare(a: str, one: AnyColumn, b: str, other: AnyColumn, merged: AnyColumn) -> Iterable[str]:
    """Yields a line for each field in which two columns differ, with its merged value."""
    for name in merged.__struct_fields__:
        first, second, result = (_shown(getattr(each, name)) for each in (one, other, merged))
        if name == "low":
            highs = (_shown(msgspec.to_builtins(each)["high"]) for each in (one, other, merged))
            first, second, result = map("{} to {}".format, (first, second, result), highs)
        if name != "high" and first != second:
            label = name if name != "low" else "bounds"
            yield f"{one.name}: {label} {first} in {a}, {second} in {b}: {result}"


def _shown(value: object) -> str:
    if value is UNSET:
        return "nothing"
    if isinstance(value, float):
        return f"{value:.12g}"
    return printable(", ".join(map(_shown, value)) if isinstance(value, tuple) else str(value), 100)
