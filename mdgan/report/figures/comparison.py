"""Configurations beside one another: what their scores cost, and what they make."""

import io
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.ticker import MaxNLocator

from mdgan.records.values import chosen_evenly, size_unit
from mdgan.report.figures.picture import Panel, Picture
from mdgan.report.figures.scores import (
    NO_SCORES,
    SCORE_HEADER,
    draw_curve,
    last_values,
    limit_scores,
    references,
    score_rows,
)
from mdgan.report.figures.style import (
    WIDE_INCHES,
    iteration_axis,
    legend,
    new_figure,
    time_axis,
)
from mdgan.report.numbers.costs import (
    iterations_until,
    seconds_until,
    server_bytes_until,
    worker_bytes_until,
)
from mdgan.report.numbers.film import Frame, last_frames
from mdgan.report.numbers.groups import Cost, Group, curve, groups
from mdgan.report.numbers.scores import METRICS
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

ONE_CONFIGURATION = "this compares several configurations"
_MOST_ROWS = 40
_MOST_COLUMNS = 6


def _bytes_axis(name: str) -> Callable[[Axes, float], float]:
    def prepare(axes: Axes, most: float) -> float:
        factor, unit = size_unit([most])
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(f"{name} [{unit}]")
        return factor

    return prepare


def _iterations(axes: Axes, _most: float) -> float:
    iteration_axis(axes, most_ticks=5)
    return 1.0


_COSTS: tuple[tuple[Cost, Callable[[Axes, float], float]], ...] = (
    (iterations_until, _iterations),
    (seconds_until, time_axis),
    (worker_bytes_until, _bytes_axis("moved by a worker")),
    (server_bytes_until, _bytes_axis("moved by the server")),
)
"""What a score may be held against, and how its axis is made: from the greatest value to a unit."""


def fid_compared(subjects: Sequence[Subject]) -> Picture | str:
    """FID against iterations, time, bytes of a worker and bytes of the server."""
    return _compared(subjects, "fid", ("floor", "fid"), "real against real")


def score_compared(subjects: Sequence[Subject]) -> Picture | str:
    """Inception score against the same four."""
    return _compared(subjects, "inception_score", ("real", "inception_score"), "real data")


def coverage_compared(subjects: Sequence[Subject]) -> Picture | str:
    """Coverage against the same four."""
    return _compared(subjects, "coverage", (), "")


def samples_side_by_side(subjects: Sequence[Subject]) -> Picture | str:
    """The last sample grid of every configuration."""
    found = groups(subjects)
    if len(found) < 2:
        return ONE_CONFIGURATION
    frames = last_frames(found)
    if not frames:
        return "no samples are saved yet"
    rows = [(g.label, subject.label, f"{frame.iteration:,}") for g, subject, frame in frames]
    drawn = _draw_columns([(group, frame) for group, _, frame in frames])
    seen = "Of several seeds it is the first." if len(subjects) > len(found) else ""
    table = Table(("configuration", "run", "iteration"), rows)
    return Picture([Panel("", drawn)], seen, table)


def _draw_columns(frames: Sequence[tuple[Group, Frame]]) -> Figure:
    columns = min(len(frames), _MOST_COLUMNS)
    num_rows = -(-len(frames) // columns)
    figure = new_figure(num_rows * (WIDE_INCHES / max(columns, 4) + 0.2), wide=True)
    grid = figure.subplots(num_rows, max(columns, 4), squeeze=False)
    for place, (group, frame) in enumerate(frames):
        axes = grid[place // columns][place % columns]
        axes.imshow(imread(io.BytesIO(frame.png), format="png"))
        axes.set_title(f"{group.label}, iteration {frame.iteration:,}")
    for axes in grid.flat:
        axes.set_axis_off()
    return figure


def _compared(
    subjects: Sequence[Subject], metric: str, real: tuple[str, ...], real_name: str
) -> Picture | str:
    found = groups(subjects)
    if len(found) < 2:
        return ONE_CONFIGURATION
    lines = [[curve(group, metric, cost) for group in found] for cost, _ in _COSTS]
    known = [line for of_cost in lines for line in of_cost if line.x]
    if not known:
        return NO_SCORES
    figure = new_figure(2.7, wide=True)
    row = figure.subplots(1, len(_COSTS), sharey=True)
    floors = references(row[0], subjects, real, real_name) if real else []
    for axes, (_, prepare), of_cost in zip(row, _COSTS, lines, strict=True):
        most = max((x for line in of_cost for x in line.x), default=0.0)
        factor = prepare(axes, most)
        for group, line in zip(found, of_cost, strict=True):
            draw_curve(axes, group, line, factor)
        if most:
            axes.set_xlim(0, 1.03 * most / factor)
        else:
            axes.text(0.5, 0.5, "not counted", transform=axes.transAxes, ha="center")
            axes.set_xticks([])
    for axes in row[1:] if floors else ():
        references(axes, subjects, real, "")
    row[0].set_ylabel(METRICS[metric])
    limit_scores(row[0], metric, known, floors)
    legend(figure, row[0])
    table = Table(SCORE_HEADER, chosen_evenly(score_rows(subjects, metric), _MOST_ROWS))
    return Picture([Panel("", figure)], last_values(subjects, [metric]), table)
