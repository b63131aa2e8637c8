"""Shows a schema, and tells which rows of a site do not fit it."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

from mdgan.errors import printable
from mdgan.observe.text_table import text_table
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import (
    AnyColumn,
    MomentColumn,
    NumberColumn,
    NumericColumn,
    ScaledColumn,
    read_schema,
)
from mdgan.samples.table.site_map import SiteMap, read_map
from mdgan.samples.table.texts import Problem, files_of, texts_of_file

_MOST_TOLD = 5  # problems of a column that are told one by one
_MOST_CHOICES = 8
_SCREEN, _LEAST_ROOM = (100, 40), 12
"""Width and height of a screen that does not say, and what cells of values have at least."""


@dataclass
class Misfits:
    """What of a site's files does not fit a schema: problems by column, and the first of each."""

    num_rows: int = 0
    by_column: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Problem]] = field(default_factory=dict)
    mapped: list[str] = field(default_factory=list)  # before and after, a line a mapped column
    _places: set[tuple[Path, int]] = field(default_factory=set)

    @property
    def num_misfits(self) -> int:
        """How many rows have a problem; a problem of a whole file counts as none."""
        return len(self._places)

    def add(self, problem: Problem) -> None:
        """Takes in a problem."""
        self.by_column[problem.column] += 1
        told = self.first.setdefault(problem.column, [])
        if len(told) < _MOST_TOLD:
            told.append(problem)
        if problem.row:
            self._places.add((problem.file, problem.row))


def check_rows(
    schema_path: Path, path: Path, target: str | None = None, map_path: Path | None = None
) -> Misfits:
    """Reads a file, or all files of a folder, and keeps what does not fit.

    Args:
        target: a column that no row may lack.
        map_path: the map of the files.

    Raises:
        BadInput: the schema is none, has no such target, or a file cannot be read at all.
    """
    schema = read_schema(schema_path)
    TableKind(schema, target)  # refuses a target that cannot be one
    site_map = None if map_path is None else read_map(map_path, schema)
    found = Misfits()
    read = read_rows(path, schema, target, on_problem=found.add, site_map=site_map)
    found.num_rows = len(read)
    if site_map is not None:
        found.mapped = list(_before_and_after(path, site_map, read))
    return found


def _before_and_after(path: Path, site_map: SiteMap, rows: Rows) -> Iterator[str]:
    """What a map makes of each column, and of the values that most rows have, a line each."""
    first = next(texts_of_file(files_of(path)[0]))
    for name, mapped in site_map.columns.items():
        said = ""
        if name in first.names and mapped.name in rows.schema.names:
            place = rows.schema.place(mapped.name)
            before = first.columns[first.names.index(name)]
            after = texts_of(rows.schema.columns[place], rows.values[: len(before), place])
            most = Counter(zip(before, after, strict=True)).most_common(_MOST_TOLD)
            shown = (f"{printable(one, 20)!r} → {printable(two, 20)!r}" for (one, two), _ in most)
            said = f": {', '.join(shown)}"
        yield f"{printable(name, 40)} → {mapped.name or 'not read'}{said}"


def misfits_in_words(path: Path, found: Misfits) -> str:
    """What to repair, the columns with the most problems first; or that all rows fit."""
    mapped = [f"  {line}" for line in found.mapped]
    if not found.by_column:
        fit = "its row fits" if found.num_rows == 1 else f"all {found.num_rows:,} rows fit"
        return "\n".join([f"{path}: {fit}", *mapped])
    which = f"{found.num_misfits:,} of {found.num_rows:,} rows do not fit"
    lines = [f"{path}: {which if found.num_misfits else 'does not fit'}", *mapped]
    for name, count in found.by_column.most_common():
        lines += [f"  {problem}" for problem in found.first[name]]
        if count > _MOST_TOLD:
            lines.append(f"  … and {count - _MOST_TOLD:,} more in column {name}")
    return "\n".join(lines)


def schema_in_words(path: Path, *, show_all: bool = False) -> str:
    """A table of a schema's columns, and the hash by which sites know that theirs are the same.

    Args:
        show_all: whether to show more than fits a screen.
    """
    schema = read_schema(path)
    width, height = shutil.get_terminal_size(_SCREEN)
    rows = [
        (c.name, c.kind, _values_of(c), "may be missing" if c.may_be_missing else "")
        for c in schema.columns
    ]
    if schema.person:
        rows.append((schema.person, "person", "whose row it is; not generated", ""))
    if show_all:
        table = text_table(rows, ("column", "kind", "values", ""))
    elif len(rows) > max(height, _SCREEN[1]):
        table = _by_kind(rows, width)
    else:
        rows = [(_cut(name, width // 3), kind, v, last) for name, kind, v, last in rows]
        taken = [max(len(row[n]) + 2 for row in (*rows, ("column",) * 4)) for n in (0, 1, 3)]
        room = max(width - sum(taken), _LEAST_ROOM)
        rows = [(name, kind, _cut(values, room), last) for name, kind, values, last in rows]
        table = text_table(rows, ("column", "kind", "values", ""))
    about = [" ".join(schema.about.split()), ""] if schema.about.strip() else []
    if schema.ignore:
        table += "\n" + _cut(
            f"not read: {', '.join(n or '(no name)' for n in schema.ignore)}",
            10_000 if show_all else width,
        )
    rules = ["", *(f"rule: {rule.text}" for rule in Rules(schema).all)] if schema.rules else []
    return "\n".join([*about, table, *rules, "", f"sha256 {schema.sha256}"])


def _by_kind(rows: Sequence[Sequence[str]], width: int) -> str:
    """The names of many columns, by kind."""
    names: dict[str, list[str]] = {}
    for name, kind, *_ in rows:
        names.setdefault(kind, []).append(_cut(name, width // 3))
    every = (f"{kind} ({len(each):,}): {', '.join(each)}" for kind, each in names.items())
    lines = [line for each in every for line in wrap(each, width, subsequent_indent="  ")]
    return "\n".join([*lines, f"{len(rows):,} columns; --all shows what may stand in each"])


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _values_of(column: AnyColumn) -> str:
    if not isinstance(column, ScaledColumn):
        if column.kind == "yes_no":
            return " / ".join(column.choices)
        shown = ", ".join(column.choices[:_MOST_CHOICES])
        more = len(column.choices) - _MOST_CHOICES
        return f"{shown} and {more:,} more" if more > 0 else shown
    said = [f"{column.low} to {column.high}"]
    if isinstance(column, NumberColumn):
        said = [f"{column.low:.12g} to {column.high:.12g}; {column.decimals} decimals"]
    if isinstance(column, MomentColumn) and column.form:
        said.append(f"written as {column.form}")
    if column.common:
        said.append(f"often {', '.join(map(column.write, column.common))}")
    if isinstance(column, NumericColumn):
        said += [f"unit {column.unit}"] * bool(column.unit) + list(column.ends.values())
    if column.spacing == "log":
        said.append("long tail")
    return "; ".join(said)
