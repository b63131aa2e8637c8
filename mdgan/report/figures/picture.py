"""Types of the report: entries of the catalogue, and the pictures that drawing functions return."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from matplotlib.figure import Figure

from mdgan.report.figures.charts import INCHES
from mdgan.report.numbers.subject import Group, Subject

Numbers = TypeVar("Numbers")
Drawn = TypeVar("Drawn", Subject, Group)
Row = tuple[str, ...]


class Table(NamedTuple):
    """The numbers of a figure as text, for readers who cannot see it or want the numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Panel(NamedTuple):
    """One drawing; `label` names its runs (empty: all)."""

    label: str
    figure: Figure
    note: str = ""

    @property
    def wide(self) -> bool:
        """Whether the drawing takes the whole width of the page."""
        return bool(self.figure.get_figwidth() > INCHES)


class PictureFile(NamedTuple):
    """A PNG file about the generator of an iteration; its sides are in pixels."""

    iteration: int
    png: bytes
    width: int
    height: int


Stills = Sequence[tuple[PictureFile, str, str]]
"""Pictures side by side, each with a description and the text beneath it."""


class Strip(NamedTuple):
    """The pictures of one run, and what they show."""

    subject: Subject
    what: str
    stills: Stills


@dataclass(frozen=True)
class Picture:
    """A figure of the report, or a view of it: drawings, strips of pictures, or only a table."""

    panels: Sequence[Panel]
    seen: str  # a sentence about what the picture shows
    table: Table
    strips: Sequence[Strip] = ()


def only(texts: Sequence[str]) -> str:
    """The text of the only run as a sentence; empty for several runs, since the table has them."""
    return f"{texts[0]}." if len(texts) == 1 and texts[0] else ""


def together(figure: Figure, seen: str, header: Row, rows: Sequence[Row]) -> Picture:
    """A picture with one drawing that shows all runs."""
    return Picture([Panel("", figure)], seen.strip(), Table(header, rows))


class OfRun(NamedTuple):
    """The part of a picture for one run: a drawing, pictures, or only rows of a table."""

    rows: Iterable[Row]  # of the table, without the run's name
    told: str = ""  # what the part shows, in a few words
    figure: Figure | None = None
    pictures: tuple[str, Stills] | None = None  # their description, and the pictures
    header: Row = ()  # of the columns of rows


def by_run(parts: Sequence[tuple[Subject, OfRun]]) -> Picture:
    """Joins the parts of all runs side by side."""
    panels = [
        Panel(subject.label, one.figure, one.told) if len(parts) > 1 else Panel("", one.figure)
        for subject, one in parts
        if one.figure
    ]
    lines = [(subject.label, *row) for subject, one in parts for row in one.rows]
    strips = [Strip(subject, *one.pictures) for subject, one in parts if one.pictures]
    table = Table(("run", *parts[0][1].header), lines)
    return Picture(panels, only([one.told for _, one in parts]), table, strips=strips)


@dataclass(frozen=True, kw_only=True)
class View(Generic[Drawn, Numbers]):
    """One view of a figure; in its texts `{unit}` stands for `iteration` or `round`.

    Attributes:
        of_rounds: a further caption for runs in rounds.
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        fits: whether the view is for a run; if it is for none, the page does not mention it.
        of: the numbers of a run or configuration; None or empty if it recorded none.
        missing: the text if no run recorded numbers; empty: the page does not mention the view.
        draw: makes the picture of all numbers; without it, `of` returns the part of each run.
    """

    name: str = ""
    caption: str
    of_rounds: str = ""
    paper: str = ""
    fits: Callable[[Subject], bool] = lambda _: True
    of: Callable[[Drawn], Numbers | None]
    missing: str = ""
    draw: Callable[[Sequence[tuple[Drawn, Numbers]]], Picture] | None = None


class GroupedView(View[Group, Numbers]):
    """A view that draws all runs of a configuration as one, however many there are."""


class Entry(NamedTuple):
    """One figure, or a table alone; the page shows the first of its views at first."""

    name: str  # of its files, and `fig-<name>` in the page; further views append their names
    title: str
    views: Sequence[View[Any, Any]]
    counted: bool = False  # whether runs in iterations and runs in rounds need separate figures


class PageSection(NamedTuple):
    """Figures that answer one question; `#<name>` in the page."""

    name: str
    title: str
    entries: Sequence[Entry]
