"""Writes CSV files in which a spreadsheet takes no text for a formula."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from unicodedata import category, normalize

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?%?", re.ASCII)
_PIECE = re.compile(r"(?:^|(?<=[;\t\r\n]))[^;\t\r\n]+")
"""A part that a spreadsheet may take for a cell, since in some countries `;` separates cells."""
_PLAIN = re.compile(r"[0-9A-Za-zÀ-ɏ][^;\t\r\n]*")
"""Most texts match this, and need no closer look."""
_BESIDE_QUOTES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_QUOTES = "'\"`´‘’“”"


def csv_bytes(rows: Iterable[Sequence[str]]) -> bytes:
    """The bytes of a CSV file in UTF-8, with every text as `cell` returns it."""
    content = io.StringIO(newline="")
    usual, quoting = (
        csv.writer(content, lineterminator="\n", quoting=how)
        for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for row in rows:
        # With these line ends the module `csv` does not quote a carriage return by itself.
        writer = quoting if any("\r" in text for text in row) else usual
        writer.writerow(map(cell, row))
    return content.getvalue().encode()


def cell(text: str) -> str:
    """Puts an apostrophe before each part of a text that a spreadsheet could take for a formula.

    Such a part begins with = + - @ or a wide form of them, perhaps after spaces, quotes or
    invisible signs; or the text begins with a tab or a line end. Numbers stay as they are.
    Different texts stay different.
    """
    if _PLAIN.fullmatch(text) or _NUMBER.fullmatch(text):
        return text
    begins = "'" if text.lstrip(_QUOTES)[:1] in ("\t", "\r", "\n") else ""
    return begins + _PIECE.sub(lambda piece: _marked(piece[0]), text)


def _marked(piece: str) -> str:
    if _NUMBER.fullmatch(piece):
        return piece
    for sign in normalize("NFKC", piece):
        if sign not in _QUOTES and category(sign) not in _BESIDE_QUOTES:
            return f"'{piece}" if sign in "=+-@" else piece
    return piece
