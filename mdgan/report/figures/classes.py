"""Which classes the generator makes, and which the workers hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from mdgan.records.values import count
from mdgan.report.figures.charts import MOST_TICKS, heat_map, legend, new_axes, some_names
from mdgan.report.figures.picture import Picture, Row, Table, one_each, together
from mdgan.report.figures.style import AXIS, IDLE, dot_style, run_colour
from mdgan.report.numbers.attendance import holdings
from mdgan.report.numbers.subject import Subject

_MOST_CLASSES = 200
_MOST_WORKERS = 200

Histograms: TypeAlias = tuple[int, list[float], list[float]]
"""An iteration, and what share each class has among generated and among real samples."""

Classwise: TypeAlias = tuple[int, list[float | None]]
"""An iteration, and a number of each class; None where there is none."""

Holdings: TypeAlias = Mapping[int, list[int]]
"""Worker → how many samples of each class it holds."""


def class_histogram(found: Sequence[tuple[Subject, Histograms]]) -> Picture | str:
    """How often each class is generated, and how often it is real."""
    num_classes = max(max(len(made), len(real)) for _, (_, made, real) in found)
    if num_classes > _MOST_CLASSES:
        return f"{num_classes} classes are too many to draw"
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


def of_each_class(
    name: str, unit: str, factor: float = 1.0
) -> Callable[[Sequence[tuple[Subject, Classwise]]], Picture | str]:
    """Draws a number of each class that a conditional generator was asked for, with its unit."""

    def draw(found: Sequence[tuple[Subject, Classwise]]) -> Picture | str:
        num_classes = max(len(values) for _, (_, values) in found)
        if num_classes > _MOST_CLASSES:
            return f"{num_classes} classes are too many to draw"
        figure, axes = new_axes()
        for subject, (_, values) in found:
            known = [(c, factor * value) for c, value in enumerate(values) if value is not None]
            x, y = zip(*known, strict=True)
            axes.plot(x, y, **dot_style(subject), label=subject.label, clip_on=False)
        some_names(axes.set_xticks, range(num_classes))
        axes.set(xlabel="class", ylabel=f"{name} [{unit}]" if unit else name, ylim=(0, None))
        if len(found) > 1:
            legend(figure)
        rows = [
            (f"{s.label}, iteration {i:,}", *(_said(value, factor, unit) for value in values))
            for s, (i, values) in found
        ]
        return together(figure, "", ("", *(f"class {c}" for c in range(num_classes))), rows)

    return draw


def _said(value: float | None, factor: float, unit: str) -> str:
    return "-" if value is None else f"{factor * value:.1f} {unit}".strip()


def _percent(shares: Sequence[float]) -> Row:
    return tuple(f"{100 * share:.1f} %" for share in shares)


def held(subject: Subject) -> Holdings | None:
    """What the workers of a run hold, if any of them told."""
    found = holdings(subject.run)
    return found if any(found.values()) else None


def worker_holdings(found: Sequence[tuple[Subject, Holdings]]) -> Picture:
    """How many samples of each class every worker holds."""
    rows = [
        (subject.label, f"worker {n}", f"{sum(counts):,}", " ".join(map(str, counts)))
        for subject, of_workers in found
        for n, counts in of_workers.items()
    ]
    header = ("run", "worker", "samples", "of class 0, 1, …")
    return one_each(found, _draw_holdings, _sizes, Table(header, rows))


def _sizes(_subject: Subject, of_workers: Holdings) -> str:
    sizes = [sum(counts) for counts in of_workers.values()]
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return f"{count(len(sizes), 'worker')} with {size} samples each"


def _draw_holdings(_subject: Subject, of_workers: Holdings) -> Figure:
    workers = list(of_workers)[:_MOST_WORKERS]
    num_classes = min(_MOST_CLASSES, max(map(len, of_workers.values())))
    matrix = [(of_workers[n] + [0] * num_classes)[:num_classes] for n in workers]
    few = len(workers) <= 2 * MOST_TICKS
    figure, axes = new_axes(0.7 + (0.24 * len(workers) if few else 8))
    heat_map(axes, matrix, written=few and num_classes <= MOST_TICKS)
    axes.set(xlabel="class", ylabel="worker")
    some_names(axes.set_xticks, range(num_classes))
    some_names(axes.set_yticks, workers, 2 * MOST_TICKS)
    return figure
