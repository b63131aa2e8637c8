"""Files of rows, CSV and Parquet, read against a schema; nothing is guessed."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput, printable
from mdgan.samples.table.rows import PARQUET_NEEDS, Rows
from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema, YesNoColumn
from mdgan.storage.budget import TooLarge, check_decoded
from mdgan.storage.csv_file import cell
from mdgan.storage.foreign_file import LONGEST_LINE_BYTES, open_regular

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", "?"})
"""What stands for a missing value, unless it is one of the column's categories."""
SEPARATORS = ",;\t"
_PIECE, _CELLS_OF_PIECE = 50_000, 1 << 21
_VALUE_BYTES, _TEXT_COPIES = 24, 4
"""Of a value, and of each text, while a table is read."""
_MOST_SHOWN = 40
_MOST_NAMES = 5
_SNIFFED_BYTES = 1 << 16


class Problem(NamedTuple):
    """A value that does not fit, in the row that an editor shows; 0 for a whole file."""

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
    """Ends reading at the first problem."""
    raise BadInput(str(problem))


def read_rows(
    path: Path, schema: Schema, target: str | None = None, on_problem: OnProblem = refuse
) -> Rows:
    """Reads a file, or all files of a folder in the order of their names.

    Args:
        target: a column that no row may lack.
        on_problem: is told of each value that does not fit; such values are then missing.

    Raises:
        BadInput: by `refuse`, at the first problem; by any `on_problem` if nothing can be read.
    """
    files = files_of(path)
    parts = [_read_file(file, schema, target, on_problem) for file in files]
    values, persons = (np.concatenate(each) for each in zip(*parts, strict=True))
    rows = Rows(schema, values, persons if schema.person else None)
    if not len(rows):
        raise BadInput(f"{path}: has no row; give a file with rows below its header")
    return rows


def files_of(path: Path) -> list[Path]:
    """The files with rows at a path."""
    if path.is_dir():
        found = sorted(
            file
            for file in path.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
        )
        if not found:
            raise BadInput(f"{path}: no file of rows in it ({' '.join(SUFFIXES)})")
        return found
    if not path.is_file():
        raise BadInput(f"{path}: no such file; give a CSV or Parquet file, or a folder of them")
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{path}: must end in {', '.join(SUFFIXES)}")
    return [path]


class Texts(NamedTuple):
    """Rows as texts, column by column.

    Attributes:
        lines: in which line of the file each row begins.
        commas: whether a comma may stand before decimals.
    """

    names: list[str]
    lines: Sequence[int]
    columns: Sequence[Sequence[str]]
    commas: bool


def texts_of_file(path: Path) -> Iterator[Texts]:
    """The texts of a file, in pieces of many rows.

    Raises:
        BadInput: the file is not UTF-8, is empty, or has rows of another length than its header.
    """
    if path.suffix.lower() == ".parquet":
        yield from _texts_of_parquet(path)
        return
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            yield from _texts_of_csv(path, file)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: is not UTF-8 but maybe {_encoding_of(path)}; save it as UTF-8, for example "
            f"with iconv -f {_encoding_of(path)} -t UTF-8"
        ) from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error


def _texts_of_csv(path: Path, file: Any) -> Iterator[Texts]:
    head = file.read(_SNIFFED_BYTES)
    if not head.strip():
        raise BadInput(f"{path}: is empty; its first line must name the columns")
    separator = _separator(head)
    file.seek(0)
    lines_of_file = iter(partial(file.readline, LONGEST_LINE_BYTES), "")
    reader = _csv_rows(path, csv.reader(lines_of_file, delimiter=separator, strict=True))
    names = [name.strip() for name in next(reader)[1]]
    number = piece = _rows_of_piece(len(names))
    while number == piece:
        rows = list(islice(reader, piece))
        number, columns = len(rows), list(zip(*(row for _, row in rows), strict=True))
        lines = [line for line, _ in rows]
        yield Texts(names, lines, columns or [() for _ in names], commas=separator != ",")


def _separator(head: str) -> str:
    """What separates the columns of a file that begins so."""

    def fits(separator: str) -> tuple[bool, int]:
        rows = filter(None, csv.reader(io.StringIO(head, newline=""), delimiter=separator))
        lengths = [len(row) for row in islice(rows, 2)]
        # A name may hold another separator than that of the file, but then rows are shorter.
        return lengths[0] > 1 and lengths[0] == lengths[-1], lengths[0]

    return max(SEPARATORS, key=fits)


