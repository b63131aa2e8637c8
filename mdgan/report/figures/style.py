"""How figures look: sizes, colours, markers, units."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from mdgan.records.values import time_unit
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import INKS, KINDS, LINES, OPERATIONS, OTHER, RUNS

NARROW_INCHES = 4.0
WIDE_INCHES = 11.4
INK, SOFT = INKS["ink"].light, INKS["soft"].light
GRID, AXIS, IDLE = LINES["grid"].light, LINES["axis"].light, LINES["idle"].light
NETWORK = frozenset({"send", "receive", "wait", "swap"})
_NETWORK_HATCH = "////"
_MARKERS = "os^DvPX*"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MOST_MARKERS = 12
_LETTERS_AN_INCH = 14
_INCHES_A_LEGEND_ROW = 0.17
_LETTERS_OF_HANDLE = 8

_SETTINGS: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
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
    "path.simplify": True,
}


@contextmanager
def styled() -> Iterator[None]:
    """Everything drawn or saved inside looks the same, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(height: float, wide: bool = False) -> Figure:
    """An empty figure, `height` inches high."""
    return Figure(figsize=(WIDE_INCHES if wide else NARROW_INCHES, height), layout="constrained")


def run_style(subject: Subject) -> dict[str, Any]:
    """Colour, dashes and marker of a run: never colour alone."""
    return {
        "color": run_colour(subject),
        "linestyle": _DASHES[subject.position % len(_DASHES)],
        "marker": _MARKERS[subject.position % len(_MARKERS)],
    }


def run_colour(subject: Subject) -> str:
    """The colour of a run."""
    colours = list(RUNS.values())
    return colours[subject.position % len(colours)].light


def line_style(subject: Subject, num_points: int) -> dict[str, Any]:
    """`run_style` for a line of so many points, with markers that do not hide it."""
    return {**run_style(subject), "markevery": max(1, -(-num_points // _MOST_MARKERS))}


def operation_style(name: str) -> dict[str, Any]:
    """The fill of an operation: its colour, hatched if it is spent on the network."""
    colour = OPERATIONS.get(name, OTHER).light
    hatch = {"hatch": _NETWORK_HATCH, "edgecolor": IDLE} if name in NETWORK else {}
    return {"facecolor": colour, "linewidth": 0, **hatch}


def kind_style(kind: str) -> dict[str, Any]:
    """The fill of a kind of message."""
    names = {"feedback": "feedback message"}
    known = KINDS.get(names.get(kind, kind))
    hatch = {"discriminators": "xxxx", "feedback": "////", "update": "////"}.get(kind, "")
    colour = (known or OTHER).light
    return {"facecolor": colour, "linewidth": 0, "hatch": hatch, "edgecolor": IDLE}


def legend(figure: Figure, axes: Axes | None = None, columns: int = 4) -> None:
    """Puts the legend above the axes, where it covers no data; the figure grows with it."""
    axes = axes or figure.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    room = figure.get_figwidth() * _LETTERS_AN_INCH
    fits = next((n for n in range(columns, 1, -1) if _legend_width(labels, n) <= room), 1)
    rows = -(-len(labels) // fits)
    figure.set_figheight(figure.get_figheight() + _INCHES_A_LEGEND_ROW * (rows - 1))
    figure.legend(handles, labels, loc="outside upper left", ncols=fits)


def _legend_width(labels: Sequence[str], columns: int) -> int:
    """In letters; a legend is filled column by column, the first ones being one longer."""
    height, longer = divmod(len(labels), columns)
    ends = [n * height + min(n, longer) for n in range(columns + 1)]
    longest = [max(map(len, labels[start:end]), default=0) for start, end in pairwise(ends)]
    return sum(longest) + _LETTERS_OF_HANDLE * min(columns, len(labels))


def iteration_axis(axes: Axes, label: str = "iteration", most_ticks: int = 6) -> None:
    """Whole numbers with separators along x."""
    axes.xaxis.set_major_locator(MaxNLocator(most_ticks, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel(label)


def time_axis(axes: Axes, longest_seconds: float) -> float:
    """Names the unit of time along x and returns how many seconds it has."""
    factor, unit = time_unit([longest_seconds])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(f"training time [{unit}]")
    return factor


def log_y(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def wants_log(values: Sequence[float], ratio: float) -> bool:
    """Whether positive values span so much that a linear axis would flatten most of them."""
    return bool(values) and min(values) > 0 and max(values) > ratio * min(values)
