"""Reads CSV and Parquet files as columns of texts, in pieces of many rows, before any schema."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from mdgan.errors import BadInput, printable, warn_once
from mdgan.samples.table.rows import PARQUET_NEEDS
from mdgan.samples.table.schema import Schema
from mdgan.samples.table.signs import not_utf8
from mdgan.storage.budget import TooLarge, check_decoded
from mdgan.storage.foreign_file import LONGEST_LINE_BYTES, open_regular

_MOST_NAMES = 5

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", "?"})
"""Texts that stand for a missing value, unless one is a category of its column."""
SEPARATORS = ",;\t"
VALUE_BYTES = 24
"""Memory that one value takes while a table is read."""
_PIECE, _CELLS_OF_PIECE = 50_000, 1 << 21
_TEXT_COPIES = 4
_SNIFFED_BYTES = 1 << 16
_NUMBERED = re.compile(r"column_[1-9][0-9]*")


class Problem(NamedTuple):
    """A value that does not fit. Rows are numbered as editors show them; 0 is the whole file."""

    file: Path
    row: int
    column: str
    why: str

    def __str__(self) -> str:
        where = f", row {self.row}" if self.row else ""
        column = f", column {self.column}" if self.column else ""
        return f"{self.file}{where}{column}: {self.why}"


OnProblem = Callable[[Problem], None]


def refuse(problem: Problem) -> None:
    """Raises BadInput, which ends reading at the first problem."""
    more = "; mdgan schema check names all such rows" if problem.row and problem.column else ""
    raise BadInput(f"{problem}{more}")


def files_of(path: Path) -> list[Path]:
    """Lists the file at a path, or a folder's files by name; BadInput if none has rows."""
    if path.is_dir():
        files = sorted(
            file
            for file in path.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
        )
        if not files:
            raise BadInput(path, f"no file of rows in it ({' '.join(SUFFIXES)})")
        return files
    if not path.is_file():
        raise BadInput(path, "no such file", "give a CSV or Parquet file, or a folder of them")
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(path, f"must end in {', '.join(SUFFIXES)}")
    return [path]


class Texts(NamedTuple):
    """Rows as texts, column by column.

    Attributes:
        lines: the line of the file in which each row begins.
        commas: whether the file may write decimal commas, since commas do not separate columns.
        num_blank: how many rows with nothing but separators were skipped so far.
        typed: the columns whose type in Parquet is not text, so that points mark decimals.
    """

    names: list[str]
    lines: Sequence[int]
    columns: Sequence[Sequence[str]]
    commas: bool
    num_blank: int = 0
    typed: frozenset[str] = frozenset()

    def column(self, name: str) -> Sequence[str]:
        """The texts of a column; empty ones if the file lacks it."""
        if name not in self.names:
            return [""] * len(self.lines)
        return self.columns[self.names.index(name)]

    def line_in(self, name: str) -> Callable[[str], int]:
        """Returns a function that finds the line in which a column first has a text."""
        column = self.column(name)
        return lambda text: self.lines[column.index(text)]


def shown(text: str) -> str:
    """Makes a text of a file printable and short, for messages."""
    return printable(text, 40)


def check_header(path: Path, names: Sequence[str], schema: Schema, on_problem: OnProblem) -> None:
    """Reports which names of a header do not fit a schema; BadInput if none is in it."""
    if not set(names) & set(schema.names):
        first = ", ".join(map(shown, names[:_MOST_NAMES]))
        why = f"its first line, {first}, names no column of the schema "
        why += f"({', '.join(schema.names[:_MOST_NAMES])}, …)"
        way_out = "write these names there, or give a map of them (mdgan schema map)"
        raise BadInput(path, why, way_out)
    known = set(schema.names)
    for name, times in Counter(names).items():
        if times > 1:
            on_problem(Problem(path, 0, shown(name), why="occurs twice in the header"))
        if name not in known and name != schema.person:
            why = 'is not in the schema; leave it out, add it there, or to its "ignore"'
            on_problem(Problem(path, 0, shown(name), why=why))
    if schema.person and schema.person not in names:
        why = "is missing, and the schema names it as the person whose rows these are; add it"
        on_problem(Problem(path, 0, schema.person, why=why))
    for column in schema.columns:
        if column.name not in names and not column.may_be_missing:
            why = "is missing, and the schema does not let it be; add it, or agree on "
            why += '"may_be_missing": true'
            on_problem(Problem(path, 0, column.name, why=why))


