"""Who did what when, and how long iterations, or rounds, take."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from mdgan.records.values import count, said_list, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.charts import Rectangle, lane_chart, legend, rectangles
from mdgan.report.figures.costs import ORDER
from mdgan.report.figures.picture import Picture, Row, Table, one_each, only, together
from mdgan.report.figures.style import IDLE, operation_style, run_colour
from mdgan.report.numbers import timeline as numbers
from mdgan.report.numbers.durations import envelope, in_order
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


_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12

Timed: TypeAlias = Sequence[tuple[Subject, Mapping[int, float]]]
"""Runs, and the seconds of their complete iterations or rounds by iteration."""


def each(found: Timed) -> Picture:
    """Duration against iteration, or against the number of the round; crosses are outliers."""
    series = [{s.number_of(i): took[i] for i in sorted(took)} for s, took in found]
    middles = [median(took.values()) for took in series]
    factor, unit = time_unit(middles)
    figure, axes = charts.new_axes()
    for (subject, _), took in zip(found, series, strict=True):
        thin = envelope({x: y / factor for x, y in took.items()}, _MOST_STRETCHES)
        charts.draw_line(axes, subject, subject.label, thin, markersize=3, linewidth=1.1)
        slow = {subject.number_of(i) for i in subject.outliers}
        worst = envelope({i: took[i] / factor for i in sorted(slow)}, _MOST_STRETCHES)
        axes.plot(worst.x, worst.high, "x", color=run_colour(subject), markersize=4)
    axes.set_ylabel(f"duration [{unit}]")
    longest = max(max(took.values()) for took in series)
    if not charts.log_if_wide(axes, [*middles, longest], _LOG_FROM_RATIO):
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    charts.iteration_axis(axes, found[0][0].unit)
    if len(found) > 1:
        charts.legend(figure)
    seen = only([_said_outliers(subject) for subject, _ in found])
    if max(map(len, series)) > _MOST_STRETCHES:
        seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return together(figure, seen, *_table(found))


def _said_outliers(subject: Subject) -> str:
    """How many are outliers, and whether scoring makes the others longer."""
    told = f"{count(len(subject.outliers), 'outlier')} among "
    told += count(len(subject.durations), subject.unit)
    beside, alone = subject.durations_while_scoring()
    if beside and alone:
        told += (
            f"; the others took {said_seconds(fmean(beside))} in the mean while a generator was "
            f"scored, {said_seconds(fmean(alone))} otherwise"
        )
    return told


def _table(found: Timed) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for subject, took in found:
        ordinary = [took[i] for i in subject.ordinary]
        middle = (fmean(ordinary), *np.quantile(ordinary, (0.1, 0.5, 0.9)), max(took.values()))
        times = map(said_seconds, map(float, middle))
        slow = f"{len(subject.outliers):,} of {len(took):,}"
        which = said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–"
        workers = f"{subject.num_workers:,}" if subject.num_workers else "–"
        limit = said_seconds(subject.threshold)
        rows.append((subject.label, workers, *times, slow, limit, which))
    five = ("mean", "10 % below", "median", "10 % above", "longest of all")
    slow_ones = ("outliers", "outliers are above", f"in {found[0][0].unit}s")
    return ("run", "workers", *five, *slow_ones), rows
