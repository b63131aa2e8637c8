"""Who did what when."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.durations import NO_TRACE
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.shapes import Rectangle, rectangles
from mdgan.report.figures.style import (
    GRID,
    IDLE,
    SOFT,
    new_figure,
    operation_style,
)
from mdgan.report.numbers.operations import (
    SERVER_ORDER,
    STANDALONE_ORDER,
    WORKER_ORDER,
    in_order,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table
from mdgan.report.numbers.timeline import (
    MOST_LANES,
    Timeline,
    durations_while_scoring,
    scoring_window,
    timeline,
    typical_iteration,
    typical_window,
)
from mdgan.report.numbers.units import plural

_ORDER = tuple(dict.fromkeys(STANDALONE_ORDER[:4] + SERVER_ORDER + WORKER_ORDER))
_LANE_HEIGHT = 0.7
_LEGEND_COLUMNS = 7


def timeline_of_ten(subjects: Sequence[Subject]) -> Picture | str:
    """All roles during ten iterations or rounds (figure 7.10)."""
    windows = [(subject, typical_window(subject)) for subject in subjects]
    found = [(s, timeline(s, *window)) for s, window in windows if window is not None]
    return _picture(found)


def timeline_of_one(subjects: Sequence[Subject]) -> Picture | str:
    """All roles during one iteration or round (figure 7.11)."""
    chosen = [(subject, typical_iteration(subject)) for subject in subjects]
    return _picture([(s, timeline(s, i, i)) for s, i in chosen if i is not None])


def timeline_of_scoring(subjects: Sequence[Subject]) -> Picture | str:
    """All roles and the scorer during ten iterations or rounds."""
    windows = [(subject, scoring_window(subject)) for subject in subjects]
    found = [(s, timeline(s, *window)) for s, window in windows if window is not None]
    picture = _picture(found)
    if isinstance(picture, str):
        return "nothing was scored while training went on"
    costs = only(list(filter(None, (_cost(subject) for subject, _ in found))))
    return replace(picture, seen=f"{picture.seen} {costs}".strip() if len(found) == 1 else "")


def _cost(subject: Subject) -> str:
    beside, alone = durations_while_scoring(subject)
    if not beside or not alone:
        return ""
    return (
        f"{plural(subject.unit).capitalize()} took {said_seconds(fmean(beside))} in the mean "
        "while a generator was scored, "
        f"{said_seconds(fmean(alone))} otherwise"
    )


def _picture(found: Sequence[tuple[Subject, Timeline]]) -> Picture | str:
    if not found:
        return NO_TRACE
    several = len(found) > 1
    panels = [
        Panel(subject.label, _draw(lines), _said(subject, lines))
        if several
        else Panel("", _draw(lines))
        for subject, lines in found
    ]
    rows = [
        (
            subject.label,
            lane.label,
            f"{100 * lane.busy(lines.seconds):.0f} %",
            *_longest(lane.spans),
        )
        for subject, lines in found
        for lane in lines.lanes
    ]
    header = ("run", "lane", "recorded as doing something", "mostly", "for")
    return Picture(panels, only([_said(s, lines) for s, lines in found]), Table(header, rows))


def _said(subject: Subject, lines: Timeline) -> str:
    if lines.first == lines.last:
        which = f"{subject.unit} {lines.first:,}"
    else:
        which = f"{plural(subject.unit)} {lines.first:,} to {lines.last:,}"
    more = ""
    if lines.num_left_out:
        left_out = count(lines.num_left_out, "more lane is", "more lanes are")
        more = f"; only {MOST_LANES} lanes fit, {left_out} left out"
    return f"{which}, {said_seconds(lines.seconds)}{more}"


def _longest(spans: Sequence[tuple[str, float, float]]) -> tuple[str, str]:
    totals: dict[str, float] = {}
    for name, _, seconds in spans:
        totals[name] = totals.get(name, 0.0) + seconds
    if not totals:
        return "–", "–"
    name = max(totals, key=lambda operation: totals[operation])
    return name, said_seconds(totals[name])


def _draw(lines: Timeline) -> Figure:
    factor, unit = time_unit([lines.seconds])
    by_operation: dict[str, list[Rectangle]] = {}
    for y, lane in enumerate(lines.lanes):
        for name, start, seconds in lane.spans:
            box = (start / factor, y - _LANE_HEIGHT / 2, seconds / factor, _LANE_HEIGHT)
            by_operation.setdefault(name, []).append(box)
    names = in_order(by_operation, _ORDER)
    legend_rows = -(-(len(names) + 1) // _LEGEND_COLUMNS)
    figure = new_figure(0.5 + 0.19 * legend_rows + 0.27 * len(lines.lanes), wide=True)
    axes = figure.add_subplot()
    length = lines.seconds / factor
    lanes = range(len(lines.lanes))
    background = [(0.0, y - _LANE_HEIGHT / 2, length, _LANE_HEIGHT) for y in lanes]
    rectangles(axes, background, facecolor=IDLE, linewidth=0)
    for name in names:
        rectangles(axes, by_operation[name], **operation_style(name))
    axes.set_yticks(lanes, [lane.label for lane in lines.lanes])
    axes.set(xlim=(0, length), ylim=(len(lines.lanes) - 0.5, -0.5), xlabel=f"time [{unit}]")
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    handles = [Patch(**operation_style(name), label=name) for name in names]
    idle = Patch(facecolor=IDLE, edgecolor=GRID, linewidth=0.8, label="idle")
    figure.legend(
        handles=[*handles, idle],
        loc="outside upper left",
        ncols=_LEGEND_COLUMNS,
        labelcolor=SOFT,
        handlelength=1.6,
    )
    return figure
