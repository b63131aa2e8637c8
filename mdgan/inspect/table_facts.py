"""What a file of rows says about each of its columns, before there is a schema."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.samples.table.moments import readings_of
from mdgan.samples.table.numbers import (
    NumberFormat,
    NumberSurvey,
    Undecided,
    looks_like_identifier,
    number_text,
    parse_number,
    without_formula,
)
from mdgan.samples.table.schema import MOST_CATEGORIES, AnyColumn, ScaledColumn
from mdgan.samples.table.signs import strange_sign
from mdgan.samples.table.texts import (
    MISSING,
    Texts,
    blank_rows,
    files_of,
    shown,
    texts_of_file,
)
from mdgan.storage.csv_file import cell

EPOCH = datetime(1970, 1, 1)
FEW = 10  # fewer rows than these could tell of the people in them
MANY = 5 * FEW  # more different texts than these are hardly categories
_MOST_OTHERS = 3


class LeftOut(Exception):
    """Why a column cannot stand in a schema."""


def rows_in_words(count: int) -> str:
    """How many rows."""
    return f"{count:,} row{'' if count == 1 else 's'}"


@dataclass
class NumbersByRows:
    """Different values and how many rows have each, in pieces, so that 10⁶ rows need no objects."""

    values: list[NDArray[np.float64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, found: dict[float, int]) -> None:
        """Takes in a piece: how many rows have each value."""
        self.values.append(np.fromiter(found.keys(), dtype=np.float64, count=len(found)))
        self.counts.append(np.fromiter(found.values(), dtype=np.int64, count=len(found)))

    @property
    def num_rows(self) -> int:
        """How many rows have a value."""
        return sum(int(counts.sum()) for counts in self.counts)

    def together(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The different values in rising order, and how many rows have each."""
        values, places = np.unique(np.concatenate(self.values), return_inverse=True)
        counts = np.bincount(places, np.concatenate(self.counts), minlength=len(values))
        return values, counts.astype(np.int64)


class ColumnFacts:
    """What the rows of a file say about one column.

    Attributes:
        num_numbers, num_ends, num_moments, num_others: how many rows have a number, the end of a
            scale as `>89`, a date or moment, or a text that is none of them.
        others: the first texts that are none.
        has_zones: whether some moment has a time zone.
        numbers: how many rows have each.
        moments: the same by form, in seconds since 1970.
        as_numbers: the same once it is known how most texts write numbers; None if they do not.
        why_undecided: why that cannot be known.
    """

    def __init__(self, name: str, path: Path, *, no_header: bool = False) -> None:
        self.name = name
        self._path, self._no_header = path, no_header
        self.missing: Counter[str] = Counter()  # how many rows lack a value, by what stands there
        # How many rows have each text; of very many texts only the first ones.
        self.texts: Counter[str] = Counter()
        self.has_more_texts = False  # whether there are others, which `texts` does not count
        self.num_numbers = self.num_ends = self.num_moments = self.num_others = 0
        self.others: list[str] = []
        self.ends: Counter[str] = Counter()
        self.decimals = 0  # that numbers have at most
        self.has_zones = self._has_zeros = self._has_powers = self._has_points = False
        self.numbers = NumbersByRows()
        self.moments: dict[str, NumbersByRows] = {}
        self.writings: dict[str, NumberFormat] = {}
        self.as_numbers: ColumnFacts | None = None
        self.why_undecided = ""

    @property
    def num_values(self) -> int:
        """How many rows have a value."""
        return self.num_numbers + self.num_ends + self.num_moments + self.num_others

    @property
    def is_coded(self) -> bool:
        """Whether numbers are written like keys and postal codes: as 01234, or 12E4."""
        return self._has_zeros or (self._has_powers and not self._has_points)

    def add(
        self, counted: Counter[str], *, commas: bool = False, writing: NumberFormat | None = None
    ) -> None:
        """Takes in how many rows of a file have each text, and how it writes numbers if known.

        Args:
            commas: whether a comma may stand before decimals.
        """
        numbers: Counter[float] = Counter()
        moments: defaultdict[str, Counter[float]] = defaultdict(Counter)
        for given, count in counted.items():
            text = _bare(given)
            if text in MISSING:
                self.missing[text] += count
                continue
            plain = number_text(text, commas) if writing is None else writing.read(text)
            if writing is not None and plain[:1] in ("<", ">"):
                self.ends[plain] += count
                self.decimals = max(self.decimals, _decimals(plain))
                continue
            number = self._number(plain)
            if number is not None:
                text = plain
            if text in self.texts or len(self.texts) <= MOST_CATEGORIES:
                self.texts[text] += count
            else:
                self.has_more_texts = True
            if number is not None:
                numbers[number] += count
            elif readings := readings_of(text):
                self.num_moments += count
                for form, moment in readings.items():
                    self.has_zones |= moment.tzinfo is not None
                    moments[form][_seconds(moment)] += count
            else:
                self.num_others += count
                if len(self.others) < _MOST_OTHERS and text not in self.others:
                    self.others.append(text)
        self.num_numbers += numbers.total()
        self.num_ends = self.ends.total()
        self.numbers.add(numbers)
        for form, found in moments.items():
            self.moments.setdefault(form, NumbersByRows()).add(found)

    def with_row(self, text: str) -> str:
        """A text, and where the column has it first, as an editor counts rows."""
        for file, texts in _pieces(self._path, no_header=self._no_header):
            for line, given in zip(texts.lines, texts.column(self.name), strict=True):
                if text in (bare := _bare(given), number_text(bare, texts.commas)):
                    return f"{shown(text)!r} (row {line} of {file.name})"
        return repr(shown(text))

    def _number(self, text: str) -> float | None:
        try:
            number = parse_number(text)
        except ValueError:
            return None
        self._has_points |= "." in text
        if (text[0] in "0+-" or "e" in text or "E" in text) and looks_like_identifier(text):
            self._has_zeros |= "e" not in text.lower()
            self._has_powers |= "e" in text.lower()
        self.decimals = max(self.decimals, _decimals(text))
        return number


