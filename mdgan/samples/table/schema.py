"""The schema, a consortium's data dictionary: the columns of its tables and their possible values.

All sites agree on it before they train. It is one JSON file, and holds nothing secret.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import ClassVar
from unicodedata import is_normalized, normalize

import msgspec

from mdgan.errors import BadInput, one_line
from mdgan.samples.table import moments
from mdgan.samples.table.columns import Column
from mdgan.samples.table.columns import DateColumn as DateColumn
from mdgan.samples.table.columns import MomentColumn as MomentColumn
from mdgan.samples.table.columns import NumberColumn as NumberColumn
from mdgan.samples.table.columns import NumericColumn as NumericColumn
from mdgan.samples.table.columns import ScaledColumn as ScaledColumn
from mdgan.samples.table.columns import TimeColumn as TimeColumn
from mdgan.samples.table.columns import WholeColumn as WholeColumn
from mdgan.storage.csv_file import cell
from mdgan.storage.foreign_file import read_whole

MOST_COMMON = 20  # common values of a column at most
MOST_CATEGORIES = 10_000  # of a column
_MOST_BYTES = 4 << 20
_MOST_COLUMNS, _MOST_IGNORED, _MOST_DECIMALS = 2_000, 20_000, 12
LARGEST_WHOLE = 1 << 53  # above it float64 has no longer every whole number
_TOO_LARGE = f"has bounds beyond ±{LARGEST_WHOLE:,}, where digits are lost"


class YesNoColumn(Column, frozen=True, kw_only=True, tag="yes_no"):
    """One of two answers: `no` has code 0, `yes` has code 1."""

    is_ordered: ClassVar[bool] = False

    no: str = "no"
    yes: str = "yes"

    @property
    def choices(self) -> tuple[str, ...]:
        """The two answers, by code."""
        return self.no, self.yes


class CategoryColumn(Column, frozen=True, kw_only=True, tag="category"):
    """One of several categories, without an order."""

    is_ordered: ClassVar[bool] = False

    categories: tuple[str, ...]
    # The category that stands for every text that is none. Unset: such a text is refused.
    other: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def choices(self) -> tuple[str, ...]:
        """The categories, by code."""
        return self.categories


class OrderedColumn(CategoryColumn, frozen=True, kw_only=True, tag="ordered"):
    """One of several categories, from the lowest to the highest."""

    is_ordered: ClassVar[bool] = True


Scaled = NumberColumn | WholeColumn | DateColumn | TimeColumn
Chosen = YesNoColumn | CategoryColumn | OrderedColumn
AnyColumn = Scaled | Chosen


class Follows(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """A rule: the value of `column` follows from that of `source`, by a table of texts."""

    column: str
    source: str
    values: dict[str, str | int | float]


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table, in order."""

    columns: tuple[AnyColumn, ...]
    about: str = ""
    # A schema file without the fields below leaves them out, so its hash does not change.
    # The column of the files that names the person of each row. It is never generated. Differential
    # privacy protects all rows of a person together, and no two workers have rows of one person.
    person: str | msgspec.UnsetType = msgspec.UNSET
    # Whether equal rows are of different people. Otherwise differential privacy counts them as one.
    rows_are_independent: bool | msgspec.UnsetType = msgspec.UNSET
    # Conditions that the values of each row keep together; see `rules`.
    rules: tuple[str | Follows, ...] | msgspec.UnsetType = msgspec.UNSET
    # Columns of the files that mdgan does not read, such as names of patients.
    ignore: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def names(self) -> list[str]:
        """The names of all columns, in order."""
        return [column.name for column in self.columns]

    @property
    def sha256(self) -> str:
        """The hash of the content, the same for any layout of the file and for one from Python."""
        as_read = msgspec.json.decode(msgspec.json.encode(self), type=Schema)  # 1 becomes 1.0
        return hashlib.sha256(msgspec.json.encode(as_read, order="deterministic")).hexdigest()

    def place(self, name: str) -> int:
        """The index of a column; KeyError if there is none of that name."""
        if name not in self.names:
            raise KeyError(name)
        return self.names.index(name)


def schema_text(schema: Schema) -> str:
    """Writes a schema as the text of its file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def read_schema(path: Path) -> Schema:
    """Reads and checks a schema's file; BadInput if it cannot be read or holds a mistake."""
    try:
        content = read_whole(path, _MOST_BYTES)
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise BadInput(path, why, "mdgan schema draft makes one") from error
    try:
        schema = msgspec.json.decode(content, type=Schema)
        # Unicode has two ways to write é; NFC makes them equal. msgspec's JSON escapes neither.
        text = msgspec.json.encode(schema).decode()
        if not is_normalized("NFC", text):
            schema = msgspec.json.decode(normalize("NFC", text), type=Schema)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(path, f"is no schema ({one_line(error)})") from error
    for problem in problems_of(schema):
        raise BadInput(path, problem)
    return schema


