"""How old each worker's answers were when the server used them."""

from collections.abc import Sequence
from statistics import fmean

from matplotlib.figure import Figure

from mdgan.records.rows import Losses
from mdgan.records.values import said
from mdgan.report.figures.charts import iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import COLOURS
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject

_MOST_STRETCHES = 300

Ages = dict[int, dict[int, tuple[float, int]]]
"""Worker → iteration → mean and most steps of the generator between batches and their use."""


def by_worker(subject: Subject) -> Ages | None:
    """The ages of answers; None where the server waits for all workers."""
    found: Ages = {}
    for row in subject.run.of(Losses):
        for worker, both in row.staleness.items():
            found.setdefault(worker, {})[row.iteration] = both
    return dict(sorted(found.items())) or None


def ages(found: Sequence[tuple[Subject, Ages]]) -> Picture:
    """Staleness against iterations, a drawing each run."""
    rows = [
        (subject.label, f"worker {worker}", said(fmean(mean for mean, _ in told.values())),
         f"{max(most for _, most in told.values()):,}")
        for subject, workers in found
        for worker, told in workers.items()
    ]  # fmt: skip
    table = Table(("run", "worker", "steps old, mean", "most"), rows)
    return one_each(found, _draw, _said, table)


def _said(_subject: Subject, workers: Ages) -> str:
    mean = fmean(mean for told in workers.values() for mean, _ in told.values())
    most = max(most for told in workers.values() for _, most in told.values())
    return f"{said(mean)} steps in the mean, {most:,} at most"


def _draw(_subject: Subject, workers: Ages) -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    few = len(workers) <= len(COLOURS)
    for place, (worker, told) in enumerate(workers.items()):
        thin = envelope({i: mean for i, (mean, _) in told.items()}, _MOST_STRETCHES)
        colour = COLOURS[place % len(COLOURS)]
        label, alpha = (f"worker {worker}", 1.0) if few else (None, 0.5)
        axes.plot(thin.x, thin.middle, color=colour, label=label, alpha=alpha, linewidth=1)
    axes.set_ylabel("steps old")
    axes.set_ylim(0, None)
    axes.margins(x=0.02)
    iteration_axis(axes)
    legend(figure)
    return figure
