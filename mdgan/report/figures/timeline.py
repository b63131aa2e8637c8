"""Who did what when."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure

from mdgan.records.values import count, said_seconds, time_unit
from mdgan.report.figures.charts import Rectangle, lane_chart, lane_legend, rectangles
from mdgan.report.figures.operations import ORDER
from mdgan.report.figures.picture import Picture, one_each
from mdgan.report.figures.style import GRID, IDLE, operation_style
from mdgan.report.numbers import timeline as numbers
from mdgan.report.numbers.operations import in_order
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.timeline import MOST_LANES, Lane, Timeline
from mdgan.report.numbers.units import plural

_LANE_HEIGHT = 0.7
_LEGEND_COLUMNS = 7


def ten(subject: Subject) -> Timeline | None:
    """Ten typical iterations or rounds in a row."""
    window = numbers.typical_window(subject)
    return numbers.timeline(subject, *window) if window else None


def one(subject: Subject) -> Timeline | None:
    """One typical iteration or round out of these ten."""
    chosen = numbers.typical_iteration(subject)
    return numbers.timeline(subject, chosen, chosen) if chosen is not None else None


def scoring(subject: Subject) -> Timeline | None:
    """Up to ten iterations or rounds while a generator was scored."""
    window = numbers.scoring_window(subject)
    return numbers.timeline(subject, *window) if window else None


def timelines(found: Sequence[tuple[Subject, Timeline]]) -> Picture:
    """What every role did."""
    rows = [
        (
            subject.label,
            lane.label,
            f"{100 * lane.busy(lines.seconds):.0f} %",
            *_longest(lane),
        )
        for subject, lines in found
        for lane in lines.lanes
    ]
    header = ("run", "lane", "recorded as doing something", "mostly", "for")
    return one_each(found, _draw, _said, header, rows)


def timelines_while_scoring(found: Sequence[tuple[Subject, Timeline]]) -> Picture:
    """The same, with what scoring cost the only run."""
    picture = timelines(found)
    if len(found) > 1:
        return picture
    return replace(picture, seen=f"{picture.seen} {_cost(found[0][0])}".strip())


def _cost(subject: Subject) -> str:
    beside, alone = numbers.durations_while_scoring(subject)
    if not beside or not alone:
        return ""
    return (
        f"{plural(subject.unit).capitalize()} took {said_seconds(fmean(beside))} in the mean "
        f"while a generator was scored, {said_seconds(fmean(alone))} otherwise."
    )


def _said(subject: Subject, lines: Timeline) -> str:
    if lines.first == lines.last:
        which = f"{subject.unit} {lines.first:,}"
    else:
        which = f"{plural(subject.unit)} {lines.first:,} to {lines.last:,}"
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


def _draw(_subject: Subject, lines: Timeline) -> Figure:
    factor, unit = time_unit([lines.seconds])
    by_operation: dict[str, list[Rectangle]] = {}
    for y, lane in enumerate(lines.lanes):
        for name, start, seconds in lane.spans:
            box = (start / factor, y - _LANE_HEIGHT / 2, seconds / factor, _LANE_HEIGHT)
            by_operation.setdefault(name, []).append(box)
    names = in_order(by_operation, ORDER)
    legend_rows = -(-(len(names) + 1) // _LEGEND_COLUMNS)
    height = 0.5 + 0.19 * legend_rows + 0.27 * len(lines.lanes)
    length = lines.seconds / factor
    figure, axes = lane_chart(height, [lane.label for lane in lines.lanes], (0, length))
    lanes = range(len(lines.lanes))
    background = [(0.0, y - _LANE_HEIGHT / 2, length, _LANE_HEIGHT) for y in lanes]
    rectangles(axes, background, facecolor=IDLE, edgecolor=GRID, linewidth=0.8, label="idle")
    for name in names:
        rectangles(axes, by_operation[name], **operation_style(name), label=name)
    axes.set_xlabel(f"time [{unit}]")
    lane_legend(figure, _LEGEND_COLUMNS)
    return figure
