"""Lying bars: the value at the end of each, and long names above them, not beside them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from mdgan.records.values import measured
from mdgan.report.figures.style import INK

INCHES_A_BAR = 0.27
INCHES_A_HEADING = 0.2
_BAR_HEIGHT = 0.72
_ROOM_FOR_VALUES = 1.15


def heights(groups: Sequence[tuple[str, Sequence[Any]]]) -> float:
    """Inches that groups of bars need, without the axis."""
    headings = sum(1 for heading, _ in groups if heading)
    return headings * INCHES_A_HEADING + sum(len(bars) for _, bars in groups) * INCHES_A_BAR


def lying_bars(
    axes: Axes,
    groups: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, float]]]]],
    parts: Sequence[str],
    style: Callable[[str], dict[str, Any]],
    whiskers: Sequence[tuple[float, float]] = (),
) -> None:
    """Draws groups of stacked bars.

    Args:
        axes: where.
        groups: heading, and bars; a bar is what stands beside it and the length of every part.
        parts: in which order they are stacked.
        style: how a part looks.
        whiskers: for every bar, from where to where a thin line reaches; none by default.
    """
    places: list[float] = []
    names: list[str] = []
    bars: list[Mapping[str, float]] = []
    y = 0.0
    for heading, members in groups:
        if heading:
            axes.text(0, y - 0.05, heading, color=INK, va="center", ha="left")
            y += (INCHES_A_HEADING + INCHES_A_BAR) / 2 / INCHES_A_BAR
        for name, bar in members:
            places.append(y)
            names.append(name)
            bars.append(bar)
            y += 1
        y += INCHES_A_HEADING / INCHES_A_BAR / 2 - 0.5 if heading else 0
    lefts = [0.0] * len(bars)
    for part in parts:
        values = [bar.get(part, 0.0) for bar in bars]
        axes.barh(places, values, left=lefts, height=_BAR_HEIGHT, label=part, **style(part))
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    for place, ends in zip(places, whiskers, strict=False):
        axes.plot(ends, [place, place], color=INK, linewidth=1, marker="|", markersize=5)
    highs = [high for _, high in whiskers] or lefts
    longest = [max(ends) for ends in zip(lefts, highs, strict=True)]
    widest = max(longest)
    for place, total, end in zip(places, lefts, longest, strict=True):
        axes.text(end + widest / 60, place, measured(total), va="center", color=INK)
    axes.set_yticks(places, names)
    axes.set(ylim=(places[-1] + 0.5, -0.5), xlim=(0, _ROOM_FOR_VALUES * widest or 1))
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
