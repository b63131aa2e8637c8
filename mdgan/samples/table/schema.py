"""The data dictionary of a consortium: which columns its tables have, and what may stand in them.

All sites agree on it before they train, and all know it. It is one JSON file.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from math import isfinite
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from mdgan.errors import BadInput, one_line
from mdgan.storage.csv_file import cell
from mdgan.storage.foreign_file import read_whole

MOST_COMMON = 20  # common values of a column at most
MOST_CATEGORIES = 10_000  # of a column
_MOST_BYTES = 4 << 20
_MOST_COLUMNS, _MOST_DECIMALS = 2_000, 12
LARGEST_WHOLE = 1 << 53  # above it float64 has no longer every whole number
_TOO_LARGE = f"has bounds beyond ±{LARGEST_WHOLE:,}, where digits are lost"


def moment_of(text: str) -> datetime:
    """A date with or without a time: 2024-12-31T23:59, 31.12.2024 23:59 or 2024/12/31.

    Raises:
        ValueError: it is none of these. 1/2/2024 is none, since it may be of January or February.
    """
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = found.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{rest}"
    elif found := _SLASHES.fullmatch(text):
        text = "{}-{}-{}{}".format(*found.groups())
    return datetime.fromisoformat(text)


_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
_SLASHES = re.compile(r"(\d{4})/(\d\d)/(\d\d)(.*)")


def day_of(text: str) -> date:
    """A date, as `moment_of`; it may be written as the midnight at which it begins."""
    moment = moment_of(text)
    if moment.tzinfo is not None or moment.time() != time():
        raise ValueError("is no date")
    return moment.date()


class Column(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every column has; `is_ordered` if one value is less than another."""

    is_ordered: ClassVar[bool] = True

    name: str
    may_be_missing: bool = False

    @property
    def kind(self) -> str:
        """As a schema names it: `number`, `category`, …."""
        return str(self.__struct_config__.tag)


class ScaledColumn(Column, frozen=True, kw_only=True):
    """A column of numbers, within bounds.

    Each kind has `bounds`, its least and largest value, and `read`, which gives the value of a text
    or raises ValueError in words.
    """

    is_whole: ClassVar[bool] = True  # whether all values are whole numbers

    # Values that many rows share exactly, such as 0, in rising order.
    common: tuple[float, ...] = ()
    # How cells of the histogram that all sites add up are spaced: equally wide, or for long tails
    # equally wide in log(1 + 10⁴ (x − low) / (high − low)).
    spacing: Literal["linear", "log"] = "linear"

    def write(self, value: float) -> str:
        """The text of a value."""
        return str(int(value))

    def rounded(self, value: float) -> float:
        """The nearest value that the column may have, before bounds."""
        return float(round(value))


class NumberColumn(ScaledColumn, frozen=True, kw_only=True, tag="number"):
    """Numbers with so many decimals, from `low` to `high`."""

    is_whole: ClassVar[bool] = False

    low: float
    high: float
    decimals: int = 6

    @property
    def bounds(self) -> tuple[float, float]:
        """See `ScaledColumn`."""
        return self.low, self.high

    def read(self, text: str) -> float:
        """See `ScaledColumn`."""
        try:
            value = round(float(text), self.decimals)
        except ValueError:
            raise ValueError("is no number") from None
        return _within(value, self.bounds)

    def write(self, value: float) -> str:
        """With as many decimals as it needs, at most those of the column."""
        text = f"{value:.{self.decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text

    def rounded(self, value: float) -> float:
        return round(value, self.decimals)


class WholeColumn(ScaledColumn, frozen=True, kw_only=True, tag="whole"):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    @property
    def bounds(self) -> tuple[float, float]:
        """See `ScaledColumn`."""
        return float(self.low), float(self.high)

    def read(self, text: str) -> float:
        """See `ScaledColumn`."""
        try:
            value = float(text)
        except ValueError:
            raise ValueError("is no whole number") from None
        if not value.is_integer():
            raise ValueError("is no whole number")
        return _within(value, self.bounds)


