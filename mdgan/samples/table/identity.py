"""By what a row is known, whatever a schema makes of it: what its file says in all columns.

An account of privacy must know a row again when the order of columns, bounds, kinds or categories
of the schema change. So the texts of the file count, each in a form that does not depend on the
program that wrote it.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import time
from math import isfinite
from pathlib import Path

from mdgan.samples.table.reading import MISSING, files_of, number_text, texts_of_file
from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.schema import moment_of

_BETWEEN = "\x1f"
_ANSWERS = {"true": "1", "false": "0"}  # as programs write what others write as numbers


def canonical(text: str, *, commas: bool = False) -> str:
    """A text as it counts: 1.50 and 1.5 are one number, 31.12.2024 and 2024-12-31 one day.

    Args:
        commas: whether a comma may stand before decimals.

    Returns:
        Empty for a missing value.
    """
    with suppress(ValueError):  # most texts of large tables are numbers
        number = float(number_text(text.strip(), commas)) + 0.0  # which makes −0 0
        if isfinite(number):
            return f"{number:.15g}"
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if text in MISSING:
        return ""
    if (answer := text.casefold()) in _ANSWERS:
        return _ANSWERS[answer]
    try:
        moment = moment_of(text)
    except ValueError:
        return text
    return f"{moment:%Y%m%d}" if moment.time() == time() else moment.isoformat()


def contents_of_files(path: Path, person: str) -> list[tuple[bytes, bytes]]:
    """What tells each row of a file, or of all files of a folder, from others, in order.

    Args:
        person: the column that says whose row it is; empty if there is none.

    Returns:
        By all columns, and by those but the person's.
    """
    found: list[tuple[bytes, bytes]] = []
    for file in files_of(path):
        for texts in texts_of_file(file):
            columns = list(zip(texts.names, texts.columns, strict=True))
            found += _contents(columns, len(texts.lines), person, commas=texts.commas)
    return found


def contents_of_rows(rows: Rows) -> list[tuple[bytes, bytes]]:
    """The same of rows that lie in no file, and name no persons."""
    columns = [
        (column.name, texts_of(column, rows.values[:, place]))
        for place, column in enumerate(rows.schema.columns)
    ]
    return list(_contents(columns, len(rows), "", commas=False))


def _contents(
    columns: Iterable[tuple[str, Sequence[str]]], number: int, person: str, *, commas: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Of each of some rows, `name=value` of columns that have one, in the order of names."""
    shown: list[list[str]] = []
    place = 0
    for name, texts in sorted(columns, key=lambda each: (canonical(each[0]).casefold(), each[0])):
        said = {text: canonical(text, commas=commas) for text in dict.fromkeys(texts)}
        if name == person:
            place = len(shown) + 1
        shown.append([f"{name.casefold()}={said[t]}" if said[t] else "" for t in texts])
    for row in zip(*shown, strict=True) if shown else [()] * number:
        whole = _joined(row)
        yield whole, _joined(row[: place - 1] + row[place:]) if place else whole


def _joined(row: tuple[str, ...]) -> bytes:
    return _BETWEEN.join(filter(None, row)).encode(errors="surrogatepass")
