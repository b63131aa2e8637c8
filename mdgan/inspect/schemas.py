"""Shows a schema, and tells which rows of a site do not fit it."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from mdgan.observe.text_table import text_table
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import Problem, read_rows
from mdgan.samples.table.schema import AnyColumn, NumberColumn, ScaledColumn, read_schema

_MOST_TOLD = 5  # problems of a column that are told one by one
_MOST_CHOICES = 8


@dataclass
class Misfits:
    """What of a site's files does not fit a schema: problems by column, and the first of each."""

    num_rows: int = 0
    by_column: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Problem]] = field(default_factory=dict)
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


def check_rows(schema_path: Path, path: Path, target: str | None = None) -> Misfits:
    """Reads a file, or all files of a folder, and keeps what does not fit.

    Args:
        target: a column that no row may lack.

    Raises:
        BadInput: the schema is none, has no such target, or a file cannot be read at all.
    """
    schema = read_schema(schema_path)
    TableKind(schema, target)  # refuses a target that cannot be one
    found = Misfits()
    found.num_rows = len(read_rows(path, schema, target, found.add))
    return found


def misfits_in_words(path: Path, found: Misfits) -> str:
    """What to repair, the columns with the most problems first; or that all rows fit."""
    if not found.by_column:
        return f"{path}: all {found.num_rows:,} rows fit"
    which = f"{found.num_misfits:,} of {found.num_rows:,} rows do not fit"
    lines = [f"{path}: {which if found.num_misfits else 'does not fit'}"]
    for name, count in found.by_column.most_common():
        lines += [f"  {problem}" for problem in found.first[name]]
        if count > _MOST_TOLD:
            lines.append(f"  … and {count - _MOST_TOLD:,} more in column {name}")
    return "\n".join(lines)


def schema_in_words(path: Path) -> str:
    """A table of a schema's columns, and the hash by which sites know that theirs are the same."""
    schema = read_schema(path)
    rows = [
        (c.name, c.kind, _values_of(c), "may be missing" if c.may_be_missing else "")
        for c in schema.columns
    ]
    if schema.person:
        rows.append((schema.person, "person", "whose row it is; not generated", ""))
    table = text_table(rows, ("column", "kind", "values", ""))
    about = [" ".join(schema.about.split()), ""] if schema.about.strip() else []
    return "\n".join([*about, table, "", f"sha256 {schema.sha256}"])


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
    if column.common:
        said.append(f"often {', '.join(map(column.write, column.common))}")
    if column.spacing == "log":
        said.append("long tail")
    return "; ".join(said)
