"""Who did what when."""

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.charts import Rectangle, lane_chart, legend, rectangles
from mdgan.report.figures.costs import ORDER
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import IDLE, operation_style
from mdgan.report.numbers import timeline as numbers
from mdgan.report.numbers.durations import in_order
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.timeline import MOST_LANES, Lane, Timeline

_LANE_HEIGHT = 0.7


def ten(subject: Subject) -> Timeline | None:
    """Ten typical iterations or rounds in a row."""
    window = numbers.typical_window(subject)
    return numbers.timeline(subject, *window) if window else None


def one(subject: Subject) -> Timeline | None:
    """One typical iteration or round out of these ten."""
    chosen = numbers.typical_iteration(subject)
    return numbers.timeline(subject, chosen, chosen) if chosen is not None else None


def timelines(found: Sequence[tuple[Subject, Timeline]]) -> Picture:
    """What every role did."""
    rows = [
        (subject.label, lane.label, f"{100 * lane.busy(lines.seconds):.0f} %", *_longest(lane))
        for subject, lines in found
        for lane in lines.lanes
    ]
    header = ("run", "lane", "recorded as doing something", "mostly", "for")
    return one_each(
        found, partial(_draw, wide=True), _said, Table(header, rows), partial(_draw, wide=False)
    )


def _said(subject: Subject, lines: Timeline) -> str:
    if lines.first == lines.last:
        which = f"{subject.unit} {lines.first:,}"
    else:
        which = f"{subject.unit}s {lines.first:,} to {lines.last:,}"
    left_out = count(lines.num_left_out, "more lane is", "more lanes are")
    more = f"; only {MOST_LANES} lanes fit, {left_out} left out" if lines.num_left_out else ""
    return f"{which}, {said_seconds(lines.seconds)}{more}"


def _longest(lane: Lane) -> tuple[str, str]:
    totals: dict[str, float] = {}
    for name, _, seconds in lane.spans:
        totals[name] = totals.get(name, 0.0) + seconds
    if not totals:
        return "–", "–"
    name, seconds = max(totals.items(), key=lambda item: item[1])
    return name, said_seconds(seconds)


def _draw(_subject: Subject, lines: Timeline, wide: bool) -> Figure:
    factor, unit = time_unit([lines.seconds])
    by_operation: dict[str, list[Rectangle]] = {}
    for y, lane in enumerate(lines.lanes):
        for name, start, seconds in lane.spans:
            box = (start / factor, y - _LANE_HEIGHT / 2, seconds / factor, _LANE_HEIGHT)
            by_operation.setdefault(name, []).append(box)
    height, length = 0.69 + 0.27 * len(lines.lanes), lines.seconds / factor
    figure, axes = lane_chart(height, [lane.label for lane in lines.lanes], (0, length), wide)
    lanes = range(len(lines.lanes))
    background = [(0.0, y - _LANE_HEIGHT / 2, length, _LANE_HEIGHT) for y in lanes]
    rectangles(axes, background, facecolor=IDLE, linewidth=0, label="idle")
    for name in in_order(by_operation, ORDER):
        rectangles(axes, by_operation[name], **operation_style(name), label=name)
    axes.set_xlabel(f"time [{unit}]")
    legend(figure)
    return figure