class MomentColumn(ScaledColumn, frozen=True, kw_only=True):
    """Moments from `low` to `high`; values are how many days or seconds have passed since `low`."""

    _type: ClassVar[type[date]]
    _unit: ClassVar[timedelta]
    _form: ClassVar[str]

    low: str
    high: str

    @property
    def bounds(self) -> tuple[float, float]:
        """See `ScaledColumn`."""
        low, high = map(self._type.fromisoformat, (self.low, self.high))
        return 0.0, (high - low) / self._unit

    def read(self, text: str) -> float:
        """See `ScaledColumn`."""
        try:
            moment = moment_of(text) if self._type is datetime else day_of(text)
            passed = float((moment - self._type.fromisoformat(self.low)) // self._unit)
        except (ValueError, TypeError):  # no moment, or one with a time zone
            raise ValueError(f"is no {self._form}") from None
        return _within(passed, self.bounds, (self.low, self.high))

    def write(self, value: float) -> str:
        return (self._type.fromisoformat(self.low) + int(value) * self._unit).isoformat()


class DateColumn(MomentColumn, frozen=True, kw_only=True, tag="date"):
    """Days, as 2024-12-31."""

    _type, _unit, _form = date, timedelta(days=1), "date such as 2024-12-31"


class TimeColumn(MomentColumn, frozen=True, kw_only=True, tag="time"):
    """Dates with times of day, as 2024-12-31T23:59:59; values are in seconds."""

    _type, _unit = datetime, timedelta(seconds=1)
    _form = "moment such as 2024-12-31T23:59:59"


class YesNoColumn(Column, frozen=True, kw_only=True, tag="yes_no"):
    """One of two answers, no first in codes: `no` is 0, `yes` is 1."""

    is_ordered: ClassVar[bool] = False

    no: str = "no"
    yes: str = "yes"

    @property
    def choices(self) -> tuple[str, ...]:
        """By code."""
        return self.no, self.yes


class CategoryColumn(Column, frozen=True, kw_only=True, tag="category"):
    """One of several categories, without an order."""

    is_ordered: ClassVar[bool] = False

    categories: tuple[str, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """By code."""
        return self.categories


class OrderedColumn(CategoryColumn, frozen=True, kw_only=True, tag="ordered"):
    """One of several categories, from the lowest to the highest."""

    is_ordered: ClassVar[bool] = True


Scaled = NumberColumn | WholeColumn | DateColumn | TimeColumn
Chosen = YesNoColumn | CategoryColumn | OrderedColumn
AnyColumn = Scaled | Chosen


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table, in order."""

    columns: tuple[AnyColumn, ...]
    about: str = ""
    # Left out of the file where they are not set, so that the hashes of other schemas stay.
    # A column of the files that says whose row it is. It is never generated: it is the unit of
    # privacy, and no two workers have rows of one person. Unset: there is none.
    person: str | msgspec.UnsetType = msgspec.UNSET
    # Whether equal rows are of different people. Otherwise differential privacy counts them as one.
    rows_are_independent: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def names(self) -> list[str]:
        """Of all columns, in order."""
        return [column.name for column in self.columns]

    @property
    def sha256(self) -> str:
        """Of what it says, however the file is laid out, or made in Python."""
        as_read = msgspec.json.decode(msgspec.json.encode(self), type=Schema)  # 1 becomes 1.0
        return hashlib.sha256(msgspec.json.encode(as_read, order="deterministic")).hexdigest()

    def place(self, name: str) -> int:
        """The position of a column, or KeyError."""
        if name not in self.names:
            raise KeyError(name)
        return self.names.index(name)


def schema_text(schema: Schema) -> str:
    """The file of a schema."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def read_schema(path: Path) -> Schema:
    """Reads and checks a schema's file."""
    try:
        content = read_whole(path, _MOST_BYTES)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror}); mdgan schema draft makes one"
        ) from error
    try:
        schema = msgspec.json.decode(content, type=Schema)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"{path}: is no schema ({one_line(error)})") from error
    for problem in problems_of(schema):
        raise BadInput(f"{path}: {problem}")
    return schema


def problems_of(schema: Schema) -> Iterator[str]:
    """What is wrong with a schema, one line each."""
    if schema.person is not msgspec.UNSET:
        if schema.person in schema.names:
            shown = one_line(schema.person)
            yield f"person {shown}: is among the columns that are generated; leave it out there"
        if not schema.person.strip() or not schema.person.isprintable():
            yield f"person {schema.person!r:.40}: must be the name of a column"
        if schema.rows_are_independent:
            yield '"rows_are_independent": rows of a person are not; leave out that, or "person"'
    if not 0 < len(schema.columns) <= _MOST_COLUMNS:
        yield f"has {len(schema.columns)} columns, must have 1 to {_MOST_COLUMNS:,}"
    if alike := written_alike(schema.names):
        yield f"columns {one_line(alike)}: would be written alike as CSV; rename one"
    seen = set[str]()
    for column in schema.columns:
        shown = one_line(column.name)
        if not column.name.strip() or not column.name.isprintable():
            yield f"column {shown!r}: a name has printable characters"
        if column.name in seen:
            yield f"column {shown}: occurs twice"
        seen.add(column.name)
        problem = (
            _of_scaled(column) if isinstance(column, ScaledColumn) else _of_choices(column.choices)
        )
        if problem:
            yield f"column {shown}: {problem}"


def _of_choices(choices: tuple[str, ...]) -> str:
    if not 2 <= len(choices) <= MOST_CATEGORIES:
        return f"has {len(choices)} categories, must have 2 to {MOST_CATEGORIES:,}"
    if len(set(choices)) < len(choices):
        return f"names category {next(c for c in choices if choices.count(c) > 1)!r} twice"
    if alike := written_alike(choices):
        return f"categories {one_line(alike)}: would be written alike as CSV; rename one"
    strange = [c for c in choices if not c.isprintable() or c != c.strip() or not c]
    return f"category {strange[0]!r:.80}: is empty, or has spaces at an end" if strange else ""


def written_alike(texts: Sequence[str]) -> str:
    """Two texts of which one is how the other is written; empty if there are none."""
    others = set(texts)
    pairs = (f"{t} and {cell(t)}" for t in texts if cell(t) != t and cell(t) in others)
    return next(pairs, "")


def _of_scaled(column: Scaled) -> str:
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


def _within(
    value: float, bounds: tuple[float, float], shown: tuple[str, str] | None = None
) -> float:
    low, high = bounds
    if not low <= value <= high:  # NaN, too
        least, most = shown or (f"{low:.12g}", f"{high:.12g}")
        raise ValueError(f"is outside the schema's bounds, {least} to {most}")
    return value
