"""How good the generator is, and what that cost."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mdgan.records.values import chosen_evenly, said, said_seconds, size_unit
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import DASHED, SOFT, run_colour
from mdgan.report.numbers import costs as cost
from mdgan.report.numbers.groups import Cost, Curve, Group, curve, said_bands
from mdgan.report.numbers.scores import METRICS, not_comparable, reference, scores_of
from mdgan.report.numbers.subject import Subject

_HEADER = ("run", "score", "iteration", "time", "value")
_MOST_ROWS = 40

_REAL = {
    "fid": (("floor", "fid"), "real against real"),
    "inception_score": (("real", "inception_score"), "real data"),
    "classes_covered": (("real", "classes"), "real data"),
}
"""Metric → where records have what real data gets, and what it is called."""

Curves: TypeAlias = Mapping[str, Curve]
"""Metric → its values; only those that were measured."""


def curves(*metrics: str) -> Callable[[Group], Curves]:
    """Some metrics of a configuration against iterations."""

    def against_iterations(group: Group) -> Curves:
        every = {metric: curve(group, metric, cost.iterations_until) for metric in metrics}
        return {metric: line for metric, line in every.items() if line.x}

    return against_iterations


def scores(columns: int = 1) -> Callable[[Sequence[tuple[Group, Curves]]], Picture]:
    """Draws metrics against iterations, an axes each, all runs in each."""

    def draw(found: Sequence[tuple[Group, Curves]]) -> Picture:
        metrics = [metric for metric in METRICS if any(metric in lines for _, lines in found)]
        num_rows = -(-len(metrics) // columns)
        figure = charts.new_figure(2.75 if len(metrics) == 1 else 0.35 + 1.65 * num_rows)
        grid = list(figure.subplots(num_rows, columns, sharex=True, squeeze=False).flat)
        members, told = _members(found), []
        for place, (axes, metric) in enumerate(zip(grid, metrics, strict=False)):
            lines = [(group, known[metric]) for group, known in found if metric in known]
            for group, line in lines:
                charts.draw_line(axes, group.first, group.label, line)
            real = _draw_references(axes, members, metric)
            _limit(axes, metric, [line for _, line in lines], real)
            axes.margins(x=0.03)
            if len(metrics) == 1:
                axes.set_ylabel(METRICS[metric])
                told = [f"{_REAL[metric][1].capitalize()}: {_said_range(real)}."] if real else []
            else:
                axes.set_title(METRICS[metric])
            label = "iteration" if place + columns >= len(metrics) else ""
            charts.iteration_axis(axes, label, most_ticks=6 // columns)
        for axes in grid[len(metrics) :]:
            axes.set_visible(False)
        if len(found) > 1:
            charts.legend(figure)
        seen = " ".join([_last_values(found, metrics), *told])
        return together(figure, seen, _HEADER, _rows(members, metrics))

    return draw


def _iterations(axes: Axes, _most: float) -> float:
    charts.iteration_axis(axes, most_ticks=5)
    return 1.0


def _bytes(name: str) -> Callable[[Axes, float], float]:
    def prepare(axes: Axes, most: float) -> float:
        factor, unit = size_unit([most])
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(f"{name} [{unit}]")
        return factor

    return prepare


_COSTS: tuple[tuple[Cost, Callable[[Axes, float], float]], ...] = (
    (cost.iterations_until, _iterations),
    (cost.seconds_until, charts.time_axis),
    (cost.worker_bytes_until, _bytes("moved by a worker")),
    (cost.server_bytes_until, _bytes("moved by the server")),
)
"""What a score may be held against, and how its axis is made: from the greatest value to a unit."""


def costs(metric: str) -> Callable[[Group], list[Curve]]:
    """A metric of a configuration against iterations, time, bytes of a worker and of the server."""

    def against_costs(group: Group) -> list[Curve]:
        lines = [curve(group, metric, of_score) for of_score, _ in _COSTS]
        return lines if any(line.x for line in lines) else []

    return against_costs


def compared(metric: str) -> Callable[[Sequence[tuple[Group, list[Curve]]]], Picture]:
    """Draws a metric against these four."""

    def draw(found: Sequence[tuple[Group, list[Curve]]]) -> Picture:
        figure = charts.new_figure(2.7, wide=True)
        row = figure.subplots(1, len(_COSTS), sharey=True)
        members = _members(found)
        for place, (axes, (_, prepare)) in enumerate(zip(row, _COSTS, strict=True)):
            most = max((x for _, lines in found for x in lines[place].x), default=0.0)
            factor = prepare(axes, most)
            real = _draw_references(axes, members, metric, named=place == 0)
            for group, lines in found:
                charts.draw_line(axes, group.first, group.label, lines[place], factor)
            if most:
                axes.set_xlim(0, 1.03 * most / factor)
            else:
                axes.text(0.5, 0.5, "not counted", transform=axes.transAxes, ha="center")
                axes.set_xticks([])
        row[0].set_ylabel(METRICS[metric])
        known = [line for _, lines in found for line in lines if line.x]
        _limit(row[0], metric, known, real)
        charts.legend(figure, row[0])
        rows = _rows(members, [metric])
        seen = _last_values(found, [metric])
        return together(figure, seen, _HEADER, rows)

    return draw


def _members(found: Sequence[tuple[Group, object]]) -> list[Subject]:
    """The runs of some configurations."""
    return [subject for group, _ in found for subject in group.members]


def _limit(axes: Axes, metric: str, lines: Sequence[Curve], real: Sequence[float]) -> None:
    """Makes the y axis hold all curves and what real data gets: from 0 on, or logarithmic."""
    values = [value for line in lines for value in line.middle]
    highest = max(value for line in lines for value in line.high)
    if metric == "fid" and charts.log_if_wide(axes, values):
        lowest = min([*values, *(value for value in real if value > 0)])
        axes.set_ylim(0.8 * lowest, 1.2 * highest)
    elif min(values) >= 0:
        room_for_name = [1.15 * value for value in real]
        axes.set_ylim(0, 1.12 * max([highest, *room_for_name]) or 1)


def _draw_references(
    axes: Axes, subjects: Sequence[Subject], metric: str, named: bool = True
) -> list[float]:
    """Dashed lines at what real data gets: one if all runs agree, else one a run.

    Args:
        axes: where.
        subjects: the runs.
        metric: without lines where no record tells what real data gets.
        named: whether to say what the lines are.

    Returns:
        The different values, in increasing order.
    """
    path, name = _REAL.get(metric, ((), ""))
    known = [
        (s, value) for s in subjects if path and (value := reference(s.run, *path)) is not None
    ]
    different = sorted({value for _, value in known})
    for value in different:
        owner = next(subject for subject, of_run in known if of_run == value)
        colour = run_colour(owner) if len(different) > 1 else SOFT
        axes.axhline(value, color=colour, linestyle=DASHED, linewidth=1.1)
    if different and named:
        axes.annotate(
            f"{name} {said(different[0])}" if len(different) == 1 else name,
            (0, different[-1]),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            va="bottom",
            color=SOFT,
        )
    return different


def _said_range(values: Sequence[float]) -> str:
    low, high = said(values[0]), said(values[-1])
    return low if low == high else f"{low} to {high}"


def _last_values(found: Sequence[tuple[Group, object]], metrics: Sequence[str]) -> str:
    """The last scores of the only run; of several, what their lines are and what to beware of."""
    told = []
    for subject in _members(found):
        last = [(metric, scores_of(subject.run, metric)) for metric in metrics]
        values = [f"{METRICS[m]} {said(known[-1].value)}" for m, known in last if known]
        told.append(f"At the end: {', '.join(values)}")
    beware = not_comparable([subject.run for subject in _members(found)])
    return " ".join(filter(None, (only(told), said_bands([g for g, _ in found]), beware)))


def _rows(subjects: Sequence[Subject], metrics: Sequence[str]) -> list[Row]:
    """The scores of every run, or some of them where they are many."""
    rows = []
    for metric in metrics:
        for subject in subjects:
            for iteration, seconds, value, deviation in scores_of(subject.run, metric):
                spread = f" ± {said(deviation, 2)}" if deviation else ""
                row = (subject.label, METRICS[metric], f"{iteration:,}", said_seconds(seconds))
                rows.append((*row, said(value, 4) + spread))
    return chosen_evenly(rows, _MOST_ROWS)
