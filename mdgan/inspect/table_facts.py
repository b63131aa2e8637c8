"""Collects facts about each column of a site's files, from which `schema_draft` drafts a schema."""

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
from mdgan.samples.table.texts import MISSING, Texts, blank_rows, files_of, shown, texts_of_file
from mdgan.storage.csv_file import cell

EPOCH = datetime(1970, 1, 1)
FEW = 10  # a fact about fewer rows could reveal the people in them
MANY = 5 * FEW  # a column with more different texts hardly has categories
_MOST_EXAMPLES = 3


class LeftOut(Exception):
    """Raised, with the reason, for a column that cannot be in a schema."""


def rows_in_words(count: int) -> str:
    """Writes a number of rows, such as 1 row or 2,000 rows."""
    return f"{count:,} row{'' if count == 1 else 's'}"


@dataclass
class NumbersByRows:
    """Values and the number of rows with each, as arrays in pieces: 10⁶ rows need no objects."""

    values: list[NDArray[np.float64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)

    def add_piece(self, rows: dict[float, int]) -> None:
        """Adds a piece, the number of rows by value."""
        self.values.append(np.fromiter(rows.keys(), dtype=np.float64, count=len(rows)))
        self.counts.append(np.fromiter(rows.values(), dtype=np.int64, count=len(rows)))

    @property
    def num_rows(self) -> int:
        """The number of rows with a value."""
        return sum(int(counts.sum()) for counts in self.counts)

    def merge_pieces(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Merges the pieces: the values in rising order, each once, and the rows with each."""
        values, places = np.unique(np.concatenate(self.values), return_inverse=True)
        counts = np.bincount(places, np.concatenate(self.counts), minlength=len(values))
        return values, counts.astype(np.int64)


class ColumnFacts:
    """Facts about one column, counted while its files are read.

    Attributes:
        num_numbers, num_ends, num_moments, num_others: how many rows have a number, the end of a
            scale as `>89`, a date or moment, or another text.
        other_texts: the first of the other texts.
        has_zones: whether some moment has a time zone.
        numbers: how many rows have each number.
        moments: how many rows have each moment, in seconds since 1970, by form.
        as_numbers: the facts if texts such as `1,5 kg` are read as numbers; None if too few are.
        why_undecided: why mdgan cannot tell how the texts write numbers.
    """

    def __init__(self, name: str, path: Path, *, no_header: bool = False) -> None:
        self.name = name
        self._path, self._no_header = path, no_header
        self.missing: Counter[str] = Counter()  # how many rows lack a value, by text
        # How many rows have each text; of very many texts only the first ones.
        self.texts: Counter[str] = Counter()
        self.has_more_texts = False  # whether `texts` lacks some
        self.num_numbers = self.num_ends = self.num_moments = self.num_others = 0
        self.other_texts: list[str] = []
        self.ends: Counter[str] = Counter()
        self.decimals = 0  # the most that a number has
        self.has_zones = self._has_zeros = self._has_powers = self._has_points = False
        self.numbers = NumbersByRows()
        self.moments: dict[str, NumbersByRows] = {}
        self.writings: dict[str, NumberFormat] = {}
        self.as_numbers: ColumnFacts | None = None
        self.why_undecided = ""

    @property
    def num_values(self) -> int:
        """The number of rows with a value."""
        return self.num_numbers + self.num_ends + self.num_moments + self.num_others

    @property
    def is_coded(self) -> bool:
        """Whether numbers are written like keys and postal codes: as 01234, or 12E4."""
        return self._has_zeros or (self._has_powers and not self._has_points)

    def add_texts(
        self, counted: Counter[str], *, commas: bool = False, writing: NumberFormat | None = None
    ) -> None:
        """Adds how many rows of a file have each text.

        Args:
            commas: whether the file may write a comma before decimals.
            writing: how the file writes numbers; None if that is not known yet.
        """
        numbers: Counter[float] = Counter()
        moments: defaultdict[str, Counter[float]] = defaultdict(Counter)
        for written, count in counted.items():
            text = _bare_text(written)
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
                    since = moment.replace(tzinfo=None) - EPOCH
                    moments[form][since.total_seconds() // 1] += count
            else:
                self.num_others += count
                if len(self.other_texts) < _MOST_EXAMPLES and text not in self.other_texts:
                    self.other_texts.append(text)
        self.num_numbers += numbers.total()
        self.num_ends = self.ends.total()
        self.numbers.add_piece(numbers)
        for form, rows_by_moment in moments.items():
            self.moments.setdefault(form, NumbersByRows()).add_piece(rows_by_moment)

    def locate_text(self, text: str) -> str:
        """Quotes a text with the first row and file that have it; rows as an editor counts them."""
        for file, texts in _read_pieces(self._path, no_header=self._no_header):
            for line, written in zip(texts.lines, texts.column(self.name), strict=True):
                if text in (bare := _bare_text(written), number_text(bare, texts.commas)):
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


def _bare_text(written: str) -> str:
    """Strips spaces and what spreadsheets put around a text, and composes letters such as é."""
    text = written.strip()
    if not text.isascii():
        text = normalize("NFC", text)
    return without_formula(text) if text[:1] in ("=", "'") else text


def _decimals(text: str) -> int:
    mantissa, _, exponent = text.lower().partition("e")
    return len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)


def num_equal_rows(path: Path, names: Sequence[str], *, no_header: bool = False) -> int:
    """Counts the rows that equal an earlier one in some columns."""
    hashes, num_rows = set[int](), 0
    for file in files_of(path):
        for texts in texts_of_file(file, no_header=no_header):
            num_rows += len(texts.lines)
            columns = [c for n, c in zip(texts.names, texts.columns, strict=True) if n in names]
            hashes.update(map(hash, zip(*columns, strict=True)))
    return num_rows - len(hashes)


def facts_of_table(path: Path, *, no_header: bool = False) -> tuple[list[ColumnFacts], list[str]]:
    """Collects the facts of all columns of a file, or of all files of a folder.

    Args:
        no_header: whether the first line of files has values, and no names.

    Returns:
        The columns in the order of the first file, and remarks on skipped rows and lacking columns.

    Raises:
        BadInput: the file cannot be read, has no rows, or names a column twice.
    """
    columns: dict[str, ColumnFacts] = {}
    surveys: dict[tuple[Path, str], tuple[NumberSurvey, bool]] = {}
    skipped: dict[Path, str] = {}
    rows = Counter[Path]()
    for file, texts in _read_pieces(path, no_header=no_header):
        rows[file] += len(texts.lines)
        for name in texts.names:
            if name not in columns:
                columns[name] = ColumnFacts(name, path, no_header=no_header)
            rows_by_text = Counter(texts.column(name))
            columns[name].add_texts(rows_by_text, commas=texts.commas)
            survey, _ = surveys.setdefault((file, name), (NumberSurvey(), texts.commas))
            if name not in texts.typed:
                present = [text for text in rows_by_text if text.strip() not in MISSING]
                survey.add(present, texts.line_in(name))
        if texts.num_blank:
            skipped[file] = blank_rows(file, texts.num_blank)
    writings = _find_writings(surveys, columns)
    numerals = {*columns} - {name for (_, name), (survey, _) in surveys.items() if survey.others}
    if writings:
        _read_again(path, columns, writings, numerals, no_header=no_header)
    if not any(facts.num_values for facts in columns.values()):
        raise BadInput(path, "has no row", "give a file with rows below its header")
    remarks = _count_lacking(path, columns, surveys, rows)
    return list(columns.values()), [*skipped.values(), *remarks]


def _count_lacking(
    path: Path, columns: dict[str, ColumnFacts], in_files: Container[object], rows: Counter[Path]
) -> list[str]:
    """Counts the rows of files that lack a column as missing, with a remark for each column.

    Args:
        in_files: pairs of a file and a column that it has.
        rows: how many rows each file has.
    """
    remarks = []
    for name, facts in columns.items():
        if not (lacking := [file for file in rows if (file, name) not in in_files]):
            continue
        twin = next((n for n in columns if n != name and n.casefold() == name.casefold()), None)
        if twin is not None:
            why = f"columns {shown(name)} and {shown(twin)} differ by case alone"
            raise BadInput(path, why, "name them alike in all files")
        facts.missing[""] += sum(rows[file] for file in lacking)
        names = ", ".join(shown(file.name) for file in lacking[:_MOST_EXAMPLES])
        remarks.append(
            f"{shown(name)}: is missing in {len(lacking):,} of {len(rows):,} files ({names})"
        )
    return remarks


def _read_pieces(path: Path, *, no_header: bool) -> Iterator[tuple[Path, Texts]]:
    """Yields the texts of each file piece by piece; BadInput if two columns have one name."""
    for file in files_of(path):
        for texts in texts_of_file(file, no_header=no_header):
            if unprintable := [name for name in texts.names if not name.isprintable()]:
                where = f"{file}, row 1, column {shown(unprintable[0])}"
                raise BadInput(where, f"its name cannot be printed{strange_sign(unprintable[0])}")
            for name, count in Counter(texts.names).items():
                if count > 1 or not (name or name == texts.names[0]):
                    why = "a name occurs twice, or is none"
                    way_out = (
                        "the first line must give each column a name of its own; --no-header if "
                        "it has values"
                    )
                    raise BadInput(f"{file}, column {name[:40]!r}", why, way_out)
            yield file, texts


def _find_writings(
    surveys: dict[tuple[Path, str], tuple[NumberSurvey, bool]], columns: dict[str, ColumnFacts]
) -> dict[tuple[Path, str], NumberFormat]:
    """Finds how files write numbers, for columns in which some file does not write them plainly."""
    writings: dict[tuple[Path, str], NumberFormat] = {}
    for (file, name), (survey, commas) in surveys.items():
        is_usual = survey.is_plain and not survey.may_be_thousands(commas=commas)
        if is_usual or survey.is_phone_like or not survey.has_numbers:
            continue
        try:
            writings[file, name] = survey.number_format(commas=commas)
        except Undecided as why:
            if not survey.others:
                columns[name].why_undecided = f"{file.name}, row {why.line}: {why}"
    unusual = {name for _, name in writings}
    return {key: writings.get(key, NumberFormat()) for key in surveys if key[1] in unusual}


def _read_again(
    path: Path,
    columns: dict[str, ColumnFacts],
    writings: dict[tuple[Path, str], NumberFormat],
    numerals: Container[str],
    *,
    no_header: bool,
) -> None:
    """Reads columns again as their files write numbers, and keeps the facts if most texts fit.

    Args:
        numerals: the columns in which every text is a number, in some writing.
    """
    facts_by_name: dict[str, ColumnFacts] = {}
    for file, texts in _read_pieces(path, no_header=no_header):
        for name in texts.names:
            if (writing := writings.get((file, name))) is not None:
                facts = facts_by_name.setdefault(name, ColumnFacts(name, path, no_header=no_header))
                facts.add_texts(Counter(texts.column(name)), writing=writing)
                facts.writings[file.name] = writing
    for name, facts in facts_by_name.items():
        first_facts = columns[name]
        is_most = 2 * (facts.num_numbers + facts.num_ends) > facts.num_values
        is_all = name in numerals and not facts.num_moments
        if is_all and not is_most and len(facts.texts) > MANY:
            examples = ", ".join(map(first_facts.locate_text, facts.other_texts))
            first_facts.why_undecided = (
                f"has numbers written in one way, and others, such as {examples}; write all alike, "
                "with the same unit"
            )
        elif (is_most or is_all) and len(facts.texts) > len(facts.ends):
            first_facts.as_numbers = facts


def warn_of_formulas(column: AnyColumn) -> str:
    """Warns of texts that a spreadsheet would take for formulas; empty if there are none."""
    texts = [column.name, *(() if isinstance(column, ScaledColumn) else column.choices)]
    formulas = [repr(shown(text)) for text in texts if cell(text) != text]
    if not formulas:
        return ""
    more = f" and {len(formulas) - 3:,} more" if len(formulas) > 3 else ""
    return (
        f"{shown(column.name)}: a spreadsheet could take {', '.join(formulas[:3])}{more} for "
        "a formula; in CSV files that mdgan writes an apostrophe stands before it"
    )
