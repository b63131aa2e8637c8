"""By what a row is known, whatever a schema makes of it: what its file says in all columns.

An account of privacy must know a row again when the order of columns, bounds, kinds or categories
of the schema change. So the texts of the file count, each in a form that does not depend on the
program that wrote it.
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
    """The moment that accounts know a text by, whatever columns of dates understand today."""
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year, rest = found.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{rest}"
    elif found := _SLASHES.fullmatch(text):
        text = "{}-{}-{}{}".format(*found.groups())
    return datetime.fromisoformat(text)


def contents_of_files(
    path: Path, person: str, *, no_header: bool = False, view: SiteView | None = None
) -> list[tuple[bytes, bytes]]:
    """What tells each row of a file, or of all files of a folder, from others, in order.

    Args:
        person: the column that says whose row it is; empty if there is none.
        no_header: whether the files have no first line with names.
        view: what of the files counts, and in whose words; None for all, in theirs.

    Returns:
        By all columns, and by those but the person's.
    """
    found: list[tuple[bytes, bytes]] = []
    for file in files_of(path):
        for texts in (
            view.texts_of(file, converts=True) if view else texts_of_file(file, no_header=no_header)
        ):
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
        of = normalize("NFC", name).casefold()
        shown.append([f"{of}={said[t]}" if said[t] else "" for t in texts])
    for row in zip(*shown, strict=True) if shown else [()] * number:
        whole = _joined(row)
        yield whole, _joined(row[: place - 1] + row[place:]) if place else whole


def _joined(row: tuple[str, ...]) -> bytes:
    return _BETWEEN.join(filter(None, row)).encode(errors="surrogatepass")
