"""The losses of both players."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.rows import Losses
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.charts import draw_each, draw_line, iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, Table, one_each, together
from mdgan.report.figures.style import SOFT
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
    """Generator and mean discriminator loss against iterations."""
    figure, both = _two_axes(_PLAYERS)
    for subject, series in found:
        for axes, values in zip(both, series, strict=True):
            thin = envelope(values, MOST_STRETCHES)
            draw_line(axes, subject, subject.label, thin, linewidth=1.2)
    if len(found) > 1:
        legend(figure)
    gone = [
        f"{subject.label}: a loss was not finite"
        for subject, _ in found
        if any(None in row for row in subject.run.state.losses)
    ]
    rows = [
        (subject.label, f"{i:,}", *(said(values.get(i)) for values in series))
        for subject, series in found
        for i in chosen_evenly(sorted(series[0]), _MOST_ROWS // len(found) + 2)
    ]
    seen = f"{'; '.join(gone)}." if gone else ""
    return together(figure, seen, ("run", "iteration", *_PLAYERS), rows)


def by_worker(subject: Subject) -> dict[int, Series]:
    """Worker → its losses; nothing if they were not recorded."""
    found: dict[int, Series] = {}
    for row in subject.run.of(Losses):
        for worker, losses in row.by_worker.items():
            _add(found.setdefault(worker, ({}, {})), row.iteration, losses[::-1])
    return dict(sorted(found.items()))


def losses_by_worker(found: Sequence[tuple[Subject, dict[int, Series]]]) -> Picture:
    """The same of every worker, a drawing each run."""
    rows = [
        (subject.label, f"worker {worker}", *(said(values.get(max(values, default=0)))
                                              for values in series))
        for subject, workers in found
        for worker, series in workers.items()
    ]  # fmt: skip
    table = Table(("run", "worker", *(f"{name}, last" for name in _OF_ONE)), rows)
    return one_each(found, _draw_workers, lambda _, of: count(len(of), "worker"), table)


def _draw_workers(_subject: Subject, workers: Mapping[int, Series]) -> Figure:
    figure, both = _two_axes(_OF_ONE)
    for place, axes in enumerate(both):
        draw_each(axes, {f"worker {n}": series[place] for n, series in workers.items()})
    legend(figure)
    return figure


def _two_axes(titles: Sequence[str]) -> tuple[Figure, Sequence[Axes]]:
    figure = new_figure(3.6)
    both: Sequence[Axes] = figure.subplots(2, 1, sharex=True)
    for axes, title in zip(both, titles, strict=True):
        axes.set_title(title, color=SOFT)
        axes.margins(x=0.02)
    iteration_axis(both[1])
    return figure, both
