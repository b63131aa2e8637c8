"""How sure it is of each worker that it rides for free."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from mdgan.records.rows import GUILTY, Losses
from mdgan.report.figures.charts import iteration_axis, legend, new_figure
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import COLOURS, INK
from mdgan.report.numbers.durations import envelope
from mdgan.report.numbers.subject import Subject

_MOST_STRETCHES = 300

Riding = dict[int, dict[int, float]]
"""Worker → iteration → its score, in standard deviations from 0."""


def by_worker(subject: Subject) -> Riding | None:
    """The scores of workers; None where they are not scored."""
    found: Riding = {}
    for row in subject.run.of(Losses):
        for worker, score in row.riding.items():
            found.setdefault(worker, {})[row.iteration] = score
    return dict(sorted(found.items())) or None


def scored(found: Sequence[tuple[Subject, Riding]]) -> Picture:
    """Scores against iterations, a drawing each run."""
    rows = [
        (subject.label, f"worker {worker}", f"{max(told.values()):.1f}", _since(told))
        for subject, workers in found
        for worker, told in workers.items()
    ]
    table = Table(("run", "worker", "highest score", "found at iteration"), rows)
    return one_each(found, _draw, _said, table)


def _since(told: dict[int, float]) -> str:
    iterations = [iteration for iteration, score in told.items() if score >= GUILTY]
    return f"{min(iterations):,}" if iterations else "–"


def _said(_subject: Subject, workers: Riding) -> str:
    guilty = [str(n) for n, told in workers.items() if max(told.values()) >= GUILTY]
    found = f"found: {', '.join(guilty)}" if guilty else "none found"
    return f"scores of {len(workers)} workers for free riding; {found}"


def _draw(_subject: Subject, workers: Riding) -> Figure:
    figure = new_figure(2.6)
    axes = figure.subplots()
    few = len(workers) <= len(COLOURS)
    for place, (worker, told) in enumerate(workers.items()):
        thin = envelope(told, _MOST_STRETCHES)
        label, alpha = (f"worker {worker}", 1.0) if few else (None, 0.5)
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(thin.x, thin.middle, color=colour, label=label, alpha=alpha, linewidth=1)
    axes.axhline(GUILTY, color=INK, linestyle="dashed", linewidth=1)
    axes.set_ylabel("score")
    axes.set_ylim(0, None)
    axes.margins(x=0.02)
    iteration_axis(axes)
    legend(figure)
    return figure
