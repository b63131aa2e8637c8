"""What the generator made as time went by, as one picture for a paper; the page has a strip."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.image import imread

from mdgan.records.values import chosen_evenly, count
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.style import WIDE_INCHES, new_figure
from mdgan.report.numbers.film import Frame, film
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table

_MOST_FRAMES_IN_PICTURE = 5


def samples_over_time(subjects: Sequence[Subject]) -> Picture | str:
    """Sample grids from the first to the last (figures 7.12 to 7.16)."""
    films = [(subject, film(subject.run)) for subject in subjects]
    found = [(subject, frames) for subject, frames in films if frames]
    if not found:
        return "no samples are saved yet"
    rows = [
        (subject.label, f"{frame.iteration:,}", f"{frame.width} × {frame.height} pixels")
        for subject, frames in found
        for frame in frames
    ]
    seen = [
        f"{count(len(subject.run.samples), 'grid')}, the last after iteration "
        f"{frames[-1].iteration:,}"
        for subject, frames in found
    ]
    panels = [Panel(s.label if len(found) > 1 else "", _draw(frames)) for s, frames in found]
    return Picture(panels, only(seen), Table(("run", "iteration", "size"), rows))


def _draw(frames: Sequence[Frame]) -> Figure:
    chosen = chosen_evenly(frames, _MOST_FRAMES_IN_PICTURE)
    figure = new_figure(WIDE_INCHES / _MOST_FRAMES_IN_PICTURE + 0.2, wide=True)
    row = figure.subplots(1, _MOST_FRAMES_IN_PICTURE, squeeze=False)[0]
    for axes, frame in zip(row, chosen, strict=False):
        axes.imshow(imread(io.BytesIO(frame.png), format="png"))
        axes.set_title(f"iteration {frame.iteration:,}")
    for axes in row:
        axes.set_axis_off()
    return figure
