"""What a figure function hands out."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from mdgan.report.numbers.table import Table


def only(texts: Sequence[str]) -> str:
    """What is said of the only run, as a sentence; of several runs, the table says it."""
    return f"{texts[0]}." if len(texts) == 1 else ""


@dataclass(frozen=True)
class Panel:
    """One drawing.

    Attributes:
        label: of the run that it shows; empty if it shows all.
        figure: the drawing.
        note: what is said beside the label.
    """

    label: str
    figure: Figure
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """One figure of the report.

    Attributes:
        panels: its drawings, side by side.
        seen: one sentence or two: what these runs show, in numbers.
        table: the numbers.
    """

    panels: Sequence[Panel]
    seen: str
    table: Table
