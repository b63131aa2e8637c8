"""The style of figures, and parts that several figures share: axes, lines, bars, heat maps."""

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from mdgan.errors import printable
from mdgan.records.values import measured
from mdgan.report.numbers.durations import MOST_STRETCHES, BandedLine, envelope
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import ALGORITHMS, HEAT, INKS, LINES, OPERATIONS, OTHER, RUNS

INCHES, WIDE_INCHES = 4.0, 11.4  # how wide figures are; on a narrow screen a wide one is scrolled
INK, SOFT = INKS["ink"].light, INKS["soft"].light
GRID, AXIS, IDLE = LINES["grid"].light, LINES["axis"].light, LINES["idle"].light
COLOURS = [colour.light for colour in ALGORITHMS.values()]
MARKERS = "os^DvPX*"
DASHED = (0, (6, 3))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
COLOURED = {
    **{"batches": "send", "feedback": "feedback", "discriminators": "swap"},
    **{"round": "fake half", "update": "generate", "extractor": "aggregate"},
}
"""The kinds of messages with a colour of their own, and the operation that has the same."""
_NETWORK = frozenset({"send", "receive", "swap"})
_MOST_MARKERS = 12

_SETTINGS: dict[Any, Any] = {
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.grid.axis": "y",
    "grid.color": GRID,
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), SOFT),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), AXIS),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "text.parse_math": False,
    **dict.fromkeys(("font.size", "axes.titlesize"), 8.5),
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.8),
    **{"xtick.major.size": 3, "ytick.major.size": 0, "ytick.minor.size": 0},
    **{"lines.linewidth": 1.6, "lines.markersize": 4, "hatch.linewidth": 0.5},
    **{"legend.borderpad": 0.0, "legend.borderaxespad": 0.2},
    **{"legend.handlelength": 2.4, "legend.columnspacing": 1.4},
    **dict.fromkeys((f"figure.constrained_layout.{side}_pad" for side in "hw"), 0.03),
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # text that other programs can change, as journals want it
}

Rectangle: TypeAlias = tuple[float, float, float, float]  # x, y, width, height

Bars: TypeAlias = Sequence[tuple[str, Sequence[tuple[str, Mapping[str, float]]]]]
"""Groups of bars: a heading, and for each bar what stands beside it and how long its parts are."""

MOST_TICKS = 20
_MOST_COLUMNS, _MOST_OF_NAME = 8, 60
_LETTERS_AN_INCH = 14
_LETTERS_OF_HANDLE = 8
_INCHES_A_LEGEND_ROW = 0.17
_LOG_FROM_RATIO = 15
_INCHES_A_BAR = 0.27
_INCHES_A_HEADING = 0.2
_ROOM_FOR_VALUES = 1.15
_LEVELS = 24
_FAINTEST, _STRONGEST = 0.06, 0.72
_MOST_WRITTEN = 400
_GAP = 0.06


@contextmanager
def styled() -> Iterator[None]:
    """Figures drawn or saved in the block look the same, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        collects = gc.isenabled()
        gc.disable()  # collecting took a quarter of the time and found no garbage
        try:
            yield
        finally:
            if collects:
                gc.enable()


def run_colour(subject: Subject) -> str:
    """The colour of a run."""
    return RUNS[subject.colour].light


def run_style(subject: Subject) -> dict[str, Any]:
    """Colour, dashes and marker of a run: never colour alone."""
    return {
        "color": run_colour(subject),
        "linestyle": _DASHES[subject.position % len(_DASHES)],
        "marker": MARKERS[subject.position % len(MARKERS)],
    }


def operation_style(name: str) -> dict[str, Any]:
    """The fill of an operation: its colour, hatched if it is spent on the network."""
    colour = OPERATIONS.get(name, OTHER).light
    hatch = {"hatch": "////", "edgecolor": IDLE} if name in _NETWORK else {}
    return {"facecolor": colour, "linewidth": 0, **hatch}


def kind_style(kind: str) -> dict[str, Any]:
    """The fill of a kind of message."""
    known = OPERATIONS[COLOURED[kind]] if kind in COLOURED else OTHER
    hatch = {"discriminators": "xxxx", "feedback": "////", "update": "////"}.get(kind, "")
    return {"facecolor": known.light, "linewidth": 0, "hatch": hatch, "edgecolor": IDLE}


def new_figure(height: float, width: float = INCHES) -> Figure:
    """An empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def new_axes(height: float = 2.75, width: float = INCHES) -> tuple[Figure, Axes]:
    """A figure of this size in inches, with one axes."""
    figure = new_figure(height, width)
    return figure, figure.add_subplot()


