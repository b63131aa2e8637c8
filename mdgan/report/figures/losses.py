"""The losses of both players."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.rows import Losses
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.charts import draw_line, iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, Table, one_each, together
from mdgan.report.figures.style import COLOURS, SOFT
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject

_MOST_STRETCHES = 300
_MOST_ROWS = 30
_PLAYERS = ("generator", "discriminators, mean")
_OF_ONE = ("generator's, as the worker sees it", "discriminator's")

Series: TypeAlias = tuple[Mapping[int, float], Mapping[int, float]]
"""Of the generator and of the discriminators: iteration → loss."""


def loss_series(subject: Subject) -> Series | None:
    """The mean losses of a run; None if it recorded none."""
    rows = subject.run.of(Losses)
    both = (
        {r.iteration: r.generator_loss for r in rows if r.generator_loss is not None},
        {r.iteration: r.discriminator_loss for r in rows if r.discriminator_loss is not None},
    )
    return both if any(both) else None


def losses(found: Sequence[tuple[Subject, Series]]) -> Picture:
    """Generator and mean discriminator loss against iterations."""
    figure, both = _two_axes(_PLAYERS)
    for subject, series in found:
        for axes, values in zip(both, series, strict=True):
            thin = envelope(values, _MOST_STRETCHES)
            draw_line(axes, subject, subject.label, thin, linewidth=1.2)
    if len(found) > 1:
        legend(figure)
    gone = [f"{s.label}: a loss was not finite" for s, _ in found if _is_not_finite(s)]
    rows = [
        (subject.label, f"{i:,}", *(said(values.get(i)) for values in series))
        for subject, series in found
        for i in chosen_evenly(sorted(series[0]), _MOST_ROWS // len(found) + 2)
    ]
    seen = f"{'; '.join(gone)}." if gone else ""
    return together(figure, seen, ("run", "iteration", *_PLAYERS), rows)


def by_worker(subject: Subject) -> dict[int, Series] | None:
    """Worker → its losses; None if they were not recorded."""
    found: dict[int, tuple[dict[int, float], dict[int, float]]] = {}
    for row in subject.run.of(Losses):
        for worker, (discriminator, generator) in row.by_worker.items():
            for values, loss in zip(
                found.setdefault(worker, ({}, {})), (generator, discriminator), strict=True
            ):
                values.update({} if loss is None else {row.iteration: loss})
    return dict(sorted(found.items())) or None


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


def _draw_workers(_subject: Subject, workers: dict[int, Series]) -> Figure:
    figure, both = _two_axes(_OF_ONE)
    few = len(workers) <= len(COLOURS)
    for place, (worker, series) in enumerate(workers.items()):
        for axes, values in zip(both, series, strict=True):
            thin = envelope(values, _MOST_STRETCHES)
            colour = COLOURS[place % len(COLOURS)]
            label, alpha = (f"worker {worker}", 1.0) if few else (None, 0.5)
            axes.plot(thin.x, thin.middle, color=colour, label=label, alpha=alpha, linewidth=1)
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


def _is_not_finite(subject: Subject) -> bool:
    """Whether a loss was recorded as null, which stands for what JSON has no number for."""
    rows = subject.run.of(Losses)
    return any(None in (row.generator_loss, row.discriminator_loss) for row in rows)
