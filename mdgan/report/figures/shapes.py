"""Many rectangles as few paths: small files, and no seams."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from mdgan.report.palette import HEAT

Rectangle = tuple[float, float, float, float]
"""x, y, width, height."""

_LEVELS = 24
_FAINTEST = 0.06
_MOST_WRITTEN = 400
_GAP = 0.06


def rectangles(axes: Axes, boxes: Iterable[Rectangle], **style: Any) -> None:
    """Draws rectangles of one look as one path."""
    vertices: list[tuple[float, float]] = []
    codes: list[Any] = []
    for x, y, width, height in boxes:
        vertices += [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    if vertices:
        axes.add_patch(PathPatch(Path(vertices, codes), **style))


def heat_map(axes: Axes, values: Sequence[Sequence[float]], written: bool = True) -> None:
    """Draws a matrix, row 0 at the top, darker for more; with the numbers if there is room.

    Args:
        axes: where.
        values: rows of equal length, at least one, not negative.
        written: whether to write whole numbers into the cells.
    """
    num_rows, num_columns = len(values), len(values[0])
    greatest = max(max(row) for row in values) or 1.0
    gap = _GAP if num_rows * num_columns <= _MOST_WRITTEN else 0.0
    levels: defaultdict[int, list[Rectangle]] = defaultdict(list)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value > 0:
                box = (x - 0.5 + gap / 2, y - 0.5 + gap / 2, 1 - gap, 1 - gap)
                levels[max(1, round(_LEVELS * value / greatest))].append(box)
    for level, boxes in sorted(levels.items()):
        opacity = _FAINTEST + (0.72 - _FAINTEST) * level / _LEVELS
        rectangles(axes, boxes, facecolor=HEAT.light, alpha=opacity, linewidth=0)
    axes.set_xlim(-0.5, num_columns - 0.5)
    axes.set_ylim(num_rows - 0.5, -0.5)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if written and num_rows * num_columns <= _MOST_WRITTEN:
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                if value:
                    axes.text(x, y, f"{value:.0f}", ha="center", va="center")
