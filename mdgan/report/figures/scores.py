"""How good the generator is."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from mdgan.records.values import chosen_evenly, said, said_seconds
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.style import (
    SOFT,
    iteration_axis,
    legend,
    line_style,
    log_y,
    new_figure,
    run_colour,
    time_axis,
    wants_log,
)
from mdgan.report.numbers.costs import iterations_until, seconds_until
from mdgan.report.numbers.groups import Cost, Curve, Group, curve, groups, said_bands
from mdgan.report.numbers.scores import METRICS, not_comparable, reference, scores_of
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

NO_SCORES = "no scores are recorded (mdgan evaluate adds some)"
_LOG_FROM_RATIO = 15
_MOST_ROWS = 40
SCORE_HEADER = ("run", "score", "iteration", "time", "value")
_FOUR = ("precision", "recall", "density", "coverage")


def fid_against_iterations(subjects: Sequence[Subject]) -> Picture | str:
    """FID against iterations, with the floor of real against real (figures 7.8 and E.6)."""
    return _one_metric(subjects, "fid", ("floor", "fid"), "real against real")


def fid_against_time(subjects: Sequence[Subject]) -> Picture | str:
    """FID against training time."""
    return _one_metric(subjects, "fid", ("floor", "fid"), "real against real", over_time=True)


def kid_against_iterations(subjects: Sequence[Subject]) -> Picture | str:
    """KID against iterations, with its standard deviation over subsets."""
    return _one_metric(subjects, "kid", (), "")


def inception_score(subjects: Sequence[Subject]) -> Picture | str:
    """Inception score against iterations (figures 7.9 and E.7)."""
    return _one_metric(subjects, "inception_score", ("real", "inception_score"), "real data")


def precision_and_recall(subjects: Sequence[Subject]) -> Picture | str:
    """Precision, recall, density and coverage against iterations."""
    return small_multiples(subjects, _FOUR, columns=2)


def small_multiples(
    subjects: Sequence[Subject],
    metrics: Sequence[str],
    columns: int,
    real: Sequence[tuple[str, ...]] = (),
) -> Picture | str:
    """Several metrics, an axes each, all runs in each.

    Args:
        subjects: the runs.
        metrics: their names in the records.
        columns: of axes.
        real: for each metric, where the real data's value is recorded; empty for nowhere.
    """
    found = [metric for metric in metrics if any(scores_of(s.run, metric) for s in subjects)]
    if not found:
        return NO_SCORES
    found_groups = groups(subjects)
    num_rows = -(-len(found) // columns)
    figure = new_figure(0.35 + 1.65 * num_rows)
    grid = figure.subplots(num_rows, columns, sharex=True, squeeze=False)
    rows: list[tuple[str, ...]] = []
    for place, metric in enumerate(found):
        axes = grid[place // columns][place % columns]
        for group in found_groups:
            draw_curve(axes, group, curve(group, metric, iterations_until))
        where = real[metrics.index(metric)] if real else ()
        top = 1.08 * max(x.value for s in subjects for x in scores_of(s.run, metric))
        if where:
            top = 1.2 * max([top, *references(axes, subjects, where, "real data")])
        axes.set_title(METRICS[metric])
        axes.set_ylim(0, top or 1)
        axes.margins(x=0.03)
        label = "iteration" if place + columns >= len(found) else ""
        iteration_axis(axes, label, most_ticks=6 // columns)
        rows += score_rows(subjects, metric)
    for place in range(len(found), num_rows * columns):
        grid[place // columns][place % columns].set_visible(False)
    if len(found_groups) > 1:
        legend(figure)
    table = Table(SCORE_HEADER, chosen_evenly(rows, _MOST_ROWS))
    return Picture([Panel("", figure)], last_values(subjects, found), table)


def _one_metric(
    subjects: Sequence[Subject],
    metric: str,
    real: tuple[str, ...],
    real_name: str,
    over_time: bool = False,
) -> Picture | str:
    cost: Cost = seconds_until if over_time else iterations_until
    curves = [(group, curve(group, metric, cost)) for group in groups(subjects)]
    curves = [(group, line) for group, line in curves if line.x]
    if not curves:
        return NO_SCORES
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    if over_time:
        factor = time_axis(axes, max(x for _, line in curves for x in line.x))
    else:
        factor = 1.0
        iteration_axis(axes)
    for group, line in curves:
        draw_curve(axes, group, line, factor)
    floors = references(axes, subjects, real, real_name) if real else []
    axes.set_ylabel(METRICS[metric])
    limit_scores(axes, metric, [line for _, line in curves], floors)
    axes.margins(x=0.03)
    if len(curves) > 1:
        legend(figure)
    seen = last_values(subjects, [metric])
    if floors:
        seen += f" {real_name.capitalize()}: {said_range(floors)}."
    table = Table(SCORE_HEADER, chosen_evenly(score_rows(subjects, metric), _MOST_ROWS))
    return Picture([Panel("", figure)], seen.strip(), table)


def limit_scores(axes: Axes, metric: str, curves: Sequence[Curve], floors: Sequence[float]) -> None:
    """Makes the y axis hold all curves and what real data gets: from 0 on, or logarithmic."""
    values = [value for line in curves for value in line.middle]
    if metric == "fid" and wants_log(values, _LOG_FROM_RATIO):
        lowest = min([*values, *(floor for floor in floors if floor > 0)])
        axes.set_ylim(0.8 * lowest, 1.2 * max(value for line in curves for value in line.high))
        log_y(axes)
    elif min(values) >= 0:
        highest = max(value for line in curves for value in line.high)
        axes.set_ylim(0, 1.12 * max([highest, *floors]) or 1)


def draw_curve(axes: Axes, group: Group, line: Curve, factor: float = 1.0) -> None:
    """One configuration: a line, and a band where runs or subsets differ."""
    if not line.x:
        return
    x = [value / factor for value in line.x]
    if line.low != line.high:
        colour = run_colour(group.first)
        axes.fill_between(x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, line.middle, **line_style(group.first, len(x)), label=group.label)


def references(
    axes: Axes, subjects: Sequence[Subject], path: tuple[str, ...], name: str
) -> list[float]:
    """Dashed lines at what real data gets: one if all runs agree, else one a run.

    Args:
        axes: where.
        subjects: the runs.
        path: where their records have it.
        name: stands on the line; empty for nothing.

    Returns:
        The different values.
    """
    values = [(s, reference(s.run, *path)) for s in subjects]
    known = [(subject, value) for subject, value in values if value is not None]
    different = sorted({value for _, value in known})
    for value in different:
        owners = [subject for subject, of_run in known if of_run == value]
        colour = run_colour(owners[0]) if len(different) > 1 else SOFT
        axes.axhline(value, color=colour, linestyle=(0, (6, 3)), linewidth=1.1)
    if different and name:
        middle = different[len(different) // 2]
        axes.annotate(
            f"{name} {said(middle)}" if len(different) == 1 else name,
            (0, max(different)),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            ha="left",
            va="bottom",
            color=SOFT,
        )
    return different


def said_range(values: Sequence[float]) -> str:
    """One value, or the least and the greatest."""
    low, high = said(min(values)), said(max(values))
    return low if low == high else f"{low} to {high}"


def last_values(subjects: Sequence[Subject], metrics: Sequence[str]) -> str:
    """The last scores of the only run; of several, what their lines are and what to beware of."""
    told = []
    for subject in subjects:
        last = [(metric, scores_of(subject.run, metric)) for metric in metrics]
        values = [f"{METRICS[m]} {said(scores[-1].value)}" for m, scores in last if scores]
        told.append(f"At the end: {', '.join(values)}")
    beware = not_comparable([subject.run for subject in subjects])
    return " ".join(filter(None, (only(told), said_bands(groups(subjects)), beware)))


def score_rows(subjects: Sequence[Subject], metric: str) -> list[tuple[str, ...]]:
    """Every score of every run."""
    return [
        (
            subject.label,
            METRICS[metric],
            f"{score.iteration:,}",
            said_seconds(score.seconds),
            said(score.value, 4) + (f" ± {said(score.deviation, 2)}" if score.deviation else ""),
        )
        for subject in subjects
        for score in scores_of(subject.run, metric)
    ]
