"""Figures of scores: against iterations, time, bytes or spent ε."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import NamedTuple, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mdgan.records.rows import Epsilon
from mdgan.records.score_names import SCORE_NAMES
from mdgan.records.values import chosen_evenly, said, said_seconds, size_unit, time_unit
from mdgan.report.figures import charts
from mdgan.report.figures.charts import DASHED, SOFT
from mdgan.report.figures.picture import Panel, Picture, Row, Table, only
from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.scores import Score, reference, scores_of, yardstick
from mdgan.report.numbers.subject import Group, Subject, said_bands
from mdgan.report.numbers.traffic import server_bytes, worker_bytes

_HEADER = ("run", "score", "iteration", "time", "value")
_MOST_ROWS = 40
_ROOM_FOR_NAME = 0.15  # of the height of an axes

_REAL = {
    "fid": ("fid", "real data"),
    "inception_score": ("inception_score", "real data"),
    "classes_covered": ("classes", "real data"),
    "tstr_lr": ("tstr_lr", "real rows"),
    "tstr_gb": ("tstr_gb", "real rows"),
    "closest_record": ("closest_record", "real rows"),
}
"""Metric → the name of real data's score in records, and the label of its line."""

Lines: TypeAlias = Mapping[str, BandedLine]  # metric → its values; only measured metrics
Found: TypeAlias = Sequence[tuple[Group, Lines]]
Cost: TypeAlias = Callable[[Subject, Score], float | None]
"""How many iterations, seconds or bytes a run took up to a score; None if unknown."""


class Against(NamedTuple):
    """The x axis of scores: its name, its values, and a function that chooses the unit."""

    name: str
    of: Cost
    unit: Callable[[Sequence[float]], tuple[float, str]] | None = None


ITERATIONS = Against("iteration", lambda _, score: float(score.iteration))
COSTS = {
    "by iteration": ITERATIONS,
    "by time": Against("training time", lambda _, score: score.seconds, time_unit),
    "by a worker's bytes": Against(
        "moved by a worker", lambda run, score: worker_bytes(run, score.iteration), size_unit
    ),
    "by the server's bytes": Against(
        "moved by the server", lambda run, score: server_bytes(run, score.iteration), size_unit
    ),
}
"""The x axes that the page offers."""


def _epsilon(run: Subject, score: Score) -> float | None:
    """The largest ε that any worker's samples, or clients, had spent up to a score."""
    rows = [row.epsilon.values() for row in run.run.of(Epsilon) if row.iteration <= score.iteration]
    return max(chain.from_iterable(rows), default=None)


EPSILON = Against("ε spent", _epsilon)


def curve(group: Group, metric: str, cost: Cost) -> BandedLine:
    """A metric of a configuration against its cost, with a point for each scored iteration.

    It takes the iterations that all runs have in common, or else all iterations; of iterations with
    equal cost, the last. A point is the mean over the runs, in a band from the least to the
    greatest, or for a single run in a band of one standard deviation.
    """
    recorded: list[dict[int, tuple[float, Score]]] = []
    for subject in group.members:
        costs = [(score, cost(subject, score)) for score in scores_of(subject.run, metric)]
        known = {score.iteration: (x, score) for score, x in costs if x is not None}
        if known:
            recorded.append(known)
    every = [set(points) for points in recorded]
    iterations = sorted(set.intersection(*every) or set.union(*every)) if every else []
    line = BandedLine(x=[], low=[], middle=[], high=[])
    for iteration in iterations:
        points = [points[iteration] for points in recorded if iteration in points]
        values = [score.value for _, score in points]
        spread = (points[0][1].deviation or 0.0) if len(group.members) == 1 else 0.0
        x = fmean(at for at, _ in points)
        if line.x and line.x[-1] == x:
            for series in line:
                series.pop()
        line.add(x, values, fmean(values), spread)
    return line


def curves(*metrics: str, against: Against = ITERATIONS) -> Callable[[Group], Lines]:
    """Some metrics of a configuration against iterations, or against what they cost."""

    def lines(group: Group) -> Lines:
        every = {metric: curve(group, metric, against.of) for metric in metrics}
        return {metric: line for metric, line in every.items() if line.x}

    return lines


def scores(against: Against = ITERATIONS, columns: int = 1) -> Callable[[Found], Picture]:
    """Draws metrics, an axes each; runs whose scores do not compare are drawn apart."""

    def draw(recorded: Found) -> Picture:
        apart: dict[tuple[str, str], list[tuple[Group, Lines]]] = defaultdict(list)
        for group, lines in recorded:
            apart[yardstick(group.first.run)].append((group, lines))
        several = len(apart) > 1
        same_words = len({words for words, _ in apart}) < len(apart)
        panels = []
        for (words, real), part in apart.items():
            label = f"{words}{f' (real samples {real})' if same_words else ''}"
            panels.append(Panel(label if several else "", _draw(part, against, columns)))
        members = [subject for group, _ in recorded for subject in group.members]
        metrics = _metrics(recorded)
        summary = [_said_last(members, metrics), said_bands([group for group, _ in recorded])]
        summary += [said for part in apart.values() for said in _said_references(part)]
        if several:
            summary.append("Scores of different real samples, networks or sample counts do not "
                           "compare: they stand apart.")  # fmt: skip
        rows = _rows(members, metrics)
        return Picture(panels, " ".join(dict.fromkeys(filter(None, summary))), Table(_HEADER, rows))

    return draw


