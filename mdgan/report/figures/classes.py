"""Figures of classes: how often the generator makes each, and how many samples workers hold."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

from mdgan.records.values import said, said_range
from mdgan.report.figures import charts
from mdgan.report.figures.charts import MOST_TICKS
from mdgan.report.figures.picture import OfRun, Picture, Row, together
from mdgan.report.numbers.scores import classwise
from mdgan.report.numbers.subject import Subject
from mdgan.spelling import count

_MOST_CLASSES = 200
_MOST_WORKERS = 200

Histograms: TypeAlias = tuple[int, list[float], list[float]]
"""An iteration, and what share each class has among generated and among real samples."""


def class_histogram(recorded: Sequence[tuple[Subject, Histograms]]) -> Picture:
    """How often each class is generated, and how often it is real."""
    num_classes = max(max(len(made), len(real)) for _, (_, made, real) in recorded)
    figure, axes = charts.new_axes()
    real = next((real for _, (_, _, real) in recorded if real), [])
    look: dict[str, Any] = {"facecolor": charts.IDLE, "edgecolor": charts.AXIS, "linewidth": 0.8}
    axes.bar(range(len(real)), [100 * r for r in real], width=0.86, **look, label="real data")
    last = max(subject.position for subject, _ in recorded)
    for subject, (_, made, _) in recorded:
        percent = [100 * share for share in made]
        if len(recorded) == 1:
            colour = charts.run_colour(subject)
            axes.bar(range(len(made)), percent, width=0.5, color=colour, label="generated")
        else:
            x = [c + (subject.position - last / 2) * 0.14 for c in range(len(made))]
            look = {**charts.run_style(subject), "linestyle": "none"}
            axes.plot(x, percent, **look, label=subject.label)
    charts.some_names(axes.set_xticks, range(num_classes))
    axes.set(xlabel="class", ylabel="share of samples [%]", ylim=(0, None))
    charts.legend(figure)
    rows = [("real data", *_percent(real))]
    rows += [(f"{s.label}, iteration {i:,}", *_percent(made)) for s, (i, made, _) in recorded]
    iterations = sorted({iteration for _, (iteration, _, _) in recorded})
    *first, final = [f"{iteration:,}" for iteration in iterations]
    seen = f"After iteration {', '.join(first)}{' or ' * bool(first)}{final}."
    return together(figure, seen, ("", *(f"class {c}" for c in range(num_classes))), rows=rows)


def _percent(shares: Sequence[float]) -> Row:
    return tuple(f"{100 * share:.1f} %" for share in shares)


def class_by_class(subject: Subject) -> OfRun | None:
    """How many samples of each class the classifier takes for it, and their FID."""
    if (recorded := classwise(subject.run)) is None:
        return None
    iteration, right, distances = recorded
    rows = []
    for number, (share, distance) in enumerate(zip_longest(right, distances)):
        if share is not None or distance is not None:
            predicted = "–" if share is None else f"{100 * share:.1f} %"
            rows.append((f"{iteration:,}", f"class {number}", predicted, said(distance)))
    header = ("iteration", "class", "predicted to be of it", "FID")
    return OfRun(rows, f"after iteration {iteration:,}", header=header)


def worker_holdings(subject: Subject) -> OfRun | None:
    """Samples by class and worker; None if no worker told."""
    of_workers = subject.run.holdings()
    if not any(of_workers.values()):
        return None
    rows = [
        (f"worker {n}", f"{sum(counts):,}", " ".join(map(str, counts)))
        for n, counts in of_workers.items()
    ]
    size = said_range([sum(counts) for counts in of_workers.values()])
    workers = list(of_workers)[:_MOST_WORKERS]
    num_classes = min(_MOST_CLASSES, max(map(len, of_workers.values())))
    matrix = [(of_workers[n] + [0] * num_classes)[:num_classes] for n in workers]
    few = len(workers) <= 2 * MOST_TICKS
    figure, axes = charts.new_axes(0.7 + (0.24 * len(workers) if few else 8))
    charts.heat_map(axes, matrix, written=few and num_classes <= MOST_TICKS)
    axes.set(xlabel="class", ylabel="worker")
    charts.some_names(axes.set_xticks, range(num_classes))
    charts.some_names(axes.set_yticks, workers, 2 * MOST_TICKS)
    summary = f"{count(len(of_workers), 'worker')} with {size} samples each"
    return OfRun(rows, summary, figure, header=("worker", "samples", "of class 0, 1, …"))
