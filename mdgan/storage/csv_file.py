"""CSV files that spreadsheets open: none of their texts is a formula."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from unicodedata import category, normalize

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?%?", re.ASCII)
_PIECE = re.compile(r"(?:^|(?<=[;\t\r\n]))[^;\t\r\n]+")
"""What some spreadsheet may take for a cell, since in some countries `;` separates them."""
_PLAIN = re.compile(r"[0-9A-Za-zÀ-ɏ][^;\t\r\n]*")
"""Of texts that need no closer look, which are most."""
_BESIDE_QUOTES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_QUOTES = "'\"`´‘’“”"


def csv_bytes(rows: Iterable[Sequence[str]]) -> bytes:
    """A CSV file in UTF-8; its texts are as `cell` writes them."""
    text = io.StringIO(newline="")
    usual, quoting = (
        csv.writer(text, lineterminator="\n", quoting=how)
        for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for row in rows:
        # The module leaves a carriage return unquoted where lines end otherwise.
        writer = quoting if any("\r" in each for each in row) else usual
        writer.writerow(map(cell, row))
    return text.getvalue().encode()


def cell(text: str) -> str:
    """A text with an apostrophe before each part that a spreadsheet could take for a formula.

    That is what begins with = + - @, also after spaces, quotes or invisible signs, and also
    in their wide forms; and a text that begins with a tab or a carriage return. Numbers stay. Two
    texts that differ are written differently, so that a reader who knows the texts finds each.
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