def legend(figure: Figure) -> None:
    """Puts the legend above the axes, where it covers no data; the figure grows with it."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if not handles:
        return
    room = figure.get_figwidth() * _LETTERS_AN_INCH
    most = min(_MOST_COLUMNS, len(labels))
    fits = next((n for n in range(most, 1, -1) if _legend_width(labels, n) <= room), 1)
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


def log_if_wide(axes: Axes, values: Sequence[float], ratio: float = _LOG_FROM_RATIO) -> bool:
    """Makes y logarithmic if the values span so much that a linear axis would flatten most."""
    if not values or min(values) <= 0 or max(values) <= ratio * min(values):
        return False
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return True


def draw_line(
    axes: Axes, subject: Subject, label: str, line: BandedLine, factor: float = 1.0,
    **style: Any,
) -> None:  # fmt: skip
    """A line in the style of a run, and a band where the least and the greatest value differ."""
    if not line.x:
        return
    x = [value / factor for value in line.x]
    if line.low != line.high:
        colour = run_colour(subject)
        look: dict[str, Any] = {"color": colour, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(x, line.low, line.high, label=f"_{label}", **look)
    every = max(1, -(-len(x) // _MOST_MARKERS))  # so that markers do not hide the line
    axes.plot(x, line.middle, **run_style(subject), markevery=every, label=label, **style)


def draw_each(axes: Axes, series: Mapping[str, Mapping[int, float]]) -> None:
    """A line for each of several things that are not runs, such as workers; few are named."""
    for place, (name, values) in enumerate(series.items()):
        thin = envelope(values, MOST_STRETCHES)
        axes.plot(thin.x, thin.middle, **style_of_one(name, place, len(series)))
    axes.margins(x=0.02)


def style_of_one(name: str, place: int, many: int) -> dict[str, Any]:
    """The look of one line of many that are not runs; few have dashes and names, too."""
    few = many <= len(COLOURS)
    look = {"linestyle": _DASHES[place % len(_DASHES)], "label": name} if few else {"alpha": 0.5}
    return {"color": COLOURS[place % len(COLOURS)], "linewidth": 1, "label": f"_{name}", **look}


def name_bars(boxes: BarContainer, names: Sequence[str]) -> None:
    """Says what bars are of; it is not drawn, but stands in the numbers of the figure."""
    for box, name in zip(boxes, names, strict=False):
        box.set_label(f"_{name}")


def bar_chart(
    groups: Bars,
    parts: Sequence[str],
    style: Callable[[str], dict[str, Any]],
    label: str,
    with_legend: bool = False,
) -> Figure:
    """Lying stacked bars with the sum at their ends; long names stand above them, not beside."""
    headings = _INCHES_A_HEADING * sum(bool(heading) for heading, _ in groups)
    height = headings + _INCHES_A_BAR * sum(len(members) for _, members in groups)
    figure, axes = new_axes(height + (0.8 if with_legend else 0.5))
    places: list[float] = []
    y = 0.0
    for heading, members in groups:
        if heading:
            axes.text(0, y - 0.05, heading, color=INK, va="center", ha="left")
            y += (_INCHES_A_HEADING + _INCHES_A_BAR) / 2 / _INCHES_A_BAR
        places += [y + k for k in range(len(members))]
        y += len(members)
        y += _INCHES_A_HEADING / _INCHES_A_BAR / 2 - 0.5 if heading else 0
    bars = [bar for _, members in groups for _, bar in members]
    names = [
        " ".join(filter(None, (above, own))) for above, members in groups for own, _ in members
    ]
    lefts = [0.0] * len(bars)
    for part in parts:
        values = [bar.get(part, 0.0) for bar in bars]
        boxes = axes.barh(places, values, left=lefts, height=0.72, label=part, **style(part))
        name_bars(boxes, names)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    for place, total in zip(places, lefts, strict=True):
        axes.text(total + max(lefts) / 60, place, measured(total), va="center", color=INK)
    axes.set_yticks(places, [name for _, members in groups for name, _ in members])
    axes.set(ylim=(places[-1] + 0.5, -0.5), xlabel=label)
    axes.set_xlim(0, _ROOM_FOR_VALUES * max(lefts) or 1)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    if with_legend:
        legend(figure)
    return figure


def lane_chart(height: float, names: Sequence[str], length: float) -> tuple[Figure, Axes]:
    """An empty wide figure with a lane for each name, the first at the top."""
    figure, axes = new_axes(height, WIDE_INCHES)
    axes.set(xlim=(0, length), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    return figure, axes


def some_names(set_ticks: Callable[..., Any], names: Sequence[Any], most: int = MOST_TICKS) -> None:
    """Writes at most so many names beside their places, which are 0, 1, 2 and so on."""
    step = -(-len(names) // most) or 1
    shown = [printable(str(name), _MOST_OF_NAME) for name in names[::step]]
    set_ticks(range(0, len(names), step), shown)


def rectangles(axes: Axes, boxes: Iterable[Rectangle], **style: Any) -> None:
    """Draws rectangles of one look as one path: small files, and no seams."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    if corners:
        axes.add_patch(PathPatch(Path.make_compound_path_from_polys(np.array(corners)), **style))


def heat_map(axes: Axes, values: Sequence[Sequence[float]], written: bool = True) -> None:
    """Draws a matrix, row 0 at the top, darker for more; with the numbers if there is room."""
    size = len(values) * len(values[0])
    greatest = max(max(row) for row in values) or 1.0
    gap = _GAP if size <= _MOST_WRITTEN else 0.0
    levels: defaultdict[int, list[Rectangle]] = defaultdict(list)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value > 0:
                box = (x - 0.5 + gap / 2, y - 0.5 + gap / 2, 1 - gap, 1 - gap)
                levels[max(1, round(_LEVELS * value / greatest))].append(box)
                if written and size <= _MOST_WRITTEN:
                    axes.text(x, y, f"{value:.0f}", ha="center", va="center")
    for level, boxes in sorted(levels.items()):
        opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * level / _LEVELS
        rectangles(axes, boxes, facecolor=HEAT.light, alpha=opacity, linewidth=0)
    axes.set(xlim=(-0.5, len(values[0]) - 0.5), ylim=(len(values) - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