def warn_of_strays(path: Path, strays_of: Mapping[str, Counter[str]]) -> None:
    """Warns how many rows of a file count as the "other" category of each column."""
    for name, strays in strays_of.items():
        if (number := strays.total()) == 0:
            continue
        first = ", ".join(repr(shown(text)) for text in [*strays][:3])
        which = "a category" if len(strays) == 1 else f"{len(strays):,} categories"
        warn_once(
            f"{path}, column {shown(name)}: {number:,} row{' has' if number == 1 else 's have'} "
            f"{which} that the schema has not ({first}{', …' if len(strays) > 3 else ''}), which "
            'count as its "other"'
        )


def blank_rows(path: Path, number: int) -> str:
    """The warning about rows that were skipped."""
    return f"{path}: {number:,} empty row{'s are' if number > 1 else ' is'} skipped"


def are_default_names(names: Iterable[str]) -> bool:
    """Whether columns are named as mdgan names those of a file without a header: column_1, …."""
    return all(map(_NUMBERED.fullmatch, names))


def texts_of_file(path: Path, *, no_header: bool = False) -> Iterator[Texts]:
    """Yields the texts of a file, in pieces of many rows.

    Args:
        no_header: whether the first line has values, not names. The columns are then column_1 and
            so on. A first line with just these names is a header all the same.

    Raises:
        BadInput: the file is not UTF-8, is empty, or has rows of another length than its header.
    """
    if path.suffix.lower() == ".parquet":
        yield from _texts_of_parquet(path)
        return
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            yield from _texts_of_csv(path, file, no_header=no_header)
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})") from error


def _texts_of_csv(path: Path, file: Any, *, no_header: bool) -> Iterator[Texts]:
    """Yields the texts of an open text file."""
    head = file.read(_SNIFFED_BYTES)
    if not head.strip():
        raise BadInput(path, "is empty", "its first line must name the columns")
    if "\0" in head:
        raise BadInput(path, "has NUL bytes", "save it as UTF-8 text; it may be UTF-16")
    separator = _separator(head)
    file.seek(0)
    lines_of_file = iter(partial(file.readline, LONGEST_LINE_BYTES), "")
    skipped = Counter[str]()
    parser = csv.reader(lines_of_file, delimiter=separator, strict=True)
    reader = _csv_rows(path, parser, skipped, no_header=no_header)
    first = next(reader, (1, [""]))
    names = [normalize("NFC", name.strip()) for name in first[1]]
    if no_header and not are_default_names(names):
        reader, names = chain([first], reader), [f"column_{n + 1}" for n in range(len(names))]
    number = piece = _rows_of_piece(len(names))
    while number == piece:
        rows = list(islice(reader, piece))
        number, columns = len(rows), list(zip(*(row for _, row in rows), strict=True))
        lines = [line for line, _ in rows]
        columns = columns or [() for _ in names]
        yield Texts(names, lines, columns, commas=separator != ",", num_blank=skipped["blank"])


def _separator(head: str) -> str:
    """Finds the separator of columns from the beginning of a file."""

    def fits(separator: str) -> tuple[bool, int]:
        rows = filter(None, csv.reader(io.StringIO(head, newline=""), delimiter=separator))
        lengths = [len(row) for row in islice(rows, 2)]
        # If a name holds this sign but the file has another separator, the next row is shorter.
        return lengths[0] > 1 and lengths[0] == lengths[-1], lengths[0]

    return max(SEPARATORS, key=fits)


