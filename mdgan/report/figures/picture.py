"""What a drawing function hands out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from matplotlib.figure import Figure

from mdgan.report.figures.style import NARROW_INCHES
from mdgan.report.numbers.film import Frame
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

Numbers = TypeVar("Numbers")
Row = tuple[str, ...]


class Panel(NamedTuple):
    """One drawing.

    Attributes:
        label: of the run that it shows; empty if it shows all.
        figure: the drawing.
        note: what is said beside the label.
    """

    label: str
    figure: Figure
    note: str = ""


class Strip(NamedTuple):
    """Pictures in a row, which can be enlarged.

    Attributes:
        what: for those who cannot see it.
        stills: the pictures; of each the label of the run that made it, and what stands beneath.
        subject: the run that they are of; None if they are of several.
    """

    what: str
    stills: Sequence[tuple[Frame, str, str]]
    subject: Subject | None = None


@dataclass(frozen=True)
class Picture:
    """One figure of the report.

    Attributes:
        panels: its drawings, one below the other.
        seen: one sentence or two: what these runs show, in numbers.
        table: the numbers.
        strips: what stands in the page instead of the drawings; none for most figures.
    """

    panels: Sequence[Panel]
    seen: str
    table: Table
    strips: Sequence[Strip] = ()

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of the page."""
        return bool(self.panels[0].figure.get_figwidth() > NARROW_INCHES)


def only(texts: Sequence[str]) -> str:
    """What is said of the only run, as a sentence; of several runs, the table says it."""
    return f"{texts[0]}." if len(texts) == 1 and texts[0] else ""


def together(figure: Figure, seen: str, header: Row, rows: Sequence[Row]) -> Picture:
    """One drawing that shows all runs."""
    return Picture([Panel("", figure)], seen.strip(), Table(header, rows))


def one_each(
    found: Sequence[tuple[Subject, Numbers]],
    draw: Callable[[Subject, Numbers], Figure],
    told: Callable[[Subject, Numbers], str],
    header: Row,
    rows: Sequence[Row],
) -> Picture:
    """A drawing for every run.

    Args:
        found: the runs and their numbers.
        draw: makes a drawing of a run's numbers.
        told: says what they show, in a few words; empty for nothing.
        header: of the table.
        rows: of the table.
    """
    if len(found) == 1:
        ((subject, numbers),) = found
        return together(draw(subject, numbers), only([told(subject, numbers)]), header, rows)
    panels = [Panel(s.label, draw(s, numbers), told(s, numbers)) for s, numbers in found]
    return Picture(panels, "", Table(header, rows))
