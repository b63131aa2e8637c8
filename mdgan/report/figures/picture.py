"""What the catalogue says of a figure, and what a drawing function hands out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from matplotlib.figure import Figure

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.numbers.groups import Group
from mdgan.report.numbers.subject import Subject

Numbers = TypeVar("Numbers")
Row = tuple[str, ...]


class Table(NamedTuple):
    """The numbers of a figure as text, for readers who cannot see it or want to use the numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Panel(NamedTuple):
    """One drawing, of `label` (empty: of all); `narrow` is the same for a narrow screen."""

    label: str
    figure: Figure
    note: str = ""
    narrow: Figure | None = None


class PictureFile(NamedTuple):
    """A PNG file of the generator of an iteration; its sides are in pixels."""

    iteration: int
    png: bytes
    width: int
    height: int


class Strip(NamedTuple):
    """Pictures of a run, or of several, side by side: each, what it is of, what stands beneath."""

    what: str
    stills: Sequence[tuple[PictureFile, str, str]]
    subject: Subject | None = None


@dataclass(frozen=True)
class Picture:
    """A figure of the report, or a view of it; `strips` replace its drawings in the page."""

    panels: Sequence[Panel]
    seen: str
    table: Table
    strips: Sequence[Strip] = ()

    @property
    def wide(self) -> bool:
        """Whether it takes the whole width of the page."""
        several = len(self.panels) > 1
        return several or bool(self.strips) or any(panel.narrow for panel in self.panels)


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
    table: Table,
    draw_narrow: Callable[[Subject, Numbers], Figure] | None = None,
) -> Picture:
    """A drawing for every run, of which `told` says in a few words what it shows."""
    several = len(found) > 1
    panels = [
        Panel(
            subject.label if several else "",
            draw(subject, numbers),
            told(subject, numbers) if several else "",
            draw_narrow(subject, numbers) if draw_narrow else None,
        )
        for subject, numbers in found
    ]
    return Picture(panels, only([told(*pair) for pair in found]), table)


def one_strip_each(
    found: Sequence[tuple[Subject, Numbers]],
    draw: Callable[[Subject, Numbers], Figure],
    told: Callable[[Subject, Numbers], str],
    table: Table,
    strip: Callable[[Subject, Numbers], tuple[str, Sequence[tuple[PictureFile, str, str]]]],
) -> Picture:
    """As `one_each`, with pictures in the page, which `strip` names, and drawings in files."""
    strips = [Strip(*strip(subject, numbers), subject) for subject, numbers in found]
    return replace(one_each(found, draw, told, table), strips=strips)


Drawn = TypeVar("Drawn", Subject, Group)


def recorded(numbers: Callable[[RecordedRun], Numbers]) -> Callable[[Subject], Numbers]:
    """The numbers of a run that depend on nothing but what it recorded."""
    return lambda subject: numbers(subject.run)


@dataclass(frozen=True, kw_only=True)
class View(Generic[Drawn, Numbers]):
    """One way to look at a figure; in all words `{unit}` stands for what the runs are counted in.

    Attributes:
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        fits: for which runs it is; the page does not mention it if there is none.
        of: the numbers of a run or a configuration; None, or something empty, if it recorded none.
        missing: what is said if no run recorded any; empty: the page does not mention it.
        draw: makes the picture of what recorded some, or says in one line why there is none.
    """

    name: str = ""
    caption: str
    of_rounds: str = ""
    paper: str = ""
    fits: Callable[[Subject], bool] = lambda _: True
    of: Callable[[Drawn], Numbers | None]
    missing: str = ""
    draw: Callable[[Sequence[tuple[Drawn, Numbers]]], Picture | str]


class GroupedView(View[Group, Numbers]):
    """A view that draws all runs of a configuration as one, however many there are."""


class Entry(NamedTuple):
    """One figure, or numbers that stand in a table alone; the page shows the first of its views.

    Attributes:
        name: its file name, and `fig-<name>` in the page; views after the first add theirs.
        counted: whether runs in iterations and runs in rounds have a figure each.
    """

    name: str
    title: str
    views: Sequence[View[Any, Any]]
    counted: bool = False


class PageSection(NamedTuple):
    """Figures that answer one question; `#<name>` in the page."""

    name: str
    title: str
    entries: Sequence[Entry]