def _csv_rows(
    path: Path, reader: Any, skipped: Counter[str], *, no_header: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yields each row that is not empty, with the line of the file in which it begins.

    Spreadsheets write separators behind the last column, which are cut off, and rows of nothing but
    separators, which are counted in `skipped`.
    """
    begin, width, names = 1, 0, list[str]()
    try:
        for row in reader:
            if row and not row[0].strip() and len(row) > 1 and not any(map(str.strip, row)):
                skipped["blank"] += 1
            elif row:
                if not names:
                    names, width = row, len(row)
                    while not no_header and width > 1 and not row[width - 1].strip():
                        width -= 1
                if len(row) != width:
                    where = f"{path}, row {begin}"
                    _refuse_extra_values(where, row, width, most=len(names), reader=reader)
                yield begin, row[:width]
            begin = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, row {begin}", f"is no row of CSV ({error})") from error


def _refuse_extra_values(where: str, row: list[str], width: int, most: int, reader: Any) -> None:
    """Refuses a row of another length than the header, unless its extra fields are empty."""
    if len(row) != most:
        way_out = f"quote texts that hold {reader.dialect.delimiter!r}"
        if width == 1:
            way_out = "take out lines above the names of the columns"
        elif len(row) == 1:
            way_out = "take out lines that are no rows"
        why = f"has {len(row)} values, and the header names {width} columns"
        raise BadInput(where, why, way_out)
    if "".join(row[width:]).strip():
        raise BadInput(where, "has a value in a column without a name", "name it in the header")


def _texts_of_parquet(path: Path) -> Iterator[Texts]:
    """Yields the texts of a Parquet file, after checking its types and size."""
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise BadInput(path, PARQUET_NEEDS) from error
    line = 1
    try:
        with parquet.ParquetFile(path) as file:
            kinds, about = file.schema_arrow, file.metadata
            names, piece = list(kinds.names), _rows_of_piece(len(kinds))
            groups = map(about.row_group, range(about.num_row_groups))
            pages = max((group.total_byte_size for group in groups), default=0)
            wide = sum(each.byte_width for each in kinds.types if types.is_fixed_size_binary(each))
            check_size(path, pages + wide * piece + VALUE_BYTES * about.num_rows * len(names))
            texts = (types.is_string, types.is_large_string, types.is_dictionary)
            composed = [normalize("NFC", name) for name in names]
            are_typed = [not any(is_one(k.type) for is_one in texts) for k in kinds]
            typed = frozenset(compress(composed, are_typed))
            if len(set(composed)) < len(names):
                raise ValueError("a name of a column occurs twice")
            if nested := [each.name for each in kinds if types.is_nested(each.type)]:
                raise ValueError(f"column {shown(nested[0])} holds lists; leave it out")
        # With dictionaries, a text that many rows share is decoded once.
        with parquet.ParquetFile(path, read_dictionary=names) as file:
            readers = [_texts_of_column(path, file, name, piece=piece) for name in names]
            number = piece
            while number == piece:
                columns = [list(islice(each, piece)) for each in readers]
                check_size(path, _TEXT_COPIES * sum(sum(map(len, each)) for each in columns))
                number = len(columns[0]) if columns else 0
                if any(len(each) != number for each in columns):
                    raise ValueError("its columns differ in length")
                rows = range(line, line + number)
                yield Texts(composed, rows, columns, commas=False, typed=typed)
                line += number
    except BadInput:
        raise
    except (ArrowException, OSError, ValueError) as error:
        raise BadInput(path, f"is no Parquet file that can be read ({error!s:.80})") from error


def _rows_of_piece(num_columns: int) -> int:
    """How many rows are held as texts at a time, fewer if there are many columns."""
    return max(1, min(_PIECE, _CELLS_OF_PIECE // max(1, num_columns)))


def check_size(path: Path, num_bytes: float) -> None:
    """Refuses a file that would take more memory than a file may."""
    try:
        check_decoded(num_bytes, path, what="rows")
    except TooLarge as error:
        raise BadInput(path, error) from None


def _texts_of_column(path: Path, file: Any, name: str, piece: int) -> Iterator[str]:
    """Yields the texts of a Parquet column; checks memory, as its footer may lie about sizes."""
    from pyarrow import total_allocated_bytes

    for batch in file.iter_batches(piece, columns=[name]):
        check_size(path, total_allocated_bytes())
        column = batch.column(name)
        if not hasattr(column, "dictionary"):
            yield from map(_text_of, column.to_pylist())
            continue
        texts = list(map(_text_of, column.dictionary.to_pylist()))
        yield from ("" if at is None else texts[at] for at in column.indices.to_pylist())


def _text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value.decode() if isinstance(value, bytes) else str(value)