def _encoding_of(path: Path) -> str:
    """Which encoding a file has that is not UTF-8, as far as its first bytes tell."""
    with path.open("rb") as file:
        head = file.read(2)
    return "UTF-16" if head in (b"\xff\xfe", b"\xfe\xff") else "latin1"


def _csv_rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a reader but empty ones, and in which line of the file each begins."""
    begin, names = 1, list[str]()
    try:
        for row in reader:
            names = names or row
            if row and len(row) != len(names):
                raise BadInput(
                    f"{path}, row {begin}: has {len(row)} values, and the header names "
                    f"{len(names)} columns; quote texts that hold {reader.dialect.delimiter!r}"
                )
            if row:
                yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, row {begin}: is no row of CSV ({error})") from error


def _texts_of_parquet(path: Path) -> Iterator[Texts]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise BadInput(f"{path}: {PARQUET_NEEDS}") from error
    line = 1
    try:
        with parquet.ParquetFile(path) as file:
            kinds, about = file.schema_arrow, file.metadata
            names, piece = list(kinds.names), _rows_of_piece(len(kinds))
            groups = map(about.row_group, range(about.num_row_groups))
            pages = max((group.total_byte_size for group in groups), default=0)
            wide = sum(each.byte_width for each in kinds.types if types.is_fixed_size_binary(each))
            _check_size(path, pages + wide * piece + _VALUE_BYTES * about.num_rows * len(names))
            if len(set(names)) < len(names):
                raise ValueError("a name of a column occurs twice")
            if nested := [each.name for each in kinds if types.is_nested(each.type)]:
                raise ValueError(f"column {_shown(nested[0])} holds lists; leave it out")
        # A text that many rows have is read once.
        with parquet.ParquetFile(path, read_dictionary=names) as file:
            readers = [_texts_of_column(path, file, name, piece) for name in names]
            number = piece
            while number == piece:
                columns = [list(islice(each, piece)) for each in readers]
                _check_size(path, _TEXT_COPIES * sum(sum(map(len, each)) for each in columns))
                number = len(columns[0]) if columns else 0
                if any(len(each) != number for each in columns):
                    raise ValueError("its columns differ in length")
                yield Texts(names, range(line, line + number), columns, commas=False)
                line += number
    except BadInput:
        raise
    except (ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: is no Parquet file that can be read ({error!s:.80})") from error


def _rows_of_piece(num_columns: int) -> int:
    """How many rows are held as texts at a time."""
    return max(1, min(_PIECE, _CELLS_OF_PIECE // max(1, num_columns)))


def _check_size(path: Path, num_bytes: float) -> None:
    """Refuses a file that would take too much memory."""
    try:
        check_decoded(num_bytes, path, what="rows")
    except TooLarge as error:
        raise BadInput(f"{path}: {error}") from None


def _texts_of_column(path: Path, file: Any, name: str, piece: int) -> Iterator[str]:
    """The texts of a column of Parquet; what its footer says of their size may be wrong."""
    from pyarrow import total_allocated_bytes

    for batch in file.iter_batches(piece, columns=[name]):
        _check_size(path, total_allocated_bytes())
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
    return str(value)


def _read_file(
    path: Path, schema: Schema, target: str | None, on_problem: OnProblem
) -> tuple[NDArray[np.float64], NDArray[np.object_]]:
    """The values of a file's rows, and whose each is: empty texts if the schema does not say."""
    pieces, persons, names, num_rows = [], list[str](), None, 0
    written = {cell(name): name for name in schema.names}  # as mdgan writes CSV
    for texts in texts_of_file(path):
        texts = texts._replace(names=[written.get(name, name) for name in texts.names])
        if names is None:
            names = texts.names
            _check_header(path, names, schema, on_problem)
        num_rows += len(texts.lines)
        _check_size(path, _VALUE_BYTES * num_rows * len(schema.columns))
        values = np.full((len(texts.lines), len(schema.columns)), np.nan)
        for place, column in enumerate(schema.columns):
            if column.name in texts.names:
                values[:, place] = _read_column(path, column, texts, target, on_problem)
        pieces.append(values)
        persons += _persons(path, texts, schema, on_problem)
    return np.concatenate(pieces), np.array(persons, dtype=object)


