"""Which classes the generator makes, and which the workers hold."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

from mdgan.records.values import count, said, said_range
from mdgan.report.figures.charts import (
    AXIS,
    IDLE,
    MOST_TICKS,
    dot_style,
    heat_map,
    legend,
    new_axes,
    run_colour,
    some_names,
)
from mdgan.report.figures.picture import OfRun, Picture, Row, each_run, together
from mdgan.report.numbers.attendance import holdings
from mdgan.report.numbers.subject import Subject

_MOST_CLASSES = 200
_MOST_WORKERS = 200

Histograms: TypeAlias = tuple[int, list[float], list[float]]
"""An iteration, and what share each class has among generated and among real samples."""

Classwise: TypeAlias = tuple[int, Sequence[float | None], Sequence[float | None]]
"""An iteration, and of each class what share is predicted to be of it, and its FID."""

Holdings: TypeAlias = Mapping[int, list[int]]
"""Worker → how many samples of each class it holds."""


def class_histogram(found: Sequence[tuple[Subject, Histograms]]) -> Picture:
    """How often each class is generated, and how often it is real."""
    num_classes = max(max(len(made), len(real)) for _, (_, made, real) in found)
    figure, axes = new_axes()
    real = next((real for _, (_, _, real) in found if real), [])
    look: dict[str, Any] = {"facecolor": IDLE, "edgecolor": AXIS, "linewidth": 0.8}
    axes.bar(range(len(real)), [100 * r for r in real], width=0.86, **look, label="real data")
    last = max(subject.position for subject, _ in found)
    for subject, (_, made, _) in found:
        percent = [100 * share for share in made]
        if len(found) == 1:
            colour = run_colour(subject)
            axes.bar(range(len(made)), percent, width=0.5, color=colour, label="generated")
        else:
            x = [c + (subject.position - last / 2) * 0.14 for c in range(len(made))]
            axes.plot(x, percent, **dot_style(subject), label=subject.label)
    some_names(axes.set_xticks, range(num_classes))
    axes.set(xlabel="class", ylabel="share of samples [%]", ylim=(0, None))
    legend(figure)
    rows = [("real data", *_percent(real))]
    rows += [(f"{s.label}, iteration {i:,}", *_percent(made)) for s, (i, made, _) in found]
    iterations = sorted({iteration for _, (iteration, _, _) in found})
    *first, final = [f"{iteration:,}" for iteration in iterations]
    seen = f"After iteration {', '.join(first)}{' or ' * bool(first)}{final}."
    return together(figure, seen, ("", *(f"class {c}" for c in range(num_classes))), rows)


def _percent(shares: Sequence[float]) -> Row:
    return tuple(f"{100 * share:.1f} %" for share in shares)


@each_run("iteration", "class", "predicted to be of it", "FID")
def class_by_class(_subject: Subject, classwise: Classwise) -> OfRun:
    """How many samples asked for of a class are of it, and how good they are."""
    iteration, right, distances = classwise
    rows = []
    for number, (share, distance) in enumerate(zip_longest(right, distances)):
        if share is not None or distance is not None:
            predicted = "–" if share is None else f"{100 * share:.1f} %"
            rows.append((f"{iteration:,}", f"class {number}", predicted, said(distance)))
    return OfRun(rows, f"after iteration {iteration:,}")


def held(subject: Subject) -> Holdings | None:
    """What the workers of a run hold, if any of them told."""
    found = holdings(subject.run)
    return found if any(found.values()) else None


@each_run("worker", "samples", "of class 0, 1, …")
def worker_holdings(_subject: Subject, of_workers: Holdings) -> OfRun:
    """Samples by class and worker."""
    rows = [
        (f"worker {n}", f"{sum(counts):,}", " ".join(map(str, counts)))
        for n, counts in of_workers.items()
    ]
    size = said_range([sum(counts) for counts in of_workers.values()])
    workers = list(of_workers)[:_MOST_WORKERS]
    num_classes = min(_MOST_CLASSES, max(map(len, of_workers.values())))
    matrix = [(of_workers[n] + [0] * num_classes)[:num_classes] for n in workers]
    few = len(workers) <= 2 * MOST_TICKS
    figure, axes = new_axes(0.7 + (0.24 * len(workers) if few else 8))
    heat_map(axes, matrix, written=few and num_classes <= MOST_TICKS)
    axes.set(xlabel="class", ylabel="worker")
    some_names(axes.set_xticks, range(num_classes))
    some_names(axes.set_yticks, workers, 2 * MOST_TICKS)
    return OfRun(rows, f"{count(len(of_workers), 'worker')} with {size} samples each", figure)
