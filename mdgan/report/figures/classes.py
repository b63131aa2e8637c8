"""Which classes the generator makes, and which the workers hold."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.values import count
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.scores import NO_SCORES, small_multiples
from mdgan.report.figures.shapes import heat_map
from mdgan.report.figures.style import (
    AXIS,
    IDLE,
    legend,
    new_figure,
    run_colour,
    run_style,
)
from mdgan.report.numbers.attendance import holdings
from mdgan.report.numbers.scores import histograms, score_events
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

_MOST_TICKS = 20
_MOST_CLASSES = 200
_MOST_WORKERS = 200


def class_coverage(subjects: Sequence[Subject]) -> Picture | str:
    """Classes covered and class KL against iterations."""
    return small_multiples(
        subjects, ("classes_covered", "class_kl"), columns=1, real=[("real", "classes"), ()]
    )


def class_histogram(subjects: Sequence[Subject]) -> Picture | str:
    """How often each class is generated, and how often it is real."""
    found = [(s, shares) for s in subjects if (shares := histograms(s.run)) is not None]
    if not found:
        scored = any(score_events(subject.run) for subject in subjects)
        return "the scorer knows no classes" if scored else NO_SCORES
    num_classes = max(max(len(made), len(real)) for _, (_, made, real) in found)
    if num_classes > _MOST_CLASSES:
        return f"{num_classes} classes are too many to draw"
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    real = next((real for _, (_, _, real) in found if real), [])
    axes.bar(range(len(real)), [100 * r for r in real], **_REAL, label="real data")
    single = len(found) == 1
    for subject, (_, made, _) in found:
        percent = [100 * share for share in made]
        if single:
            colour = run_colour(subject)
            axes.bar(range(len(made)), percent, width=0.5, color=colour, label="generated")
        else:
            style = {**run_style(subject), "linestyle": "none"}
            x = [c + (subject.position - (len(subjects) - 1) / 2) * 0.14 for c in range(len(made))]
            axes.plot(x, percent, **style, label=subject.label)
    _ticks(axes, num_classes, "x")
    axes.set(xlabel="class", ylabel="share of samples [%]", ylim=(0, None))
    legend(figure)
    rows = [
        (f"{subject.label}, iteration {iteration:,}", *(f"{100 * share:.1f} %" for share in made))
        for subject, (iteration, made, _) in found
    ]
    rows.insert(0, ("real data", *(f"{100 * share:.1f} %" for share in real)))
    table = Table(("", *(f"class {c}" for c in range(num_classes))), rows)
    iterations = sorted({iteration for _, (iteration, _, _) in found})
    seen = f"After iteration {' or '.join(f'{i:,}' for i in iterations)}."
    return Picture([Panel("", figure)], seen, table)


_REAL: dict[str, Any] = {"width": 0.86, "facecolor": IDLE, "edgecolor": AXIS, "linewidth": 0.8}


def worker_holdings(subjects: Sequence[Subject]) -> Picture | str:
    """How many samples of each class every worker holds."""
    held = [(s, holdings(s.run)) for s in subjects if not s.standalone]
    found = [(subject, counts) for subject, counts in held if any(map(len, counts.values()))]
    if not found:
        alone = all(subject.standalone for subject in subjects)
        return "the standalone run holds all data" if alone else "not recorded"
    several = len(found) > 1
    panels = [
        Panel(s.label, _draw_holdings(counts), _sizes(counts))
        if several
        else Panel("", _draw_holdings(counts))
        for s, counts in found
    ]
    rows = [
        (subject.label, f"worker {n}", f"{sum(counts):,}", " ".join(map(str, counts)))
        for subject, held in found
        for n, counts in held.items()
    ]
    table = Table(("run", "worker", "samples", "of class 0, 1, …"), rows)
    return Picture(panels, only([_sizes(counts) for _, counts in found]), table)


def _sizes(held: dict[int, list[int]]) -> str:
    sizes = [sum(counts) for counts in held.values()]
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return f"{count(len(sizes), 'worker')} with {size} samples each"


def _draw_holdings(held: dict[int, list[int]]) -> Figure:
    workers = list(held)[:_MOST_WORKERS]
    num_classes = min(_MOST_CLASSES, max(map(len, held.values())))
    matrix = [(held[n] + [0] * num_classes)[:num_classes] for n in workers]
    row_height = 0.24 if len(workers) <= 2 * _MOST_TICKS else 8 / len(workers)
    figure = new_figure(0.7 + row_height * len(workers))
    axes = figure.add_subplot()
    heat_map(axes, matrix, written=num_classes <= _MOST_TICKS and len(workers) <= 2 * _MOST_TICKS)
    axes.set(xlabel="class", ylabel="worker")
    _ticks(axes, num_classes, "x")
    step = -(-len(workers) // (2 * _MOST_TICKS))
    axes.set_yticks(range(0, len(workers), step), [str(n) for n in workers[::step]])
    return figure


def _ticks(axes: Axes, num_classes: int, axis: str) -> None:
    step = -(-num_classes // _MOST_TICKS)
    ticks = range(0, num_classes, step)
    (axes.set_xticks if axis == "x" else axes.set_yticks)(ticks, [str(c) for c in ticks])