def problems_of(schema: Schema) -> Iterator[str]:
    """Yields what is wrong with a schema, one line for each mistake."""
    if schema.person is not msgspec.UNSET:
        if schema.person in schema.names:
            shown = one_line(schema.person)
            yield f"person {shown}: is among the columns that are generated; leave it out there"
        if not schema.person.strip() or not schema.person.isprintable():
            yield f"person {schema.person!r:.40}: must be the name of a column"
        if schema.rows_are_independent:
            yield '"rows_are_independent": rows of a person are not; leave out that, or "person"'
    for name in schema.ignore or ():
        if name in schema.names or name == schema.person:
            yield f"ignore {one_line(name)}: is read, too; take it out here or there"
    if len(schema.ignore or ()) > _MOST_IGNORED:
        yield f"ignores {len(schema.ignore or ()):,} columns, at most {_MOST_IGNORED:,}"
    if not 0 < len(schema.columns) <= _MOST_COLUMNS:
        yield f"has {len(schema.columns)} columns, must have 1 to {_MOST_COLUMNS:,}"
    if alike := written_alike(schema.names):
        yield f"columns {one_line(alike)}: would be written alike as CSV; rename one"
    seen, is_sound = set[str](), True
    for column in schema.columns:
        shown = one_line(column.name)
        if not column.name.strip() or not column.name.isprintable():
            yield f"column {shown!r}: a name has printable characters"
        if column.name in seen:
            yield f"column {shown}: occurs twice"
        seen.add(column.name)
        problem = (
            _bounds_problem(column)
            if isinstance(column, ScaledColumn)
            else _choices_problem(column.choices)
        )
        if problem := problem or _codes_problem(column):
            is_sound = False
            yield f"column {shown}: {problem}"
    if schema.rules and is_sound:
        # These files import this one, so they can be imported only now.
        from mdgan.samples.table.intervals import Intervals
        from mdgan.samples.table.rules import BadRule, Rules

        try:
            Intervals(Rules(schema))
        except BadRule as why:
            yield str(why)


def _codes_problem(column: AnyColumn) -> str:
    """Finds a mistake in a column's codes of missing values, "other" category or ends."""
    if column.missing and not column.may_be_missing:
        return f'has missing codes ({column.missing[0]!r:.40}); say "may_be_missing": true, too'
    both = set(column.missing or ()) & set(getattr(column, "choices", ()))
    if both:
        return f"{min(both)!r:.40} cannot be a category and missing"
    if isinstance(column, CategoryColumn) and column.other is not msgspec.UNSET:
        if column.is_ordered:
            return "other: what is not known has no place in an order; leave it out"
        if column.other not in column.categories:
            return f"other {column.other!r:.40} is none of its categories; add it there"
    if not isinstance(column, NumericColumn):
        return ""
    try:
        ends = column.ends
    except ValueError as error:
        return str(error)
    low, high = column.bounds
    step = 10.0 ** -getattr(column, "decimals", 0)
    for value, text in ends.items():
        inside = column.rounded(value - step if text[0] == ">" or text[-1] == "+" else value + step)
        if low <= value <= high or (inside < high if value > high else inside > low):
            return f"its bounds, {low:.12g} to {high:.12g}, go beyond its end {text}"
    return ""


def _choices_problem(choices: tuple[str, ...]) -> str:
    """Finds a mistake in a column's categories."""
    if not 2 <= len(choices) <= MOST_CATEGORIES:
        return f"has {len(choices)} categories, must have 2 to {MOST_CATEGORIES:,}"
    if len(set(choices)) < len(choices):
        return f"names category {next(c for c in choices if choices.count(c) > 1)!r} twice"
    if alike := written_alike(choices):
        return f"categories {one_line(alike)}: would be written alike as CSV; rename one"
    strange = [c for c in choices if not c.isprintable() or c != c.strip() or not c]
    return f"category {strange[0]!r:.80}: is empty, or has spaces at an end" if strange else ""


def written_alike(texts: Sequence[str]) -> str:
    """Finds two texts that a CSV file of mdgan would write alike; empty if there are none."""
    others = set(texts)
    pairs = (f"{t} and {cell(t)}" for t in texts if cell(t) != t and cell(t) in others)
    return next(pairs, "")


def _bounds_problem(column: Scaled) -> str:
    """Finds a mistake in the form, bounds, decimals or common values of a column."""
    if isinstance(column, MomentColumn):
        unit = moments.UNITS.get(column.day_form)
        if unit is None or (unit != "day" and isinstance(column, TimeColumn)):
            return f"form {column.form!r:.40} is none of {', '.join(moments.UNITS)}"
    try:
        low, high = column.bounds
    except (ValueError, TypeError):  # TypeError: of two moments one has a time zone
        return f"low {column.low!r:.40} or high {column.high!r:.40} is no {column.kind}"
    except OverflowError:
        return _TOO_LARGE
    if isinstance(column, TimeColumn) and datetime.fromisoformat(column.low).tzinfo:
        return f"low {column.low} has a time zone; leave it out, here and in the files"
    if not (isfinite(low) and isfinite(high) and low < high):
        return f"low {column.low} must be below high {column.high}"
    if max(abs(low), abs(high)) > LARGEST_WHOLE:
        return _TOO_LARGE
    if isinstance(column, NumberColumn) and not 0 <= column.decimals <= _MOST_DECIMALS:
        return f"decimals {column.decimals} must be 0 to {_MOST_DECIMALS}"
    if isinstance(column, NumberColumn) and [*map(column.rounded, (low, high))] != [low, high]:
        return f"low {low:.12g} or high {high:.12g} has more than {column.decimals} decimals"
    if len(column.common) > MOST_COMMON:
        return f"has {len(column.common)} common values, at most {MOST_COMMON}"
    if list(column.common) != sorted(set(column.common)):
        return "its common values must rise"
    for value in column.common:
        if not low <= value <= high or column.rounded(value) != value:
            return f"common value {value} is outside its bounds, or has too many decimals"
    return ""
