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


class Runs(NamedTuple):
    """For which runs a figure is.

    Attributes:
        fits: whether it is for a run.
        otherwise: what is said if too few of the runs fit.
        at_least: how many must fit; of a figure that draws configurations, how many of these.
    """

    fits: Callable[[Subject], bool]
    otherwise: str
    at_least: int = 1


ANY = Runs(lambda _: True, "there is no run")
WITH_WORKERS = Runs(lambda run: not run.alone, "no run here has a server and workers")
ALONE = Runs(lambda run: run.alone, "every run here has a server and workers")
TWO_WORKERS = Runs(
    lambda run: max(run.num_workers, len(run.workers)) > 1, "there are no two workers to swap"
)
WITH_ROUNDS = Runs(lambda run: run.in_rounds, "no run here trains in rounds")
SEVERAL = Runs(lambda _: True, "this compares several configurations", at_least=2)


def recorded(numbers: Callable[[RecordedRun], Numbers]) -> Callable[[Subject], Numbers]:
    """The numbers of a run that depend on nothing but what it recorded."""
    return lambda subject: numbers(subject.run)


@dataclass(frozen=True, kw_only=True)
class Entry(Generic[Drawn, Numbers]):
    """One figure.

    In the title, the caption and `missing` stands `{unit}`, or another of `numbers.units.words`,
    for what the runs are counted in.

    Attributes:
        name: its file name, and `fig-<name>` in the page.
        title: a few words.
        caption: what it shows, in one sentence or two.
        of_rounds: what is said besides if any of the runs has rounds.
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        runs: for which runs it is.
        of: the numbers that are drawn, of a run or of a configuration; None, or something empty,
            if it recorded none.
        missing: what is said if no run recorded any; by default that traces are missing, or scores.
        draw: makes the picture of what recorded some, or says in one line why there is none.
    """

    name: str
    title: str
    caption: str
    of_rounds: str = ""
    paper: str = ""
    runs: Runs = ANY
    of: Callable[[Drawn], Numbers | None]
    missing: str = "no trace of a complete {unit} is there yet"
    draw: Callable[[Sequence[tuple[Drawn, Numbers]]], Picture | str]


@dataclass(frozen=True, kw_only=True)
class GroupedEntry(Entry[Group, Numbers]):
    """A figure that draws all runs of a configuration as one, however many there are."""

    missing: str = "no scores are recorded (mdgan evaluate adds some)"


@dataclass(frozen=True)
class Section:
    """Figures that answer one question.

    Attributes:
        name: `#<name>` in the page.
        title: in the navigation and above the figures.
        entries: the figures.
    """

    name: str
    title: str
    entries: tuple[Entry[Any, Any], ...]
