"""Configurations beside one another: what their scores cost."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from mdgan.records.values import size_unit
from mdgan.report.figures.charts import draw_line, iteration_axis, legend, new_figure, time_axis
from mdgan.report.figures.picture import Picture, together
from mdgan.report.figures.scores import (
    SCORE_HEADER,
    draw_references,
    last_values,
    limit_scores,
    members_of,
    score_rows,
)
from mdgan.report.numbers.costs import (
    iterations_until,
    seconds_until,
    server_bytes_until,
    worker_bytes_until,
)
from mdgan.report.numbers.groups import Cost, Curve, Group, curve
from mdgan.report.numbers.scores import METRICS


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


def costs(metric: str) -> Callable[[Group], list[Curve] | None]:
    """A metric of a configuration against iterations, time, bytes of a worker and of the server."""

    def against_costs(group: Group) -> list[Curve] | None:
        lines = [curve(group, metric, cost) for cost, _ in _COSTS]
        return lines if any(line.x for line in lines) else None

    return against_costs


def compared(metric: str) -> Callable[[Sequence[tuple[Group, list[Curve]]]], Picture]:
    """Draws a metric against these four."""

    def draw(found: Sequence[tuple[Group, list[Curve]]]) -> Picture:
        figure = new_figure(2.7, wide=True)
        row = figure.subplots(1, len(_COSTS), sharey=True)
        members = members_of(found)
        for place, (axes, (_, prepare)) in enumerate(zip(row, _COSTS, strict=True)):
            lines = [(group, of_group[place]) for group, of_group in found]
            most = max((x for _, line in lines for x in line.x), default=0.0)
            factor = prepare(axes, most)
            floors = draw_references(axes, members, metric, named=place == 0)
            for group, line in lines:
                draw_line(axes, group.first, group.label, line, factor)
            if most:
                axes.set_xlim(0, 1.03 * most / factor)
            else:
                axes.text(0.5, 0.5, "not counted", transform=axes.transAxes, ha="center")
                axes.set_xticks([])
        row[0].set_ylabel(METRICS[metric])
        known = [line for _, of_group in found for line in of_group if line.x]
        limit_scores(row[0], metric, known, floors)
        legend(figure, row[0])
        seen = last_values(found, [metric])
        return together(figure, seen, SCORE_HEADER, score_rows(members, [metric]))

    return draw
