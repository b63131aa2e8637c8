"""What the catalogue says of a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.figures.picture import Picture
from mdgan.report.numbers.groups import Group
from mdgan.report.numbers.subject import Subject

Drawn = TypeVar("Drawn", Subject, Group)
Numbers = TypeVar("Numbers")


def recorded(numbers: Callable[[RecordedRun], Numbers]) -> Callable[[Subject], Numbers]:
    """The numbers of a run that depend on nothing but what it recorded."""
    return lambda subject: numbers(subject.run)


@dataclass(frozen=True, kw_only=True)
class View(Generic[Drawn, Numbers]):
    """One way to look at a figure.

    In all words stands `{unit}` for what the runs are counted in.

    Attributes:
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        fits: for which runs it is; the page does not mention it if there is none.
        of: the numbers that are drawn, of a run or of a configuration; None, or something empty,
            if it recorded none.
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
    """One figure, or numbers that stand in a table alone.

    Attributes:
        name: its file name, and `fig-<name>` in the page; views after the first add theirs.
        views: at least one; the page shows the first, and a switch.
        counted: whether runs in iterations and runs in rounds have a figure each.
    """

    name: str
    title: str
    views: Sequence[View[Any, Any]]
    counted: bool = False


class Section(NamedTuple):
    """Figures that answer one question; `#<name>` in the page."""

    name: str
    title: str
    entries: Sequence[Entry]
