"""How long iterations, or rounds, take."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from matplotlib.axes import Axes

from mdgan.records.values import (
    chosen_evenly,
    count,
    number_in,
    said,
    said_list,
    said_seconds,
    time_unit,
)
from mdgan.report.figures.bars import heights, lying_bars
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.style import (
    SOFT,
    iteration_axis,
    legend,
    line_style,
    log_y,
    new_figure,
    run_colour,
    run_style,
    time_axis,
    wants_log,
)
from mdgan.report.numbers.durations import OUTLIERS_ARE, envelope, straight_line, summary
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table
from mdgan.report.numbers.units import a, plural, unit_of

NO_TRACE = (
    "no complete iteration or round is in the trace of the server (or of the standalone process) "
    "yet"
)
_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12
_MOST_ROWS = 24


def iteration_duration(subjects: Sequence[Subject]) -> Picture | str:
    """Duration against iteration, with outliers (figures 7.1 and E.2)."""
    return _durations(subjects, with_outliers=True)


def iteration_duration_without_outliers(subjects: Sequence[Subject]) -> Picture | str:
    """Duration against iteration, without outliers (figures 7.2 and E.3)."""
    return _durations(subjects, with_outliers=False)


def average_iteration_duration(subjects: Sequence[Subject]) -> Picture | str:
    """Mean duration of every run, with spread (figure E.1)."""
    timed = [subject for subject in subjects if subject.durations]
    if not timed:
        return NO_TRACE
    found = [(s, summary([s.durations[i] for i in s.ordinary])) for s in timed]
    known = [(subject, numbers) for subject, numbers in found if numbers is not None]
    factor, unit = time_unit(numbers.mean for _, numbers in known)
    several = len(known) > 1
    groups = [
        (subject.label if several else "", [("", {subject.label: numbers.mean / factor})])
        for subject, numbers in known
    ]
    colours = {subject.label: run_colour(subject) for subject, _ in known}
    figure = new_figure(heights(groups) + 0.6)
    axes = figure.add_subplot()
    whiskers = [(numbers.low / factor, numbers.high / factor) for _, numbers in known]
    lying_bars(axes, groups, list(colours), lambda label: {"color": colours[label]}, whiskers)
    of = a(unit_of([subject for subject, _ in known]))
    axes.set_xlabel(f"mean duration of {of} [{unit}]")
    seen = only([said_seconds(numbers.mean) for _, numbers in known])
    return Picture([Panel("", figure)], seen, _summary_table(timed))


def duration_against_workers(subjects: Sequence[Subject]) -> Picture | str:
    """Mean duration against the number of workers (figure 7.5)."""
    points = [
        (s.num_workers, fmean(s.durations[i] for i in s.ordinary), s)
        for s in subjects
        if s.durations and not s.standalone
    ]
    if len({workers for workers, _, _ in points}) < 2:
        return "this needs traced runs with different numbers of workers"
    points.sort(key=lambda point: point[:2])
    factor, unit = time_unit(mean for _, mean, _ in points)
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    axes.plot([n for n, _, _ in points], [mean / factor for _, mean, _ in points], color=SOFT)
    for workers, mean, subject in points:
        style = {**run_style(subject), "linestyle": "none"}
        axes.plot(workers, mean / factor, **style, markersize=7, label=subject.label)
    most = max(workers for workers, _, _ in points)
    seen = ""
    line = straight_line([(workers, mean) for workers, mean, _ in points])
    if line and len({workers for workers, _, _ in points}) > 2:
        start, slope = line
        ends = [start / factor, (start + slope * most) / factor]
        axes.plot([0, most], ends, color=SOFT, linewidth=1, linestyle=":", label="straight line")
        seen = f"The straight line through them rises by {said_seconds(slope)} a worker."
    for subject in subjects:
        if subject.standalone and subject.durations:
            mean = fmean(subject.durations[i] for i in subject.ordinary) / factor
            axes.axhline(mean, color=run_colour(subject), linestyle="--", label=subject.label)
    axes.set(ylim=(0, None), xlim=(0, 1.05 * most), ylabel=f"mean duration [{unit}]")
    iteration_axis(axes, "number of workers")
    legend(figure)
    rows = [(s.label, str(workers), said_seconds(mean)) for workers, mean, s in points]
    table = Table(("run", "workers", "mean duration"), rows)
    return Picture([Panel("", figure)], seen, table)


def iterations_against_time(subjects: Sequence[Subject]) -> Picture | str:
    """Iterations done against training time (figures E.4 and E.8)."""
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    series = {s.position: _progress(s) for s in subjects}
    longest = max((points[-1][0] for points in series.values() if points), default=0.0)
    if not longest:
        return "no iteration is recorded yet"
    factor = time_axis(axes, longest)
    rows = []
    for subject in subjects:
        points = series[subject.position]
        if not points:
            continue
        thin = chosen_evenly(points, _MOST_STRETCHES)
        style = line_style(subject, len(thin))
        x, y = [seconds / factor for seconds, _ in thin], [done for _, done in thin]
        axes.plot(x, y, **style, label=subject.label)
        for seconds, done in chosen_evenly(points, _MOST_ROWS // len(subjects) + 2):
            rows.append((subject.label, said_seconds(seconds), f"{done:,.0f}"))
    axes.set(xlim=(0, None), ylim=(0, None), ylabel="iterations done")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    if len(subjects) > 1:
        legend(figure)
    ends = [(s, series[s.position][-1]) for s in subjects if series[s.position]]
    speeds = [
        f"{said(done / seconds)} iterations a second" for _, (seconds, done) in ends if seconds
    ]
    return Picture([Panel("", figure)], only(speeds), Table(("run", "time", "iterations"), rows))


def nothing_slow(subjects: Sequence[Subject]) -> str:
    """Why there is nothing to say of outliers."""
    return f"no {unit_of([s for s in subjects if s.durations] or subjects)} took unusually long"


def _progress(subject: Subject) -> list[tuple[float, float]]:
    """(seconds, iterations done), from nothing on."""
    found = [(0.0, 0.0)]
    for record in subject.run.iterations:
        seconds, done = number_in(record, "seconds"), number_in(record, "iteration")
        if seconds is not None and done is not None:
            found.append((seconds, done))
    return found if len(found) > 1 else []


def _durations(subjects: Sequence[Subject], with_outliers: bool) -> Picture | str:
    timed = [subject for subject in subjects if subject.durations]
    if not timed:
        return NO_TRACE
    by = unit_of(timed)
    numbered = by == "round"  # beside runs without rounds, these stand where they end
    shown = {s.position: _by_number(s, s.durations, numbered=numbered) for s in timed}
    slow = {s.position: _by_number(s, s.outliers, numbered=numbered) for s in timed}
    if not with_outliers:
        shown = {p: {x: y for x, y in shown[p].items() if x not in slow[p]} for p in shown}
        slow = {p: {} for p in slow}
    every = [seconds for series in shown.values() for seconds in series.values()]
    middles = [envelope(series, 1).middle[0] for series in shown.values()]
    factor, unit = time_unit(middles)
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    for subject in timed:
        place = subject.position
        _draw_duration(axes, subject, shown[place], slow[place], factor)
    axes.set_ylabel(f"duration [{unit}]")
    if wants_log([*middles, max(every)], _LOG_FROM_RATIO):
        log_y(axes)
    else:
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    iteration_axis(axes, "round" if numbered else "iteration")
    if len(timed) > 1:
        legend(figure)
    outliers = [
        f"{count(len(s.outliers), 'outlier')} among {count(len(s.durations), s.unit)}"
        for s in timed
    ]
    seen = only(outliers)
    if with_outliers:
        seen += f" Crosses are outliers: {OUTLIERS_ARE}"
        if max(map(len, shown.values())) > _MOST_STRETCHES:
            seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return Picture([Panel("", figure)], seen.strip(), _summary_table(timed))


def _by_number(subject: Subject, iterations: Iterable[int], *, numbered: bool) -> dict[int, float]:
    """The durations of some iterations by where they are drawn: rounds by number, if so told."""
    found = sorted(iterations)
    return {subject.number_of(i) if numbered else i: subject.durations[i] for i in found}


def _draw_duration(
    axes: Axes,
    subject: Subject,
    series: dict[int, float],
    outliers: dict[int, float],
    factor: float,
) -> None:
    thin = envelope({i: seconds / factor for i, seconds in series.items()}, _MOST_STRETCHES)
    style = line_style(subject, len(thin.x))
    if len(series) > _MOST_STRETCHES:
        colour = run_colour(subject)
        axes.fill_between(thin.x, thin.low, thin.high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(thin.x, thin.middle, **style, label=subject.label, markersize=3, linewidth=1.1)
    slow = {x: seconds / factor for x, seconds in outliers.items()}
    worst = envelope(slow, _MOST_STRETCHES)
    axes.plot(worst.x, worst.high, "x", color=run_colour(subject), markersize=4)


def _summary_table(timed: Sequence[Subject]) -> Table:
    rows = []
    for subject in timed:
        numbers = summary([subject.durations[i] for i in subject.ordinary])
        assert numbers is not None
        longest = max(subject.durations.values())
        times = (numbers.mean, numbers.low, numbers.middle, numbers.high, longest)
        rows.append(
            (
                subject.label,
                *map(said_seconds, times),
                f"{len(subject.outliers):,} of {len(subject.durations):,}",
                said_seconds(subject.threshold),
                said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–",
            )
        )
    header = (
        "run",
        "mean",
        "10 % below",
        "median",
        "10 % above",
        "longest of all",
        "outliers",
        "outliers are above",
        f"in {plural(unit_of(timed))}",
    )
    return Table(header, rows)
