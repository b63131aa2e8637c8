"""Finds bytes that are not UTF-8 and characters that cannot be printed, for messages to users."""

import csv
from functools import partial
from pathlib import Path
from unicodedata import name

from mdgan.errors import BadInput, printable
from mdgan.storage.foreign_file import LONGEST_LINE_BYTES, open_regular


def strange_sign(text: str) -> str:
    """Names the first character of a text that cannot be printed, for the end of a sentence."""
    sign = next((c for c in text if not c.isprintable()), "")
    return f"; it has U+{ord(sign):04X} {name(sign, '')}".rstrip() if sign else ""


def not_utf8(path: Path) -> BadInput:
    """Makes the refusal of a file that is not UTF-8; it names the first such row and column."""
    with path.open("rb") as file:
        is_utf16 = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    encoding = "UTF-16" if is_utf16 else "latin1"
    return BadInput(
        path,
        f"is not UTF-8 but maybe {encoding}{'' if is_utf16 else _place_of_fault(path)}",
        f"save it as UTF-8, for example with iconv -f {encoding} -t UTF-8",
    )


def _place_of_fault(path: Path) -> str:
    """Says in which row and column the first byte stands that is not UTF-8."""
    header = ""
    with open_regular(path) as file:
        for row, content in enumerate(iter(partial(file.readline, LONGEST_LINE_BYTES), b""), 1):
            try:
                header = header or content.decode("utf-8-sig")
                content.decode()
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode()
                header = header or before
                separator = max(",;\t", key=header.count)
                names, read = (
                    next(csv.reader([text], delimiter=separator), [""]) for text in (header, before)
                )
                column = names[len(read) - 1] if len(read) <= len(names) else f"{len(read)}"
                return f", first in row {row}, column {printable(column, 40)}"
    return ""
