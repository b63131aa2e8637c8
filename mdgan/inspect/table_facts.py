"""What a file of rows says about each of its columns, before there is a schema."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput, printable
from mdgan.samples.table.reading import MISSING, files_of, number_text, texts_of_file
from mdgan.samples.table.schema import MOST_CATEGORIES, AnyColumn, ScaledColumn, moment_of
from mdgan.storage.csv_file import cell

_EPOCH = datetime(1970, 1, 1)


@dataclass
class NumbersByRows:
    """Different values and how many rows have each, in pieces, so that 10⁶ rows need no objects."""

    values: list[NDArray[np.float64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, found: dict[float, int]) -> None:
        """Takes in a piece: how many rows have each value."""
        self.values.append(np.fromiter(found.keys(), dtype=np.float64, count=len(found)))
        self.counts.append(np.fromiter(found.values(), dtype=np.int64, count=len(found)))

    def together(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The different values in rising order, and how many rows have each."""
        values, places = np.unique(np.concatenate(self.values), return_inverse=True)
        counts = np.bincount(places, np.concatenate(self.counts), minlength=len(values))
        return values, counts.astype(np.int64)


class ColumnFacts:
    """What the rows of a file say about one column.

    Attributes:
        num_numbers, num_moments, num_others: how many rows have a number, a date or moment, or a
            text that is neither.
        is_coded: whether numbers begin with 0 like keys and postal codes, as 01234.
        has_times: whether some moment is not midnight.
        numbers, moments: how many rows have each; moments are in seconds since 1970.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.missing: Counter[str] = Counter()  # how many rows lack a value, by what stands there
        # How many rows have each text; of very many texts only the first ones.
        self.texts: Counter[str] = Counter()
        self.has_more_texts = False  # whether there are others, which `texts` does not count
        self.num_numbers = self.num_moments = self.num_others = 0
        self.example = ""  # a text that is neither
        self.decimals = 0  # that numbers have at most
        self.is_coded = self.has_times = False
        self.numbers, self.moments = NumbersByRows(), NumbersByRows()

    @property
    def num_values(self) -> int:
        """How many rows have a value."""
        return self.num_numbers + self.num_moments + self.num_others

    def add(self, counted: Counter[str], commas: bool) -> None:
        """Takes in how many rows have each text; `commas` may stand before decimals."""
        numbers: Counter[float] = Counter()
        moments: Counter[float] = Counter()
        for given, count in counted.items():
            text = given.strip()
            if text in MISSING:
                self.missing[text] += count
                continue
            number = self._number(number_text(text, commas))
            if number is not None:
                text = number_text(text, commas)
            if text in self.texts or len(self.texts) <= MOST_CATEGORIES:
                self.texts[text] += count
            else:
                self.has_more_texts = True
            if number is not None:
                numbers[number] += count
            elif (moment := self._moment(text)) is not None:
                moments[moment] += count
            else:
                self.num_others += count
                self.example = self.example or text
        self.num_numbers += numbers.total()
        self.num_moments += moments.total()
        self.numbers.add(numbers)
        self.moments.add(moments)

    def _number(self, text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        if not isfinite(number):
            return None
        digits = text.lstrip("+-")
        self.is_coded |= digits[:1] == "0" and digits[1:2].isdigit()
        mantissa, _, exponent = text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)
        self.decimals = max(self.decimals, decimals)
        return number

    def _moment(self, text: str) -> float | None:
        try:
            moment = moment_of(text)
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None
        seconds = (moment - _EPOCH).total_seconds() // 1
        self.has_times |= seconds % 86_400 != 0
        return seconds


def num_equal_rows(path: Path) -> int:
    """How many rows say the same in all columns as one before them."""
    seen, number = set[int](), 0
    for file in files_of(path):
        for texts in texts_of_file(file):
            number += len(texts.lines)
            seen.update(map(hash, zip(*texts.columns, strict=True)))
    return number - len(seen)


def facts_of_table(path: Path) -> list[ColumnFacts]:
    """What the columns of a file, or of all files of a folder, hold, in the order of the first.

    Raises:
        BadInput: the file cannot be read, has no rows, or names a column twice.
    """
    columns: dict[str, ColumnFacts] = {}
    for file in files_of(path):
        for texts in texts_of_file(file):
            for name, times in Counter(texts.names).items():
                if times > 1 or not name.isprintable() or not name:
                    raise BadInput(
                        f"{file}, column {name[:40]!r}: a name occurs twice, or is none; the first "
                        "line must give each column a name of its own"
                    )
            for name, values in zip(texts.names, texts.columns, strict=True):
                facts = columns.setdefault(name, ColumnFacts(name))
                facts.add(Counter(values), texts.commas)
    if not any(facts.num_values for facts in columns.values()):
        raise BadInput(f"{path}: has no row; give a file with rows below its header")
    return list(columns.values())


def formulas(column: AnyColumn) -> str:
    """What of a column a spreadsheet would take for formulas, in a line; empty for nothing."""
    texts = [column.name, *(() if isinstance(column, ScaledColumn) else column.choices)]
    found = [repr(printable(text, 40)) for text in texts if cell(text) != text]
    if not found:
        return ""
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return (
        f"{printable(column.name, 40)}: a spreadsheet could take {', '.join(found[:3])}{more} for "
        "a formula; in CSV files that mdgan writes an apostrophe stands before it"
    )