def _persons(path: Path, texts: Texts, schema: Schema, on_problem: OnProblem) -> list[str]:
    """Whose each row is; empty texts if that is not known."""
    if not schema.person or schema.person not in texts.names:
        return [""] * len(texts.lines)
    given = texts.columns[texts.names.index(schema.person)]
    # A program that has only floats for numbers with gaps writes 1 as 1.0.
    persons = [" ".join(normalize("NFC", text).split()).removesuffix(".0") for text in given]
    for line, person in zip(texts.lines, persons, strict=True):
        if person in MISSING:
            why = "is missing, and the schema names it as the person whose row it is"
            on_problem(Problem(path, line, schema.person, why))
    return persons


def _check_header(path: Path, names: Sequence[str], schema: Schema, on_problem: OnProblem) -> None:
    if not set(names) & set(schema.names):
        shown = ", ".join(map(_shown, names[:_MOST_NAMES]))
        raise BadInput(
            f"{path}: its first line, {shown}, names no column of the schema "
            f"({', '.join(schema.names[:_MOST_NAMES])}, …)"
        )
    known = set(schema.names)
    for name, times in Counter(names).items():
        if times > 1:
            on_problem(Problem(path, 0, _shown(name), "occurs twice in the header"))
        if name not in known and name != schema.person:
            why = "is not in the schema; leave it out, or add it there"
            on_problem(Problem(path, 0, _shown(name), why))
    if schema.person and schema.person not in names:
        why = "is missing, and the schema names it as the person whose rows these are; add it"
        on_problem(Problem(path, 0, schema.person, why))
    for column in schema.columns:
        if column.name not in names and not column.may_be_missing:
            why = (
                "is missing, and the schema does not let it be; add it, or agree on "
                '"may_be_missing": true'
            )
            on_problem(Problem(path, 0, column.name, why))


def _read_column(
    path: Path, column: AnyColumn, texts: Texts, target: str | None, on_problem: OnProblem
) -> NDArray[np.float64]:
    """The values of one column, float64 [n], NaN where one is missing, or does not fit."""
    given = texts.columns[texts.names.index(column.name)]
    codes: dict[str, float] = {}
    if not isinstance(column, ScaledColumn):
        codes = {text: float(code) for code, text in enumerate(column.choices)}
        codes |= {cell(text): code for text, code in codes.items()}  # as mdgan writes CSV
        if isinstance(column, YesNoColumn):
            codes |= {"True": 1.0, "False": 0.0}  # as Parquet has them
    known: dict[str, float] = {}
    refused: dict[str, str] = {}
    for text in dict.fromkeys(given):
        try:
            known[text] = _value(text.strip(), column, codes, target, texts.commas)
        except ValueError as error:
            known[text], refused[text] = np.nan, str(error)
    if refused:
        for text, line in zip(given, texts.lines, strict=True):
            if text in refused:
                on_problem(Problem(path, line, column.name, refused[text]))
    return np.fromiter(map(known.__getitem__, given), dtype=np.float64, count=len(given))


def _value(
    text: str, column: AnyColumn, codes: dict[str, float], target: str | None, commas: bool
) -> float:
    """The value of a text; raises ValueError in words."""
    if text in MISSING and text not in codes:
        if column.name == target:
            raise ValueError("is missing, and every row needs the target")
        if not column.may_be_missing:
            raise ValueError("is missing, and the schema does not let it be")
        return np.nan
    if not isinstance(column, ScaledColumn):
        # A program that has only floats for numbers with gaps writes 1 as 1.0.
        whole = number_text(text, commas).removesuffix(".0")
        code = codes.get(text, codes.get(whole))
        if code is None:
            raise ValueError(f"{_shown(text)!r} is none of its categories")
        return code
    try:
        return column.read(number_text(text, commas))
    except ValueError as error:
        hint = "; write a decimal point, and no other points or commas" if "," in text else ""
        raise ValueError(f"{_shown(text)!r} {error}{hint}") from None


def number_text(text: str, commas: bool) -> str:
    """A number with a decimal point, where a comma may stand for it."""
    has_comma = commas and text.count(",") == 1 and "." not in text
    return text.replace(",", ".") if has_comma else text


def _shown(text: str) -> str:
    return printable(text, _MOST_SHOWN)