def _metrics(recorded: Found) -> list[str]:
    return [metric for metric in SCORE_NAMES if any(metric in lines for _, lines in recorded)]


def _draw(recorded: Found, against: Against, columns: int) -> Figure:
    metrics = _metrics(recorded)
    num_rows = -(-len(metrics) // columns)
    figure = charts.new_figure(2.75 if len(metrics) == 1 else 0.35 + 1.65 * num_rows)
    grid = list(figure.subplots(num_rows, columns, sharex=True, squeeze=False).flat)
    most = max(x for _, lines in recorded for line in lines.values() for x in line.x)
    factor, unit = against.unit([most]) if against.unit else (1.0, "")
    for place, (axes, metric) in enumerate(zip(grid, metrics, strict=False)):
        lines = [(group, known[metric]) for group, known in recorded if metric in known]
        for group, line in lines:
            charts.draw_line(axes, group.first, group.label, line=line, factor=factor)
        real = _references(recorded, metric)
        _limit(axes, metric, [line for _, line in lines], real=real)
        _mark_real(axes, metric, real, [y for _, line in lines for y in line.middle])
        axes.set_xlim(0, 1.03 * most / factor or 1)
        if len(metrics) == 1:
            axes.set_ylabel(SCORE_NAMES[metric])
        else:
            axes.set_title(SCORE_NAMES[metric])
        is_last = place + columns >= len(metrics)
        if against is not ITERATIONS:
            axes.xaxis.set_major_locator(MaxNLocator(6))
            axes.set_xlabel((against.name if is_last else "") + (f" [{unit}]" if unit else ""))
        else:
            charts.iteration_axis(axes, against.name if is_last else "", most_ticks=6 // columns)
    for axes in grid[len(metrics) :]:
        axes.set_visible(False)
    if len(recorded) > 1:
        charts.legend(figure)
    return figure


def _limit(axes: Axes, metric: str, lines: Sequence[BandedLine], real: Sequence[float]) -> None:
    """Fits the y axis to all curves and the scores of real data: from 0 on, or logarithmic."""
    values = [value for line in lines for value in line.middle]
    highest = max(value for line in lines for value in line.high)
    if metric == "fid" and charts.log_if_wide(axes, values):
        lowest = min([*values, *(value for value in real if value > 0)])
        axes.set_ylim(0.8 * lowest, 1.2 * highest)
    elif min(values) >= 0:
        axes.set_ylim(0, 1.12 * max([highest, *((1 + _ROOM_FOR_NAME) * y for y in real)]) or 1)


def _references(recorded: Found, metric: str) -> list[float]:
    """The scores of real data, in increasing order; one value if all runs agree."""
    if metric not in _REAL:
        return []
    name, _ = _REAL[metric]
    values = (reference(subject.run, name) for group, _ in recorded for subject in group.members)
    known = {said(value): value for value in values if value is not None}
    return sorted(known.values())  # values that print alike count as one


def _mark_real(axes: Axes, metric: str, known: Sequence[float], drawn: Sequence[float]) -> None:
    """Draws dashed lines at the scores of real data, named on the side without `drawn` values."""
    for value in known:
        axes.axhline(value, color=SOFT, linestyle=DASHED, linewidth=1.1)
    if known:
        name, room = _REAL[metric][1], _ROOM_FOR_NAME * axes.get_ylim()[1]
        crowded = any(known[-1] <= y < known[-1] + room for y in drawn)
        below = crowded and axes.get_yscale() == "linear" and known[-1] > room
        axes.annotate(
            f"{name} {said(known[0])}" if len(known) == 1 else name,
            (0, known[-1]),
            xycoords=("axes fraction", "data"),
            xytext=(4, -3 if below else 3),
            textcoords="offset points",
            va="top" if below else "bottom",
            color=SOFT,
        )


def _said_references(recorded: Found) -> list[str]:
    """Sentences about the scores of real data, with a warning if runs do not agree."""
    summary = []
    for metric in _metrics(recorded):
        if known := _references(recorded, metric):
            name, low, high = SCORE_NAMES[metric], said(known[0]), said(known[-1])
            differ = f" to {high}: it differs from run to run, and so does what a score is worth"
            summary.append(
                f"{_REAL[metric][1].capitalize()}, {name}: {low}{differ * (low != high)}."
            )
    return summary


def _said_last(subjects: Sequence[Subject], metrics: Sequence[str]) -> str:
    """The last scores of the only run."""
    summary = []
    for subject in subjects:
        last = [(metric, scores_of(subject.run, metric)) for metric in metrics]
        values = [f"{SCORE_NAMES[m]} {said(known[-1].value)}" for m, known in last if known]
        summary.append(f"At the end: {', '.join(values)}")
    return only(summary)


def _rows(subjects: Sequence[Subject], metrics: Sequence[str]) -> list[Row]:
    """Rows of the scores of every run; evenly chosen ones if there are many."""
    rows = []
    for metric in metrics:
        for subject in subjects:
            for iteration, seconds, value, deviation in scores_of(subject.run, metric):
                spread = f" ± {said(deviation, 2)}" if deviation else ""
                row = (subject.label, SCORE_NAMES[metric], f"{iteration:,}", said_seconds(seconds))
                rows.append((*row, said(value, 4) + spread))
    return chosen_evenly(rows, _MOST_ROWS * len(metrics))
