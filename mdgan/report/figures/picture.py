"""What the catalogue says of a figure, and what a drawing function hands out."""

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
    """The numbers of a figure as text, for readers who cannot see it or want to use the numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Panel(NamedTuple):
    """One drawing, of `label` (empty: of all)."""

    label: str
    figure: Figure
    note: str = ""

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of the page."""
        return bool(self.figure.get_figwidth() > INCHES)


class PictureFile(NamedTuple):
    """A PNG file of the generator of an iteration; its sides are in pixels."""

    iteration: int
    png: bytes
    width: int
    height: int


Stills = Sequence[tuple[PictureFile, str, str]]
"""Pictures side by side: each, what it is of, what stands beneath."""


class Strip(NamedTuple):
    """The pictures of one run, and what they are of."""

    subject: Subject
    what: str
    stills: Stills


@dataclass(frozen=True)
class Picture:
    """A figure of the report, or a view of it: drawings, strips of pictures, or a table alone."""

    panels: Sequence[Panel]
    seen: str
    table: Table
    strips: Sequence[Strip] = ()


def only(texts: Sequence[str]) -> str:
    """What is said of the only run, as a sentence; of several runs, the table says it."""
    return f"{texts[0]}." if len(texts) == 1 and texts[0] else ""


def together(figure: Figure, seen: str, header: Row, rows: Sequence[Row]) -> Picture:
    """One drawing that shows all runs."""
    return Picture([Panel("", figure)], seen.strip(), Table(header, rows))


class OfRun(NamedTuple):
    """What is drawn or shown of one run for itself; without either a table alone."""

    rows: Iterable[Row]  # of the table, without the run's name
    told: str = ""  # what is to be seen, in a few words
    figure: Figure | None = None
    pictures: tuple[str, Stills] | None = None  # what they are of, and these
    header: Row = ()  # of the columns of rows


def by_run(each: Sequence[tuple[Subject, OfRun]]) -> Picture:
    """Puts what is drawn or shown of each run side by side."""
    panels = [
        Panel(subject.label, one.figure, one.told) if len(each) > 1 else Panel("", one.figure)
        for subject, one in each
        if one.figure
    ]
    lines = [(subject.label, *row) for subject, one in each for row in one.rows]
    strips = [Strip(subject, *one.pictures) for subject, one in each if one.pictures]
    table = Table(("run", *each[0][1].header), lines)
    return Picture(panels, only([one.told for _, one in each]), table, strips=strips)


@dataclass(frozen=True, kw_only=True)
class View(Generic[Drawn, Numbers]):
    """One way to look at a figure; in all words `{unit}` stands for what the runs are counted in.

    Attributes:
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        fits: for which runs it is; the page does not mention it if there is none.
        of: the numbers of a run or a configuration; None, or something empty, if it recorded none.
        missing: what is said if no run recorded any; empty: the page does not mention it.
        draw: makes the picture of what recorded some; by default `of` has drawn each run.
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
    """One figure, or numbers that stand in a table alone; the page shows the first of its views."""

    name: str  # its file name, and `fig-<name>` in the page; views after the first add theirs
    title: str
    views: Sequence[View[Any, Any]]
    counted: bool = False  # whether runs in iterations and runs in rounds have a figure each


class PageSection(NamedTuple):
    """Figures that answer one question; `#<name>` in the page."""

    name: str
    title: str
    entries: Sequence[Entry]
