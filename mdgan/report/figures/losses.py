"""The losses of both players, and what families record of workers beside them."""

from collections.abc import Callable, Sequence
from math import isfinite
from statistics import fmean
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.rows import Losses, WorkerNumbers
from mdgan.records.values import chosen_evenly, said
from mdgan.report.figures import charts
from mdgan.report.figures.picture import OfRun, Picture, together
from mdgan.report.numbers.durations import MOST_STRETCHES, envelope
from mdgan.report.numbers.subject import Subject
from mdgan.spelling import count

_MOST_ROWS = 30
_PLAYERS = ("generator", "discriminators, mean")
_OF_ONE = ("generator's, as the worker sees it", "discriminator's")

Series: TypeAlias = tuple[dict[int, float], dict[int, float]]
"""Of the generator and of the discriminators: iteration → loss."""


def loss_series(subject: Subject) -> Series | None:
    """The mean losses of a run; None if it recorded none."""
    both: Series = ({}, {})
    for i, *losses in subject.run.state.losses:
        _add(both, i, losses)
    return both if any(both) else None


def _add(series: Series, iteration: int, losses: Sequence[float | None]) -> None:
    for values, loss in zip(series, losses, strict=True):
        if loss is not None:
            values[iteration] = loss


def losses(recorded: Sequence[tuple[Subject, Series]]) -> Picture:
    """Generator and, where there are any, mean discriminator loss against iterations."""
    number = 1 if not any(series[1] for _, series in recorded) else 2
    figure, both = _axes_of(_PLAYERS[:number])
    for subject, series in recorded:
        for axes, values in zip(both, series[:number], strict=True):
            thin = envelope(values, MOST_STRETCHES)
            charts.draw_line(axes, subject, subject.label, line=thin, linewidth=1.2)
    if len(recorded) > 1:
        charts.legend(figure)
    infinite = [
        f"{subject.label}: a loss was not finite"
        for subject, _ in recorded
        if any(None in row[: 1 + number] for row in subject.run.state.losses)
    ]
    rows = [
        (subject.label, f"{i:,}", *(said(values.get(i)) for values in series[:number]))
        for subject, series in recorded
        for i in chosen_evenly(sorted(series[0]), _MOST_ROWS // len(recorded) + 2)
    ]
    seen = f"{'; '.join(infinite)}." if infinite else ""
    return together(figure, seen, ("run", "iteration", *_PLAYERS[:number]), rows=rows)


def losses_by_worker(subject: Subject) -> OfRun | None:
    """A line for each worker; None if their losses were not recorded."""
    recorded: dict[int, Series] = {}
    for row in subject.run.of(Losses):
        for worker, losses in row.by_worker.items():
            _add(recorded.setdefault(worker, ({}, {})), row.iteration, losses[::-1])
    workers = {f"worker {n}": series for n, series in sorted(recorded.items())}
    if not workers:
        return None
    rows = [
        (name, *(said(values.get(max(values, default=0))) for values in series))
        for name, series in workers.items()
    ]
    figure, both = _axes_of(_OF_ONE)
    for place, axes in enumerate(both):
        charts.draw_each(axes, {name: series[place] for name, series in workers.items()})
    charts.legend(figure)
    header = ("worker", *(f"{name}, last" for name in _OF_ONE))
    return OfRun(rows, count(len(workers), "worker"), figure, header=header)


def _axes_of(titles: Sequence[str]) -> tuple[Figure, Sequence[Axes]]:
    """One below the other."""
    figure = charts.new_figure(1.8 * len(titles))
    column = list(figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0])
    for axes, title in zip(column, titles, strict=True):
        axes.set_title(title, color=charts.SOFT)
        axes.margins(x=0.02)
    charts.iteration_axis(column[-1])
    return figure, column


def numbers_of(numbers: WorkerNumbers) -> Callable[[Subject], OfRun | None]:
    """Draws a line for each worker of a run that has recorded them."""
    has_alarm = isfinite(numbers.alarm)
    alarm = [f"{numbers.alarming} since iteration"] if has_alarm else []
    header = ("worker", f"{numbers.label}, mean", "most", *alarm)

    def draw(subject: Subject) -> OfRun | None:
        recorded: dict[int, dict[int, tuple[float, ...]]] = {}  # a number, or a mean and a greatest
        for row in subject.run.of(Losses):
            for worker, values in row.numbers.get(numbers.key, {}).items():
                recorded.setdefault(worker, {})[row.iteration] = values
        if not recorded:
            return None
        workers = dict(sorted(recorded.items()))
        figure, axes = charts.new_axes(2.6)
        first = {
            f"worker {worker}": {i: values[0] for i, values in series.items()}
            for worker, series in workers.items()
        }
        charts.draw_each(axes, first)
        if has_alarm:
            axes.axhline(numbers.alarm, color=charts.INK, linestyle="dashed", linewidth=1)
        axes.set(ylabel=numbers.label, ylim=(-0.03 * axes.get_ylim()[1], None))  # shows zeros
        charts.iteration_axis(axes)
        charts.legend(figure)
        rows, alarming = [], []
        for worker, series in workers.items():
            mean = said(fmean(values[0] for values in series.values()))
            most = said(max(map(max, series.values())))
            since = min((i for i, (x, *_) in series.items() if x >= numbers.alarm), default=None)
            alarming += [str(worker)] * (since is not None)
            rows.append((f"worker {worker}", mean, most, *([said(since, 9)] * has_alarm)))
        if has_alarm:
            which = f"found: {', '.join(alarming)}" if alarming else "none found"
            summary = f"{len(workers)} workers, {numbers.alarming}: {which}"
            return OfRun(rows, summary, figure, header=header)
        every = [values for series in workers.values() for values in series.values()]
        mean, most = said(fmean(x for x, *_ in every)), said(max(map(max, every)))
        summary = f"{mean} {numbers.label} in the mean, {most} at most"
        return OfRun(rows, summary, figure, header=header)

    return draw
