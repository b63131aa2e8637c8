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
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import moment_of
from mdgan.samples.table.writing import texts_of

_BETWEEN = "\x1f"


def canonical(text: str, *, commas: bool = False) -> str:
    """A text as it counts: 1.50 and 1.5 are one number, 31.12.2024 and 2024-12-31 one day.

    Args:
        commas: whether a comma may stand before decimals.

    Returns:
        Empty for a missing value.
    """
    with suppress(ValueError):  # most texts of large tables are numbers
        number = float(number_text(text.strip(), commas))
        if isfinite(number):
            return f"{number:.15g}"
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if text in MISSING:
        return ""
    try:
        moment = moment_of(text)
        return (moment.date() if moment.time() == time() else moment).isoformat()
    except ValueError:
        return text


def contents_of_files(path: Path, without: str) -> list[bytes]:
    """What tells each row of a file, or of all files of a folder, from others, in order.

    Args:
        without: a column that does not count.
    """
    found: list[bytes] = []
    for file in files_of(path):
        for texts in texts_of_file(file):
            of_columns = dict(zip(texts.names, texts.columns, strict=True))
            of_columns.pop(without, None)
            found += _contents(of_columns.items(), len(texts.lines), commas=texts.commas)
    return found


def contents_of_rows(rows: Rows) -> list[bytes]:
    """The same of rows that lie in no file."""
    of_columns = [
        (column.name, texts_of(column, rows.values[:, place]))
        for place, column in enumerate(rows.schema.columns)
    ]
    return list(_contents(of_columns, len(rows), commas=False))


def _contents(
    columns: Iterable[tuple[str, Sequence[str]]], number: int, *, commas: bool
) -> Iterator[bytes]:
    """Of each of some rows, `name=value` of all columns that have one, in the order of names."""
    shown = []
    for name, texts in sorted((canonical(name).casefold(), texts) for name, texts in columns):
        said = {text: canonical(text, commas=commas) for text in dict.fromkeys(texts)}
        shown.append([f"{name}={said[text]}" if said[text] else "" for text in texts])
    if not shown:
        yield from [b""] * number
    for row in zip(*shown, strict=True):
        yield _BETWEEN.join(filter(None, row)).encode(errors="surrogatepass")
