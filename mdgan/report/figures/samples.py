"""What the generators made: as strips in the page, and as one drawing for a paper."""

import io
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.image import imread

from mdgan.records.values import chosen_evenly, count
from mdgan.report.figures.charts import new_figure
from mdgan.report.figures.picture import Picture, Strip, one_each, together
from mdgan.report.figures.style import WIDE_INCHES
from mdgan.report.numbers.film import Frame, last_frames
from mdgan.report.numbers.groups import Group
from mdgan.report.numbers.subject import Subject

_MOST_FRAMES = 5
_FEWEST_COLUMNS, _MOST_COLUMNS = 4, 6


def samples_over_time(found: Sequence[tuple[Subject, list[Frame]]]) -> Picture:
    """Sample grids from the first to the last."""
    header = ("run", "iteration", "size")
    rows = [
        (subject.label, f"{frame.iteration:,}", f"{frame.width} × {frame.height} pixels")
        for subject, frames in found
        for frame in frames
    ]
    strips = [
        Strip(
            f"Samples of {subject.label}",
            [(frame, subject.label, f"iteration {frame.iteration:,}") for frame in frames],
            subject,
        )
        for subject, frames in found
    ]
    picture = one_each(found, _draw_film, _told, header, rows)
    return replace(picture, strips=strips)


def _told(subject: Subject, frames: Sequence[Frame]) -> str:
    grids = count(len(subject.run.samples), "grid")
    return f"{grids}, the last after iteration {frames[-1].iteration:,}"


def _draw_film(_subject: Subject, frames: Sequence[Frame]) -> Figure:
    chosen = chosen_evenly(frames, _MOST_FRAMES)
    titled = [(f"iteration {frame.iteration:,}", frame) for frame in chosen]
    return _draw(titled, _MOST_FRAMES)


def last_frame(group: Group) -> tuple[Subject, Frame] | None:
    """The last sample grid of a configuration, and the run that it is from."""
    return next(((subject, frame) for _, subject, frame in last_frames([group])), None)


def samples_side_by_side(found: Sequence[tuple[Group, tuple[Subject, Frame]]]) -> Picture:
    """The last sample grid of every configuration."""
    titled = [(f"{g.label}, iteration {frame.iteration:,}", frame) for g, (_, frame) in found]
    figure = _draw(titled, max(min(len(found), _MOST_COLUMNS), _FEWEST_COLUMNS))
    rows = [(g.label, subject.label, f"{frame.iteration:,}") for g, (subject, frame) in found]
    several_seeds = any(len(group.members) > 1 for group, _ in found)
    seen = "Of several seeds it is the first." if several_seeds else ""
    stills = [(frame, group.label, group.label) for group, (_, frame) in found]
    strips = [Strip("Samples of every configuration", stills)]
    picture = together(figure, seen, ("configuration", "run", "iteration"), rows)
    return replace(picture, strips=strips)


def _draw(titled: Sequence[tuple[str, Frame]], columns: int) -> Figure:
    num_rows = -(-len(titled) // columns)
    figure = new_figure(num_rows * (WIDE_INCHES / columns + 0.2), wide=True)
    grid = figure.subplots(num_rows, columns, squeeze=False)
    for axes, (title, frame) in zip(grid.flat, titled, strict=False):
        axes.imshow(imread(io.BytesIO(frame.png), format="png"))
        axes.set_title(title)
    for axes in grid.flat:
        axes.set_axis_off()
    return figure