def _bare(given: str) -> str:
    """A text without what programs put around it, and with é as one letter."""
    text = given.strip()
    if not text.isascii():
        text = normalize("NFC", text)
    return without_formula(text) if text[:1] in ("=", "'") else text


def _seconds(moment: datetime) -> float:
    return (moment.replace(tzinfo=None) - EPOCH).total_seconds() // 1


def _decimals(text: str) -> int:
    mantissa, _, exponent = text.lower().partition("e")
    return len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)


def num_equal_rows(path: Path, names: Sequence[str], *, no_header: bool = False) -> int:
    """How many rows say the same in some columns as one before them."""
    seen, number = set[int](), 0
    for file in files_of(path):
        for texts in texts_of_file(file, no_header=no_header):
            number += len(texts.lines)
            read = [c for n, c in zip(texts.names, texts.columns, strict=True) if n in names]
            seen.update(map(hash, zip(*read, strict=True)))
    return number - len(seen)


def facts_of_table(path: Path, *, no_header: bool = False) -> tuple[list[ColumnFacts], list[str]]:
    """What the columns of a file, or of all files of a folder, hold, in the order of the first.

    Args:
        no_header: whether files have no first line with names.

    Returns:
        The columns, and what is said of rows that were skipped, a line a file.

    Raises:
        BadInput: the file cannot be read, has no rows, or names a column twice.
    """
    columns: dict[str, ColumnFacts] = {}
    surveys: dict[tuple[Path, str], tuple[NumberSurvey, bool]] = {}
    skipped: dict[Path, str] = {}
    rows = Counter[Path]()
    for file, texts in _pieces(path, no_header=no_header):
        rows[file] += len(texts.lines)
        for name in texts.names:
            if name not in columns:
                columns[name] = ColumnFacts(name, path, no_header=no_header)
            counted = Counter(texts.column(name))
            columns[name].add(counted, commas=texts.commas)
            survey, _ = surveys.setdefault((file, name), (NumberSurvey(), texts.commas))
            if name not in texts.typed:
                present = [text for text in counted if text.strip() not in MISSING]
                survey.add(present, texts.line_in(name))
        if texts.num_blank:
            skipped[file] = blank_rows(file, texts.num_blank)
    writings = _writings(surveys, columns)
    numerals = {*columns} - {name for (_, name), (survey, _) in surveys.items() if survey.others}
    if writings:
        _look_again(path, columns, writings, numerals, no_header=no_header)
    if not any(facts.num_values for facts in columns.values()):
        raise BadInput(path, "has no row", "give a file with rows below its header")
    lacking = _lacking(path, columns, surveys, rows)
    return list(columns.values()), [*skipped.values(), *lacking]


