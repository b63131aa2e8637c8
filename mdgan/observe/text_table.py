"""Formats tables as plain text, for terminals, pipes and files."""

import io
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table

_NO_TERMINAL_WIDTH = 10_000  # without a terminal, wide enough that no cell is broken


def text_table(
    rows: Iterable[Sequence[str]],
    headings: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    indent: int = 0,
) -> str:
    """Arranges cells in columns, those in `right` aligned right; long ones wrap on a terminal."""
    rows = list(rows)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=bool(headings))
    for number in range(max(map(len, (headings, *rows)))):
        heading = headings[number] if headings else ""
        table.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = Console().width - indent if sys.stdout.isatty() else _NO_TERMINAL_WIDTH
    console = Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        force_terminal=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    return "\n".join((" " * indent + line).rstrip() for line in lines)
