"""How long iterations, or rounds, take."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TypeAlias

from mdgan.records.values import chosen_evenly, count, number_in, said, said_list, said_seconds
from mdgan.records.values import time_unit as unit_of_time
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import SOFT, dot_style, line_style, run_colour
from mdgan.report.numbers.durations import envelope, straight_line, summary
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.units import a, plural, unit_of

_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12
_MOST_ROWS = 24

Timed: TypeAlias = Sequence[tuple[Subject, Mapping[int, float]]]
"""Runs, and the seconds of their complete iterations or rounds by iteration."""


def of_run(subject: Subject) -> Mapping[int, float]:
    """How long the iterations or rounds of a run took."""
    return subject.durations


def with_outliers(found: Timed) -> Picture:
    """Duration against iteration, or against the number of the round."""
    return _durations(found, crosses=True)


def without_outliers(found: Timed) -> Picture:
    """The same without those that took unusually long."""
    return _durations(found, crosses=False)


def _durations(found: Timed, crosses: bool) -> Picture:
    unit = unit_of([subject for subject, _ in found])
    shown = [
        {_place(s, i, unit): took[i] for i in sorted(took) if crosses or i in s.ordinary}
        for s, took in found
    ]
    middles = [median(series.values()) for series in shown]
    factor, unit_of_y = unit_of_time(middles)
    figure, axes = charts.new_axes()
    for (subject, took), series in zip(found, shown, strict=True):
        thin = envelope({x: y / factor for x, y in series.items()}, _MOST_STRETCHES)
        charts.draw_line(axes, subject, subject.label, thin, markersize=3, linewidth=1.1)
        slow = {_place(subject, i, unit): took[i] / factor for i in sorted(subject.outliers)}
        worst = envelope(slow if crosses else {}, _MOST_STRETCHES)
        axes.plot(worst.x, worst.high, "x", color=run_colour(subject), markersize=4)
    axes.set_ylabel(f"duration [{unit_of_y}]")
    longest = max(max(series.values()) for series in shown)
    if not charts.log_if_wide(axes, [*middles, longest], _LOG_FROM_RATIO):
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    charts.iteration_axis(axes, "round" if unit == "round" else "iteration")
    if len(found) > 1:
        charts.legend(figure)
    seen = only(
        [
            f"{count(len(s.outliers), 'outlier')} among {count(len(took), s.unit)}"
            for s, took in found
        ]
    )
    if max(map(len, shown)) > _MOST_STRETCHES:
        seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return together(figure, seen, *_table(found))


def _place(subject: Subject, iteration: int, unit: str) -> int:
    """Where it is drawn: beside runs without rounds, a round stands where it ends."""
    return subject.number_of(iteration) if unit == "round" else iteration


def _table(found: Timed) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for subject, took in found:
        numbers = summary([took[i] for i in subject.ordinary])
        assert numbers is not None
        mean, low, middle, high, _ = map(said_seconds, numbers)
        times = (mean, low, middle, high, said_seconds(max(took.values())))
        slow = f"{len(subject.outliers):,} of {len(took):,}"
        which = said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–"
        rows.append((subject.label, *times, slow, said_seconds(subject.threshold), which))
    five = ("mean", "10 % below", "median", "10 % above", "longest of all")
    units = plural(unit_of([subject for subject, _ in found]))
    return ("run", *five, "outliers", "outliers are above", f"in {units}"), rows


def average(found: Timed) -> Picture:
    """Mean duration of every run without outliers, with spread."""
    known = [(s, summary([took[i] for i in s.ordinary])) for s, took in found]
    numbers = [(subject, five) for subject, five in known if five is not None]
    factor, unit = unit_of_time(five.mean for _, five in numbers)
    colours = {subject.label: run_colour(subject) for subject, _ in numbers}
    figure = charts.bar_chart(
        [
            (s.label if len(found) > 1 else "", [("", {s.label: five.mean / factor})])
            for s, five in numbers
        ],
        list(colours),
        lambda label: {"color": colours[label]},
        f"mean duration of {a(unit_of([subject for subject, _ in found]))} [{unit}]",
        [(five.low / factor, five.high / factor) for _, five in numbers],
    )
    seen = only([said_seconds(five.mean) for _, five in numbers])
    return together(figure, seen, *_table(found))


def against_workers(found: Timed) -> Picture | str:
    """Mean duration against the number of workers; dashed for runs that have none."""
    means = [(s.num_workers, fmean(took[i] for i in s.ordinary), s) for s, took in found]
    points = sorted((p for p in means if p[0]), key=lambda point: point[:2])
    num_different = len({workers for workers, _, _ in points})
    if num_different < 2:
        return "this needs traced runs with different numbers of workers"
    factor, unit = unit_of_time(mean for _, mean, _ in points)
    figure, axes = charts.new_axes()
    axes.plot([n for n, _, _ in points], [mean / factor for _, mean, _ in points], color=SOFT)
    for workers, mean, s in points:
        axes.plot(workers, mean / factor, **dot_style(s), markersize=7, label=s.label)
    most = points[-1][0]
    seen = ""
    line = straight_line([(workers, mean) for workers, mean, _ in points])
    if line and num_different > 2:
        start, slope = line
        ends = [start / factor, (start + slope * most) / factor]
        axes.plot([0, most], ends, color=SOFT, linewidth=1, linestyle=":", label="straight line")
        seen = f"The straight line through them rises by {said_seconds(slope)} a worker."
    for workers, mean, s in means:
        if not workers:
            axes.axhline(mean / factor, color=run_colour(s), linestyle="--", label=s.label)
    axes.set(ylim=(0, None), xlim=(0, 1.05 * most), ylabel=f"mean duration [{unit}]")
    charts.iteration_axis(axes, "number of workers")
    charts.legend(figure)
    rows = [(s.label, str(workers), said_seconds(mean)) for workers, mean, s in points]
    return together(figure, seen, ("run", "workers", "mean duration"), rows)


def progress(subject: Subject) -> list[tuple[float, float]]:
    """(seconds, iterations done), from nothing on; empty if nothing is recorded."""
    found = [(0.0, 0.0)]
    for record in subject.run.iterations:
        seconds, done = number_in(record, "seconds"), number_in(record, "iteration")
        if seconds is not None and done is not None:
            found.append((seconds, done))
    return found if len(found) > 1 else []


def iterations_against_time(found: Sequence[tuple[Subject, list[tuple[float, float]]]]) -> Picture:
    """Iterations done against training time."""
    figure, axes = charts.new_axes()
    factor = charts.time_axis(axes, max(points[-1][0] for _, points in found))
    for subject, points in found:
        thin = chosen_evenly(points, _MOST_STRETCHES)
        x, y = [seconds / factor for seconds, _ in thin], [done for _, done in thin]
        axes.plot(x, y, **line_style(subject, len(thin)), label=subject.label)
    axes.set_xlim(0, None)
    charts.count_axis(axes, "iterations done")
    if len(found) > 1:
        charts.legend(figure)
    rows = [
        (subject.label, said_seconds(seconds), f"{done:,.0f}")
        for subject, points in found
        for seconds, done in chosen_evenly(points, _MOST_ROWS // len(found) + 2)
    ]
    ends = [points[-1] for _, points in found]
    speeds = [f"{said(done / took)} iterations a second" for took, done in ends if took]
    return together(figure, only(speeds), ("run", "time", "iterations"), rows)
