"""How long iterations, or rounds, take."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from mdgan.records.values import (
    chosen_evenly,
    count,
    number_in,
    said,
    said_list,
    said_seconds,
    time_unit,
)
from mdgan.report.figures.charts import (
    bar_chart,
    count_axis,
    draw_line,
    iteration_axis,
    legend,
    log_if_wide,
    new_axes,
    time_axis,
)
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import SOFT, dot_style, line_style, run_colour
from mdgan.report.numbers.durations import (
    Summary,
    envelope,
    straight_line,
    summary,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.units import a, plural, unit_of

_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12
_MOST_ROWS = 24


class Durations(NamedTuple):
    """How long the iterations or rounds of a run took.

    Attributes:
        ordinary: the iterations that are no outliers.
        slow: the outliers.
        about: the ordinary ones in five numbers; None if there are none.
    """

    ordinary: set[int]
    slow: set[int]
    about: Summary | None


def with_outliers(subject: Subject) -> Durations:
    """All durations of a run."""
    ordinary = subject.ordinary
    return Durations(
        ordinary, subject.outliers, summary([subject.durations[i] for i in sorted(ordinary)])
    )


def without_outliers(subject: Subject) -> Durations:
    """The same without those that took unusually long."""
    return with_outliers(subject)._replace(slow=set())


def mean_duration(subject: Subject) -> float:
    """Mean duration without outliers, in seconds."""
    return fmean(subject.durations[i] for i in subject.ordinary)


def duration(found: Sequence[tuple[Subject, Durations]]) -> Picture:
    """Duration against iteration, or against the number of the round."""
    subjects = [subject for subject, _ in found]
    numbered = (
        unit_of(subjects) == "round"
    )  # beside runs without rounds, these stand where they end
    shown = [_by_place(s, took.ordinary | took.slow, numbered) for s, took in found]
    middles = [envelope(series, 1).middle[0] for series in shown]
    factor, unit = time_unit(middles)
    figure, axes = new_axes()
    for (subject, took), series in zip(found, shown, strict=True):
        scaled = {i: seconds / factor for i, seconds in series.items()}
        thin = envelope(scaled, _MOST_STRETCHES)
        draw_line(axes, subject, subject.label, thin, markersize=3, linewidth=1.1)
        slow = {i: s / factor for i, s in _by_place(subject, took.slow, numbered).items()}
        worst = envelope(slow, _MOST_STRETCHES)
        axes.plot(worst.x, worst.high, "x", color=run_colour(subject), markersize=4)
    axes.set_ylabel(f"duration [{unit}]")
    longest = max(seconds for series in shown for seconds in series.values())
    if not log_if_wide(axes, [*middles, longest], _LOG_FROM_RATIO):
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    iteration_axis(axes, "round" if numbered else "iteration")
    if len(found) > 1:
        legend(figure)
    seen = only(
        [f"{count(len(s.outliers), 'outlier')} among {count(len(s.durations), s.unit)}"
         for s in subjects]
    )  # fmt: skip
    if max(map(len, shown)) > _MOST_STRETCHES:
        seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return together(figure, seen, *_summary_table(found))


def _by_place(subject: Subject, iterations: Iterable[int], numbered: bool) -> dict[int, float]:
    """The durations of some iterations by where they are drawn: rounds by number, if so told."""
    found = sorted(iterations)
    return {subject.number_of(i) if numbered else i: subject.durations[i] for i in found}


def _summary_table(found: Sequence[tuple[Subject, Durations]]) -> tuple[Row, list[Row]]:
    rows = []
    for subject, (_, _, about) in found:
        assert about is not None
        longest = max(subject.durations.values())
        times = (about.mean, about.low, about.middle, about.high, longest)
        rows.append(
            (
                subject.label,
                *map(said_seconds, times),
                f"{len(subject.outliers):,} of {len(subject.durations):,}",
                said_seconds(subject.threshold),
                said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–",
            )
        )
    times_header = ("mean", "10 % below", "median", "10 % above", "longest of all")
    units = plural(unit_of([subject for subject, _ in found]))
    return ("run", *times_header, "outliers", "outliers are above", f"in {units}"), rows


def average_duration(found: Sequence[tuple[Subject, Durations]]) -> Picture:
    """Mean duration of every run, with spread."""
    known = [(subject, took.about) for subject, took in found if took.about is not None]
    factor, unit = time_unit(about.mean for _, about in known)
    colours = {subject.label: run_colour(subject) for subject, _ in known}
    figure = bar_chart(
        [
            (subject.label if len(known) > 1 else "", [("", {subject.label: about.mean / factor})])
            for subject, about in known
        ],
        list(colours),
        lambda label: {"color": colours[label]},
        f"mean duration of {a(unit_of([subject for subject, _ in known]))} [{unit}]",
        [(about.low / factor, about.high / factor) for _, about in known],
    )
    seen = only([said_seconds(about.mean) for _, about in known])
    return together(figure, seen, *_summary_table(found))


def duration_against_workers(found: Sequence[tuple[Subject, float]]) -> Picture | str:
    """Mean duration against the number of workers; dashed for runs that have none."""
    points = sorted(
        ((s.num_workers, mean, s) for s, mean in found if s.num_workers), key=lambda p: p[:2]
    )
    if len({workers for workers, _, _ in points}) < 2:
        return "this needs traced runs with different numbers of workers"
    factor, unit = time_unit(mean for _, mean, _ in points)
    figure, axes = new_axes()
    axes.plot([n for n, _, _ in points], [mean / factor for _, mean, _ in points], color=SOFT)
    for workers, mean, s in points:
        axes.plot(workers, mean / factor, **dot_style(s), markersize=7, label=s.label)
    most = points[-1][0]
    seen = ""
    line = straight_line([(workers, mean) for workers, mean, _ in points])
    if line and len({workers for workers, _, _ in points}) > 2:
        start, slope = line
        ends = [start / factor, (start + slope * most) / factor]
        axes.plot([0, most], ends, color=SOFT, linewidth=1, linestyle=":", label="straight line")
        seen = f"The straight line through them rises by {said_seconds(slope)} a worker."
    for s, mean in found:
        if not s.num_workers:
            axes.axhline(mean / factor, color=run_colour(s), linestyle="--", label=s.label)
    axes.set(ylim=(0, None), xlim=(0, 1.05 * most), ylabel=f"mean duration [{unit}]")
    iteration_axis(axes, "number of workers")
    legend(figure)
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
    figure, axes = new_axes()
    factor = time_axis(axes, max(points[-1][0] for _, points in found))
    for subject, points in found:
        thin = chosen_evenly(points, _MOST_STRETCHES)
        x, y = [seconds / factor for seconds, _ in thin], [done for _, done in thin]
        axes.plot(x, y, **line_style(subject, len(thin)), label=subject.label)
    axes.set_xlim(0, None)
    count_axis(axes, "iterations done")
    if len(found) > 1:
        legend(figure)
    rows = [
        (subject.label, said_seconds(seconds), f"{done:,.0f}")
        for subject, points in found
        for seconds, done in chosen_evenly(points, _MOST_ROWS // len(found) + 2)
    ]
    ends = [points[-1] for _, points in found]
    speeds = [f"{said(done / took)} iterations a second" for took, done in ends if took]
    return together(figure, only(speeds), ("run", "time", "iterations"), rows)
