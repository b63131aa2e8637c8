"""The numbers of a figure as rows, for readers who cannot see it or want to use the numbers."""

from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """Text in rows and columns.

    Attributes:
        header: one text a column.
        rows: as many texts each; the first names the row.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
