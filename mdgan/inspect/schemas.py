"""Shows a schema, and finds the rows of a site that do not fit: `mdgan schema show` and `check`."""

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
from mdgan.spelling import count

_MOST_LISTED = 5  # problems of a column that the check lists one by one
_MOST_CHOICES = 8
_USUAL_SCREEN, _LEAST_WIDTH = (100, 40), 12
"""Columns and lines where no terminal says them, and the least width for a column's values."""


@dataclass
class Misfits:
    """The problems of a site's files with a schema."""

    num_rows: int = 0
    by_column: Counter[str] = field(default_factory=Counter)  # how many problems
    first: dict[str, list[Problem]] = field(default_factory=dict)  # the first five, by column
    mapped: list[str] = field(default_factory=list)  # before and after, a line a mapped column
    _places: set[tuple[Path, int]] = field(default_factory=set)  # files and rows with a problem

    @property
    def num_misfits(self) -> int:
        """How many rows have a problem; a problem of a whole file counts as none."""
        return len(self._places)

    def add_problem(self, problem: Problem) -> None:
        """Counts a problem, and keeps it if it is among the first of its column."""
        self.by_column[problem.column] += 1
        problems = self.first.setdefault(problem.column, [])
        if len(problems) < _MOST_LISTED:
            problems.append(problem)
        if problem.row:
            self._places.add((problem.file, problem.row))


def check_rows(
    schema_path: Path, path: Path, target: str | None = None, map_path: Path | None = None
) -> Misfits:
    """Reads a file, or all files of a folder, and collects the problems of their rows.

    Args:
        target: a column that no row may lack.
        map_path: the site's map for these files.

    Raises:
        BadInput: the schema or a file cannot be read, or the schema has no such target.
    """
    schema = read_schema(schema_path)
    TableKind(schema, target)  # refuses a target that cannot be one
    site_map = None if map_path is None else read_map(map_path, schema)
    misfits = Misfits()
    rows = read_rows(path, schema, target, on_problem=misfits.add_problem, site_map=site_map)
    misfits.num_rows = len(rows)
    if site_map is not None:
        misfits.mapped = list(_mapped_values(path, site_map, rows))
    return misfits


def _mapped_values(path: Path, site_map: SiteMap, rows: Rows) -> Iterator[str]:
    """Yields, for each column of a map, its most frequent values before and after the map."""
    first = next(texts_of_file(files_of(path)[0]))
    for name, mapped in site_map.columns.items():
        values = ""
        if name in first.names and mapped.name in rows.schema.names:
            place = rows.schema.place(mapped.name)
            before = first.columns[first.names.index(name)]
            after = texts_of(rows.schema.columns[place], rows.values[: len(before), place])
            most = Counter(zip(before, after, strict=True)).most_common(_MOST_LISTED)
            shown = (f"{printable(one, 20)!r} → {printable(two, 20)!r}" for (one, two), _ in most)
            values = f": {', '.join(shown)}"
        yield f"{printable(name, 40)} → {mapped.name or 'not read'}{values}"


def misfits_in_words(path: Path, misfits: Misfits) -> str:
    """Lists the problems, columns with the most first; or says that all rows fit."""
    mapped = [f"  {line}" for line in misfits.mapped]
    if not misfits.by_column:
        fit = "its row fits" if misfits.num_rows == 1 else f"all {misfits.num_rows:,} rows fit"
        return "\n".join([f"{path}: {fit}", *mapped])
    count_in_words = f"{misfits.num_misfits:,} of {misfits.num_rows:,} rows do not fit"
    lines = [f"{path}: {count_in_words if misfits.num_misfits else 'does not fit'}", *mapped]
    for name, num_rows in misfits.by_column.most_common():
        lines += [f"  {problem}" for problem in misfits.first[name]]
        if num_rows > _MOST_LISTED:
            lines.append(f"  … and {num_rows - _MOST_LISTED:,} more in column {name}")
    return "\n".join(lines)


def schema_in_words(path: Path, *, show_all: bool = False) -> str:
    """Writes a table of a schema's columns, cut to the screen unless `show_all`, and its hash."""
    schema = read_schema(path)
    width, height = shutil.get_terminal_size(_USUAL_SCREEN)
    rows = [
        (c.name, c.kind, _values_in_words(c), "may be missing" if c.may_be_missing else "")
        for c in schema.columns
    ]
    if schema.person:
        rows.append((schema.person, "person", "whose row it is; not generated", ""))
    if show_all:
        table = text_table(rows, ("column", "kind", "values", ""))
    elif len(rows) > max(height, _USUAL_SCREEN[1]):
        table = _names_by_kind(rows, width)
    else:
        rows = [(_shorten(name, width // 3), kind, v, note) for name, kind, v, note in rows]
        widths = [max(len(row[n]) + 2 for row in (*rows, ("column",) * 4)) for n in (0, 1, 3)]
        room = max(width - sum(widths), _LEAST_WIDTH)
        rows = [(name, kind, _shorten(values, room), note) for name, kind, values, note in rows]
        table = text_table(rows, ("column", "kind", "values", ""))
    about = [" ".join(schema.about.split()), ""] if schema.about.strip() else []
    if schema.ignore:
        table += "\n" + _shorten(
            f"not read: {', '.join(n or '(no name)' for n in schema.ignore)}",
            10_000 if show_all else width,
        )
    rules = ["", *(f"rule: {rule.text}" for rule in Rules(schema).all)] if schema.rules else []
    return "\n".join([*about, table, *rules, "", f"sha256 {schema.sha256}"])


def _names_by_kind(rows: Sequence[Sequence[str]], width: int) -> str:
    """Lists the names of many columns by kind, without their values."""
    names: dict[str, list[str]] = {}
    for name, kind, *_ in rows:
        names.setdefault(kind, []).append(_shorten(name, width // 3))
    every = (f"{kind} ({len(each):,}): {', '.join(each)}" for kind, each in names.items())
    lines = [line for each in every for line in wrap(each, width, subsequent_indent="  ")]
    return "\n".join([*lines, f"{len(rows):,} columns; --all shows what may stand in each"])


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _values_in_words(column: AnyColumn) -> str:
    if not isinstance(column, ScaledColumn):
        if column.kind == "yes_no":
            return " / ".join(column.choices)
        shown = ", ".join(column.choices[:_MOST_CHOICES])
        more = len(column.choices) - _MOST_CHOICES
        return f"{shown} and {more:,} more" if more > 0 else shown
    facts = [f"{column.low} to {column.high}"]
    if isinstance(column, NumberColumn):
        facts = [f"{column.low:.12g} to {column.high:.12g}; {count(column.decimals, 'decimal')}"]
    if isinstance(column, MomentColumn) and column.form:
        facts.append(f"written as {column.form}")
    if column.common:
        facts.append(f"often {', '.join(map(column.write, column.common))}")
    if isinstance(column, NumericColumn):
        facts += [f"unit {column.unit}"] * bool(column.unit) + list(column.ends.values())
    if column.spacing == "log":
        facts.append("long tail")
    return "; ".join(facts)
