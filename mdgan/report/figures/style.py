"""How figures look: sizes, and the colour, marker and hatch of everything that is drawn."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib

from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import INKS, KINDS, LINES, OPERATIONS, OTHER, RUNS

NARROW_INCHES = 4.0
WIDE_INCHES = 11.4
INK, SOFT = INKS["ink"].light, INKS["soft"].light
GRID, AXIS, IDLE = LINES["grid"].light, LINES["axis"].light, LINES["idle"].light
COLOURS = [colour.light for colour in RUNS.values()]
MARKERS = "os^DvPX*"
DASHED = (0, (6, 3))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_NETWORK = frozenset({"send", "receive", "swap"})
_MOST_MARKERS = 12

_SETTINGS: dict[Any, Any] = {
    "font.size": 8.5,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "legend.frameon": False,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.2,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.4,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": SOFT,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "axes.edgecolor": AXIS,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "svg.fonttype": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Everything drawn or saved inside looks the same, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        collects = gc.isenabled()
        gc.disable()  # a quarter of the time went into looking for garbage, of which there is none
        try:
            yield
        finally:
            if collects:
                gc.enable()


def run_colour(subject: Subject) -> str:
    """The colour of a run."""
    return COLOURS[subject.position % len(COLOURS)]


def run_style(subject: Subject) -> dict[str, Any]:
    """Colour, dashes and marker of a run: never colour alone."""
    return {
        "color": run_colour(subject),
        "linestyle": _DASHES[subject.position % len(_DASHES)],
        "marker": MARKERS[subject.position % len(MARKERS)],
    }


def dot_style(subject: Subject) -> dict[str, Any]:
    """`run_style` for points that no line joins."""
    return {**run_style(subject), "linestyle": "none"}


def line_style(subject: Subject, num_points: int) -> dict[str, Any]:
    """`run_style` for a line of so many points, with markers that do not hide it."""
    return {**run_style(subject), "markevery": max(1, -(-num_points // _MOST_MARKERS))}


def operation_style(name: str) -> dict[str, Any]:
    """The fill of an operation: its colour, hatched if it is spent on the network."""
    colour = OPERATIONS.get(name, OTHER).light
    hatch = {"hatch": "////", "edgecolor": IDLE} if name in _NETWORK else {}
    return {"facecolor": colour, "linewidth": 0, **hatch}


COLOURED = {"feedback", *KINDS} - {"feedback message"}
"""The kinds of messages that have a colour of their own."""


def kind_style(kind: str) -> dict[str, Any]:
    """The fill of a kind of message."""
    known = KINDS.get("feedback message" if kind == "feedback" else kind, OTHER)
    hatch = {"discriminators": "xxxx", "feedback": "////", "update": "////"}.get(kind, "")
    return {"facecolor": known.light, "linewidth": 0, "hatch": hatch, "edgecolor": IDLE}
