"""How good the generator is."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from matplotlib.axes import Axes

from mdgan.records.values import chosen_evenly, said, said_seconds
from mdgan.report.figures.charts import (
    draw_line,
    iteration_axis,
    legend,
    log_if_wide,
    new_axes,
    new_figure,
)
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import DASHED, SOFT, run_colour
from mdgan.report.numbers.costs import iterations_until
from mdgan.report.numbers.groups import Curve, Group, curve, said_bands
from mdgan.report.numbers.scores import METRICS, not_comparable, reference, scores_of
from mdgan.report.numbers.subject import Subject

SCORE_HEADER = ("run", "score", "iteration", "time", "value")
_MOST_ROWS = 40

Curves: TypeAlias = Mapping[str, Curve]
"""Metric → its values; only those that were measured."""


class Reference(NamedTuple):
    """What real data gets.

    Attributes:
        path: where records have it.
        name: stands at the line.
    """

    path: tuple[str, ...]
    name: str


REFERENCES = {
    "fid": Reference(("floor", "fid"), "real against real"),
    "inception_score": Reference(("real", "inception_score"), "real data"),
    "classes_covered": Reference(("real", "classes"), "real data"),
}


def curves(*metrics: str) -> Callable[[Group], Curves | None]:
    """Some metrics of a configuration against iterations; None if it has none of them."""

    def against_iterations(group: Group) -> Curves | None:
        every = {metric: curve(group, metric, iterations_until) for metric in metrics}
        return {metric: line for metric, line in every.items() if line.x} or None

    return against_iterations


def one_metric(found: Sequence[tuple[Group, Curves]]) -> Picture:
    """One metric against iterations, with what real data gets."""
    ((metric, _),) = found[0][1].items()
    figure, axes = new_axes()
    iteration_axis(axes)
    for group, lines in found:
        draw_line(axes, group.first, group.label, lines[metric])
    members = members_of(found)
    floors = draw_references(axes, members, metric)
    axes.set_ylabel(METRICS[metric])
    limit_scores(axes, metric, [lines[metric] for _, lines in found], floors)
    axes.margins(x=0.03)
    if len(found) > 1:
        legend(figure)
    seen = last_values(found, [metric])
    if floors:
        low, high = said(floors[0]), said(floors[-1])
        of_real = low if low == high else f"{low} to {high}"
        seen += f" {REFERENCES[metric].name.capitalize()}: {of_real}."
    rows = score_rows(members, [metric])
    return together(figure, seen, SCORE_HEADER, rows)


def small_multiples(columns: int) -> Callable[[Sequence[tuple[Group, Curves]]], Picture]:
    """Draws several metrics, an axes each, all runs in each."""

    def draw(found: Sequence[tuple[Group, Curves]]) -> Picture:
        metrics = [m for m in METRICS if any(m in lines for _, lines in found)]
        num_rows = -(-len(metrics) // columns)
        figure = new_figure(0.35 + 1.65 * num_rows)
        grid = figure.subplots(num_rows, columns, sharex=True, squeeze=False)
        for place, (axes, metric) in enumerate(zip(grid.flat, metrics, strict=False)):
            known = [(group, lines[metric]) for group, lines in found if metric in lines]
            for group, line in known:
                draw_line(axes, group.first, group.label, line)
            top = 1.08 * max(value for _, line in known for value in line.high)
            floors = draw_references(axes, members_of(found), metric)
            axes.set_title(METRICS[metric])
            axes.set_ylim(0, 1.2 * max(top, *floors) if floors else top or 1)
            axes.margins(x=0.03)
            label = "iteration" if place + columns >= len(metrics) else ""
            iteration_axis(axes, label, most_ticks=6 // columns)
        for axes in list(grid.flat)[len(metrics) :]:
            axes.set_visible(False)
        if len(found) > 1:
            legend(figure)
        rows = score_rows(members_of(found), metrics)
        return together(figure, last_values(found, metrics), SCORE_HEADER, rows)

    return draw


def members_of(found: Sequence[tuple[Group, object]]) -> list[Subject]:
    """The runs of some configurations."""
    return [subject for group, _ in found for subject in group.members]


def limit_scores(axes: Axes, metric: str, lines: Sequence[Curve], floors: Sequence[float]) -> None:
    """Makes the y axis hold all curves and what real data gets: from 0 on, or logarithmic."""
    values = [value for line in lines for value in line.middle]
    highest = max(value for line in lines for value in line.high)
    lowest = min([*values, *(floor for floor in floors if floor > 0)])
    if metric == "fid" and log_if_wide(axes, values):
        axes.set_ylim(0.8 * lowest, 1.2 * highest)
    elif min(values) >= 0:
        axes.set_ylim(0, 1.12 * max([highest, *floors]) or 1)


def draw_references(
    axes: Axes, subjects: Sequence[Subject], metric: str, named: bool = True
) -> list[float]:
    """Dashed lines at what real data gets: one if all runs agree, else one a run.

    Args:
        axes: where.
        subjects: the runs.
        metric: one of which no record tells what real data gets is drawn without lines.
        named: whether to say what the lines are.

    Returns:
        The different values, in increasing order.
    """
    if metric not in REFERENCES:
        return []
    path, name = REFERENCES[metric]
    known = [(s, value) for s in subjects if (value := reference(s.run, *path)) is not None]
    different = sorted({value for _, value in known})
    for value in different:
        owner = next(subject for subject, of_run in known if of_run == value)
        colour = run_colour(owner) if len(different) > 1 else SOFT
        axes.axhline(value, color=colour, linestyle=DASHED, linewidth=1.1)
    if different and named:
        axes.annotate(
            f"{name} {said(different[0])}" if len(different) == 1 else name,
            (0, different[-1]),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            va="bottom",
            color=SOFT,
        )
    return different


def last_values(found: Sequence[tuple[Group, object]], metrics: Sequence[str]) -> str:
    """The last scores of the only run; of several, what their lines are and what to beware of."""
    told = []
    for subject in members_of(found):
        last = [(metric, scores_of(subject.run, metric)) for metric in metrics]
        values = [f"{METRICS[m]} {said(scores[-1].value)}" for m, scores in last if scores]
        told.append(f"At the end: {', '.join(values)}")
    beware = not_comparable([subject.run for subject in members_of(found)])
    return " ".join(filter(None, (only(told), said_bands([g for g, _ in found]), beware)))


def score_rows(subjects: Sequence[Subject], metrics: Sequence[str]) -> list[Row]:
    """The scores of every run, or some of them where they are many."""
    rows = [
        (
            subject.label,
            METRICS[metric],
            f"{score.iteration:,}",
            said_seconds(score.seconds),
            said(score.value, 4) + (f" ± {said(score.deviation, 2)}" if score.deviation else ""),
        )
        for metric in metrics
        for subject in subjects
        for score in scores_of(subject.run, metric)
    ]
    return chosen_evenly(rows, _MOST_ROWS)