def _lacking(
    path: Path, columns: dict[str, ColumnFacts], in_file: Container[object], rows: Counter[Path]
) -> list[str]:
    """Counts rows of files that lack a column as missing there, and names both in a line each.

    Args:
        in_file: pairs of a file and a column that it has.
        rows: how many rows each file has.
    """
    said = []
    for name, facts in columns.items():
        if not (lacking := [file for file in rows if (file, name) not in in_file]):
            continue
        other = next((n for n in columns if n != name and n.casefold() == name.casefold()), None)
        if other is not None:
            why = f"columns {shown(name)} and {shown(other)} differ by case alone"
            raise BadInput(path, why, "name them alike in all files")
        facts.missing[""] += sum(rows[file] for file in lacking)
        names = ", ".join(shown(file.name) for file in lacking[:_MOST_OTHERS])
        said.append(
            f"{shown(name)}: is missing in {len(lacking):,} of {len(rows):,} files ({names})"
        )
    return said


def _pieces(path: Path, *, no_header: bool) -> Iterator[tuple[Path, Texts]]:
    """All texts of each file; BadInput if columns of one have no names of their own."""
    for file in files_of(path):
        for texts in texts_of_file(file, no_header=no_header):
            if strange := [name for name in texts.names if not name.isprintable()]:
                what = f"{file}, row 1, column {shown(strange[0])}"
                raise BadInput(what, f"its name cannot be printed{strange_sign(strange[0])}")
            for name, times in Counter(texts.names).items():
                if times > 1 or not (name or name == texts.names[0]):
                    why = "a name occurs twice, or is none"
                    way_out = (
                        "the first line must give each column a name of its own; --no-header if "
                        "it has values"
                    )
                    raise BadInput(f"{file}, column {name[:40]!r}", why, way_out)
            yield file, texts


def _writings(
    surveys: dict[tuple[Path, str], tuple[NumberSurvey, bool]], columns: dict[str, ColumnFacts]
) -> dict[tuple[Path, str], NumberFormat]:
    """How files write numbers in columns where that is not plain."""
    found: dict[tuple[Path, str], NumberFormat] = {}
    for (file, name), (survey, commas) in surveys.items():
        is_usual = survey.is_plain and not survey.may_be_thousands(commas=commas)
        if is_usual or survey.is_phone_like or not survey.has_numbers:
            continue
        try:
            found[file, name] = survey.number_format(commas=commas)
        except Undecided as why:
            if not survey.others:
                columns[name].why_undecided = f"{file.name}, row {why.line}: {why}"
    odd = {name for _, name in found}
    return {key: found.get(key, NumberFormat()) for key in surveys if key[1] in odd}


def _look_again(
    path: Path,
    columns: dict[str, ColumnFacts],
    writings: dict[tuple[Path, str], NumberFormat],
    numerals: Container[str],
    *,
    no_header: bool,
) -> None:
    """Reads columns as their files write numbers, and keeps that of those which most texts fit.

    Args:
        numerals: the columns in which every text is a number, however written.
    """
    again: dict[str, ColumnFacts] = {}
    for file, texts in _pieces(path, no_header=no_header):
        for name in texts.names:
            if (writing := writings.get((file, name))) is not None:
                facts = again.setdefault(name, ColumnFacts(name, path, no_header=no_header))
                facts.add(Counter(texts.column(name)), writing=writing)
                facts.writings[file.name] = writing
    for name, facts in again.items():
        found = columns[name]
        is_most = 2 * (facts.num_numbers + facts.num_ends) > facts.num_values
        is_all = name in numerals and not facts.num_moments
        if is_all and not is_most and len(facts.texts) > MANY:
            first = ", ".join(map(found.with_row, facts.others))
            found.why_undecided = (
                f"has numbers written in one way, and others, such as {first}; write all alike, "
                "with the same unit"
            )
        elif (is_most or is_all) and len(facts.texts) > len(facts.ends):
            found.as_numbers = facts


def formulas(column: AnyColumn) -> str:
    """What of a column a spreadsheet would take for formulas, in a line; empty for nothing."""
    texts = [column.name, *(() if isinstance(column, ScaledColumn) else column.choices)]
    found = [repr(shown(text)) for text in texts if cell(text) != text]
    if not found:
        return ""
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return (
        f"{shown(column.name)}: a spreadsheet could take {', '.join(found[:3])}{more} for "
        "a formula; in CSV files that mdgan writes an apostrophe stands before it"
    )
