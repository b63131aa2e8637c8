"""Timelines of all roles, and the durations of iterations, or of rounds by their last iteration."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean, median, median_low
from typing import NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from mdgan.observe.tracer import WINDOW
from mdgan.records.recorded_run import Trace
from mdgan.records.roles import SCORER, first_worker
from mdgan.records.values import said_list, said_seconds, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.costs import ORDER
from mdgan.report.figures.picture import OfRun, Picture, Row, only, together
from mdgan.report.numbers.durations import NOT_TRAINING, envelope, in_order, summed
from mdgan.report.numbers.subject import Subject
from mdgan.spelling import count

MOST_LANES = 24
_LANE_HEIGHT = 0.7


class Lane(NamedTuple):
    """One row of a timeline: operation, start and duration of each span, in seconds."""

    label: str
    spans: list[tuple[str, float, float]]

    def busy(self, seconds: float) -> float:
        """The share of a timeline of this length in which this lane was not idle."""
        end = covered = 0.0
        for _, start, duration in sorted(self.spans, key=lambda span: span[1]):
            covered += max(0.0, start + duration - max(start, end))
            end = max(end, start + duration)
        return covered / seconds if seconds > 0 else 0.0


class Timeline(NamedTuple):
    """Lanes over the same stretch of time, from the first iteration, or number of a round, on."""

    first: int
    last: int
    seconds: float
    lanes: list[Lane]
    num_left_out: int


def typical_window(subject: Subject) -> list[int]:
    """At most ten iterations or rounds in a row of a usual duration; none without a trace."""
    places = {i: n if subject.has_rounds() else i for n, i in enumerate(subject.durations, 1)}
    grouped = groupby(_recorded(subject), key=lambda i: (places[i] - 1) // WINDOW)
    windows = [list(window) for _, window in grouped]
    longest = max(map(len, windows), default=0)
    windows = [window for window in windows if len(window) == longest]
    if len(windows) > 1:  # in the first ten caches are still cold
        windows = [window for window in windows if places[window[0]] > 1]
    spans = subject.main_trace.spans if subject.main_trace else {}
    paused = {i for i, done in spans.items() if any(span.name in NOT_TRAINING for span in done)}
    windows = [window for window in windows if paused.isdisjoint(window)] or windows
    lengths = [sum(subject.durations[i] for i in window) for window in windows]
    return windows[lengths.index(median_low(lengths))] if windows else []


def _recorded(subject: Subject) -> list[int]:
    """The complete iterations that most hosts recorded; or the rounds that any host recorded."""
    times = Counter(i for host in subject.hosts for i in subject.durations.keys() & host.spans)
    most = 1 if subject.has_rounds() else max(times.values(), default=0)
    return [i for i in subject.durations if times[i] >= most] or list(subject.durations)


def timeline(subject: Subject, first: int, last: int) -> Timeline:
    """What every role did from the start of one iteration or round to the end of another."""
    main = subject.main_trace
    assert main is not None
    begin = min(span.start for span in main.spans[first])
    end = max(span.end for span in main.spans[last] if span.name not in NOT_TRAINING)
    every = sorted(main.spans)
    near = every[max(0, bisect_left(every, first) - 1) : bisect_right(every, last) + 1]
    lanes = [Lane(main.role, _clip(main, near, begin, end=end))]
    for host in subject.hosts:
        if host.spans and _is_there(subject, host, first, last=last):  # else it told no times
            lanes += _host_lanes(host, near, begin, end=end)
    scorer = subject.run.traces.get(SCORER)
    if scorer:
        spans = _clip(scorer, scorer.spans, begin, end=end)
        lanes += [Lane("scorer", spans)] if spans else []
    fitting = sorted(range(len(lanes)), key=lambda n: (not lanes[n].spans, n))[:MOST_LANES]
    numbers = subject.number_of(first), subject.number_of(last)
    chosen = [lanes[n] for n in sorted(fitting)]  # empty lanes are left out first
    return Timeline(*numbers, end - begin, chosen, len(lanes) - len(chosen))


def _is_there(subject: Subject, host: Trace, first: int, last: int) -> bool:
    """Whether a worker of the host took part then; in rounds, whether it was connected."""
    carried = host.workers or {first_worker(host.role)}
    return any(
        begin < last and end >= first
        for worker in subject.presences
        if worker.worker in carried
        for begin, end in worker.stays
    )


def _host_lanes(host: Trace, near: Sequence[int], begin: float, end: float) -> list[Lane]:
    workers = sorted(host.workers)
    if len(workers) <= 1:
        name = workers[0] if workers else first_worker(host.role)
        return [Lane(f"worker {name}", _clip(host, near, begin, end=end))]
    lanes = [Lane(f"host {workers[0]}–{workers[-1]}", _clip(host, near, begin, end=end, worker=0))]
    return lanes + [
        Lane(f"worker {n}", _clip(host, near, begin, end=end, worker=n)) for n in workers
    ]


def _clip(
    trace: Trace, iterations: Iterable[int], begin: float, end: float, worker: int | None = None
) -> list[tuple[str, float, float]]:
    clipped = []
    for iteration in iterations:
        for span in trace.spans.get(iteration, ()):
            start, stop = max(span.start, begin), min(span.end, end)
            if stop > start and worker in (None, span.worker):
                clipped.append((span.name, start - begin, stop - start))
    return clipped


def ten(subject: Subject) -> Timeline | None:
    """Ten typical iterations or rounds in a row."""
    window = typical_window(subject)
    return timeline(subject, window[0], window[-1]) if window else None


def one(subject: Subject) -> Timeline | None:
    """The one of these ten whose duration is nearest to the median."""
    window, took = typical_window(subject), subject.durations
    if not window:
        return None
    middle = median(took.values())
    chosen = min(window, key=lambda i: abs(took[i] - middle))
    return timeline(subject, chosen, chosen)


def timelines(of: Callable[[Subject], Timeline | None]) -> Callable[[Subject], OfRun | None]:
    """Draws what every role did in the stretch that `of` chooses."""

    def draw(subject: Subject) -> OfRun | None:
        if (lines := of(subject)) is None:
            return None
        rows = []
        for lane in lines.lanes:
            totals = summed((name, seconds) for name, _, seconds in lane.spans)
            mostly = max(totals, key=totals.__getitem__, default="–")
            busy = f"{100 * lane.busy(lines.seconds):.0f} %"
            rows.append((lane.label, busy, mostly, said_seconds(totals.get(mostly))))
        which = f"{subject.unit} {lines.first:,}"
        if lines.first < lines.last:
            which = f"{subject.unit}s {lines.first:,} to {lines.last:,}"
        left_out = count(lines.num_left_out, "more lane is", "more lanes are")
        more = f"; only {MOST_LANES} lanes fit, {left_out} left out" if lines.num_left_out else ""
        summary = f"{which}, {said_seconds(lines.seconds)}{more}"
        header = ("lane", "recorded as doing something", "mostly", "for")
        return OfRun(rows, summary, _draw_lines(lines), header=header)

    return draw


def _draw_lines(lines: Timeline) -> Figure:
    factor, unit = time_unit([lines.seconds])
    by_operation: dict[str, list[charts.Rectangle]] = {}
    for y, lane in enumerate(lines.lanes):
        for name, start, seconds in lane.spans:
            box = (start / factor, y - _LANE_HEIGHT / 2, seconds / factor, _LANE_HEIGHT)
            by_operation.setdefault(name, []).append(box)
    height, length = 0.69 + 0.27 * len(lines.lanes), lines.seconds / factor
    figure, axes = charts.lane_chart(height, [lane.label for lane in lines.lanes], length)
    lanes = range(len(lines.lanes))
    background = [(0.0, y - _LANE_HEIGHT / 2, length, _LANE_HEIGHT) for y in lanes]
    charts.rectangles(axes, background, facecolor=charts.IDLE, linewidth=0, label="idle")
    for name in in_order(by_operation, ORDER):
        style = charts.operation_style(name)
        charts.rectangles(axes, by_operation[name], **style, label=name)
    axes.set_xlabel(f"time [{unit}]")
    charts.legend(figure)
    return figure


_MOST_STRETCHES = 400
_LOG_FROM_RATIO = 12

Timed: TypeAlias = Sequence[tuple[Subject, Mapping[int, float]]]
"""Runs, and the seconds of their complete iterations or rounds by iteration."""


def each(recorded: Timed) -> Picture:
    """Duration against iteration, or against the number of the round; crosses are outliers."""
    series = [{s.number_of(i): took[i] for i in sorted(took)} for s, took in recorded]
    middles = [median(took.values()) for took in series]
    factor, unit = time_unit(middles)
    figure, axes = charts.new_axes()
    for (subject, _), took in zip(recorded, series, strict=True):
        thin = envelope({x: y / factor for x, y in took.items()}, _MOST_STRETCHES)
        charts.draw_line(axes, subject, subject.label, line=thin, markersize=3, linewidth=1.1)
        slow = {subject.number_of(i) for i in subject.outliers}
        worst = envelope({i: took[i] / factor for i in sorted(slow)}, _MOST_STRETCHES)
        axes.plot(worst.x, worst.high, "x", color=charts.run_colour(subject), markersize=4)
    axes.set_ylabel(f"duration [{unit}]")
    longest = max(max(took.values()) for took in series)
    if not charts.log_if_wide(axes, [*middles, longest], _LOG_FROM_RATIO):
        axes.set_ylim(0, None)
    axes.margins(x=0.01)
    charts.iteration_axis(axes, recorded[0][0].unit)
    if len(recorded) > 1:
        charts.legend(figure)
    seen = only([_said_outliers(subject) for subject, _ in recorded])
    if max(map(len, series)) > _MOST_STRETCHES:
        seen += " Lines are medians of short stretches, bands reach from least to greatest."
    return together(figure, seen, *_table(recorded))


def _said_outliers(subject: Subject) -> str:
    """How many are outliers, and whether scoring makes the others longer."""
    summary = f"{count(len(subject.outliers), 'outlier')} among "
    summary += count(len(subject.durations), subject.unit)
    beside, alone = subject.durations_while_scoring()
    if beside and alone:
        summary += (
            f"; the others took {said_seconds(fmean(beside))} in the mean while a generator was "
            f"scored, {said_seconds(fmean(alone))} otherwise"
        )
    return summary


def _table(recorded: Timed) -> tuple[Row, list[Row]]:
    rows: list[Row] = []
    for subject, took in recorded:
        ordinary = [took[i] for i in subject.ordinary]
        middle = (fmean(ordinary), *np.quantile(ordinary, (0.1, 0.5, 0.9)), max(took.values()))
        times = map(said_seconds, map(float, middle))
        slow = f"{len(subject.outliers):,} of {len(took):,}"
        which = said_list(sorted(map(subject.number_of, subject.outliers)), 8) or "–"
        workers = f"{subject.num_workers:,}" if subject.num_workers else "–"
        limit = said_seconds(subject.threshold)
        rows.append((subject.label, workers, *times, slow, limit, which))
    five = ("mean", "10 % below", "median", "10 % above", "longest of all")
    slow_ones = ("outliers", "outliers are above", f"in {recorded[0][0].unit}s")
    return ("run", "workers", *five, *slow_ones), rows
