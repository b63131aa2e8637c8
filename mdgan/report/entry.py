"""What the catalogue says of a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mdgan.report.figures.picture import Picture
from mdgan.report.numbers.subject import Subject


@dataclass(frozen=True)
class Entry:
    """One figure.

    Attributes:
        name: its file name, and `fig-<name>` in the page.
        title: a few words; in it and in the caption stands `{unit}`, or another of
            `numbers.units.words`, for what the runs are counted in.
        caption: what it shows, in one sentence.
        paper: the figures of Darmanger and Gombas (2024) that show the same; empty for none.
        draw: makes the picture, or says in one line why there is none.
        wide: whether it takes the whole width of the page.
        grouped: whether it draws all runs of a configuration as one, however many there are.
        of_rounds: what is said besides if any of the runs has rounds.
    """

    name: str
    title: str
    caption: str
    paper: str
    draw: Callable[[Sequence[Subject]], Picture | str]
    wide: bool = False
    grouped: bool = False
    of_rounds: str = ""


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
    entries: tuple[Entry, ...]
