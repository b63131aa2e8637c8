"""The losses of both players, and what families record of workers beside them."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.declared import WorkerNumbers
from mdgan.records.rows import Losses
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.charts import (
    INK,
    SOFT,
    draw_each,
    draw_line,
    iteration_axis,
    legend,
    new_axes,
    new_figure,
)
from mdgan.report.figures.picture import OfRun, Picture, each_run, together
from mdgan.report.numbers.durations import MOST_STRETCHES, envelope
from mdgan.report.numbers.subject import Subject

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


def losses(found: Sequence[tuple[Subject, Series]]) -> Picture:
    """Generator and, where there are any, mean discriminator loss against iterations."""
    number = 1 if not any(series[1] for _, series in found) else 2
    figure, both = _axes_of(_PLAYERS[:number])
    for subject, series in found:
        for axes, values in zip(both, series[:number], strict=True):
            thin = envelope(values, MOST_STRETCHES)
            draw_line(axes, subject, subject.label, thin, linewidth=1.2)
    if len(found) > 1:
        legend(figure)
    gone = [
        f"{subject.label}: a loss was not finite"
        for subject, _ in found
        if any(None in row[: 1 + number] for row in subject.run.state.losses)
    ]
    rows = [
        (subject.label, f"{i:,}", *(said(values.get(i)) for values in series[:number]))
        for subject, series in found
        for i in chosen_evenly(sorted(series[0]), _MOST_ROWS // len(found) + 2)
    ]
    seen = f"{'; '.join(gone)}." if gone else ""
    return together(figure, seen, ("run", "iteration", *_PLAYERS[:number]), rows)


def by_worker(subject: Subject) -> dict[int, Series]:
    """Worker → its losses; nothing if they were not recorded."""
    found: dict[int, Series] = {}
    for row in subject.run.of(Losses):
        for worker, losses in row.by_worker.items():
            _add(found.setdefault(worker, ({}, {})), row.iteration, losses[::-1])
    return dict(sorted(found.items()))


@each_run("worker", *(f"{name}, last" for name in _OF_ONE))
def losses_by_worker(_subject: Subject, workers: Mapping[int, Series]) -> OfRun:
    """A line for each worker."""
    rows = [
        (f"worker {n}", *(said(values.get(max(values, default=0))) for values in series))
        for n, series in workers.items()
    ]
    figure, both = _axes_of(_OF_ONE)
    for place, axes in enumerate(both):
        draw_each(axes, {f"worker {n}": series[place] for n, series in workers.items()})
    legend(figure)
    return OfRun(rows, count(len(workers), "worker"), figure)


def _axes_of(titles: Sequence[str]) -> tuple[Figure, Sequence[Axes]]:
    """One below the other."""
    figure = new_figure(1.8 * len(titles))
    column = list(figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0])
    for axes, title in zip(column, titles, strict=True):
        axes.set_title(title, color=SOFT)
        axes.margins(x=0.02)
    iteration_axis(column[-1])
    return figure, column


OfWorkers = Mapping[int, Mapping[int, tuple[float, ...]]]
"""Worker → iteration → a number, or a mean and a greatest number."""


def numbers_of(numbers: WorkerNumbers) -> Callable[[Subject], OfWorkers]:
    """Finds what a run has recorded of them; nothing if it has not."""

    def find(subject: Subject) -> OfWorkers:
        found: dict[int, dict[int, tuple[float, ...]]] = {}
        for row in subject.run.of(Losses):
            for worker, values in row.numbers.get(numbers.key, {}).items():
                found.setdefault(worker, {})[row.iteration] = values
        return dict(sorted(found.items()))

    return find


def drawn(numbers: WorkerNumbers) -> Callable[[Sequence[tuple[Subject, OfWorkers]]], Picture]:
    """Draws a line for each worker, a drawing each run."""
    has_alarm = isfinite(numbers.alarm)
    alarm = [f"{numbers.alarming} since iteration"] if has_alarm else []

    @each_run("worker", f"{numbers.label}, mean", "most", *alarm)
    def draw(_subject: Subject, workers: OfWorkers) -> OfRun:
        figure, axes = new_axes(2.6)
        first = {
            f"worker {worker}": {i: values[0] for i, values in series.items()}
            for worker, series in workers.items()
        }
        draw_each(axes, first)
        if has_alarm:
            axes.axhline(numbers.alarm, color=INK, linestyle="dashed", linewidth=1)
        axes.set(ylabel=numbers.label, ylim=(0, None))
        iteration_axis(axes)
        legend(figure)
        rows, alarming = [], []
        for worker, series in workers.items():
            mean = said(fmean(values[0] for values in series.values()))
            most = said(max(map(max, series.values())))
            since = min((i for i, (x, *_) in series.items() if x >= numbers.alarm), default=None)
            alarming += [str(worker)] * (since is not None)
            rows.append((f"worker {worker}", mean, most, *([said(since, 9)] * has_alarm)))
        if has_alarm:
            which = f"found: {', '.join(alarming)}" if alarming else "none found"
            return OfRun(rows, f"{len(workers)} workers, {numbers.alarming}: {which}", figure)
        every = [values for series in workers.values() for values in series.values()]
        mean, most = said(fmean(x for x, *_ in every)), said(max(map(max, every)))
        return OfRun(rows, f"{mean} {numbers.label} in the mean, {most} at most", figure)

    return draw
