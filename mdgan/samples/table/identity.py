"""Recognises a row of a file by its texts in all columns, whatever the schema makes of them.

The privacy ledger must recognise a row after the schema has changed its order of columns, bounds,
kinds or categories. So it compares the texts of the file, each in a canonical form that does not
depend on the program that wrote the file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, time
from math import isfinite
from pathlib import Path
from unicodedata import normalize

from mdgan.samples.table.numbers import number_text
from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.site_map import SiteView
from mdgan.samples.table.texts import MISSING, files_of, texts_of_file

_BETWEEN = "\x1f"
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
_SLASHES = re.compile(r"(\d{4})/(\d\d)/(\d\d)(.*)")
_ANSWERS = {"true": "1", "false": "0"}  # some programs write yes and no so, others as numbers


def canonical(text: str, *, commas: bool = False) -> str:
    """The canonical form of a text, the same for 1.50 and 1.5, or 31.12.2024 and 2024-12-31.

    Args:
        commas: whether the file may write decimal commas.

    Returns:
        Empty for a missing value.
    """
    with suppress(ValueError):  # numbers first, since most texts of large tables are numbers
        number = float(number_text(text.strip(), commas)) + 0.0  # −0 becomes 0
        if isfinite(number):
            return f"{number:.15g}"
    text = " ".join(normalize("NFC", text).split())
    if text in MISSING:
        return ""
    if (answer := text.casefold()) in _ANSWERS:
        return _ANSWERS[answer]
    try:
        moment = _moment_of(text)
    except ValueError:
        return text
    return f"{moment:%Y%m%d}" if moment.time() == time() else moment.isoformat()


def _moment_of(text: str) -> datetime:
    """Reads a date by the forms that ledgers have always known; `moments` may learn new ones."""
    if match := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = match.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{rest}"
    elif match := _SLASHES.fullmatch(text):
        text = "{}-{}-{}{}".format(*match.groups())
    return datetime.fromisoformat(text)


def contents_of_files(
    path: Path, person: str, *, no_header: bool = False, view: SiteView | None = None
) -> list[tuple[bytes, bytes]]:
    """Lists what identifies each row of a file, or of all files of a folder, in order.

    Args:
        person: the column that names the person of each row; empty if there is none.
        no_header: whether the files have no first line with names.
        view: reads the files by a schema and a map; None reads all columns as they are.

    Returns:
        For each row the canonical texts of all columns, and of all but the person's.
    """
    contents: list[tuple[bytes, bytes]] = []
    for file in files_of(path):
        for texts in (
            view.texts_of(file, converts=True) if view else texts_of_file(file, no_header=no_header)
        ):
            columns = list(zip(texts.names, texts.columns, strict=True))
            contents += _contents(columns, len(texts.lines), person, commas=texts.commas)
    return contents


def contents_of_rows(rows: Rows) -> list[tuple[bytes, bytes]]:
    """The same for rows that come from no file and name no persons."""
    columns = [
        (column.name, texts_of(column, rows.values[:, place]))
        for place, column in enumerate(rows.schema.columns)
    ]
    return list(_contents(columns, len(rows), "", commas=False))


def _contents(
    columns: Iterable[tuple[str, Sequence[str]]], number: int, person: str, *, commas: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yields for each row the `name=value` of columns that have a value, in the order of names."""
    entries: list[list[str]] = []
    place = 0
    for name, texts in sorted(columns, key=lambda each: (canonical(each[0]).casefold(), each[0])):
        forms = {text: canonical(text, commas=commas) for text in dict.fromkeys(texts)}
        if name == person:
            place = len(entries) + 1
        folded = normalize("NFC", name).casefold()
        entries.append([f"{folded}={forms[t]}" if forms[t] else "" for t in texts])
    for row in zip(*entries, strict=True) if entries else [()] * number:
        whole = _joined(row)
        yield whole, _joined(row[: place - 1] + row[place:]) if place else whole


def _joined(row: tuple[str, ...]) -> bytes:
    return _BETWEEN.join(filter(None, row)).encode(errors="surrogatepass")
