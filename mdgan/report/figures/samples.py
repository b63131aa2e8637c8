"""What the generators made: as strips in the page, and as one drawing for a paper."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.image import imread
from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Scores
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.charts import new_figure
from mdgan.report.figures.picture import Frame, Picture, Row, Strip, Table, one_each
from mdgan.report.figures.style import WIDE_INCHES
from mdgan.report.numbers.subject import Subject

_MOST_STILLS = 12
_MOST_IN_DRAWING = 5
_FEWEST_COLUMNS, _MOST_COLUMNS = 4, 6


def film(run: RecordedRun) -> list[Frame]:
    """At most twelve sample grids, evenly chosen, the first and the last among them."""
    chosen = chosen_evenly(sorted(run.samples), _MOST_STILLS)
    return [frame for i in chosen if (frame := read_frame(run.samples[i], i)) is not None]


def result(run: RecordedRun) -> Frame | None:
    """The last sample grid of a run that can be read."""
    frames = (read_frame(run.samples[i], i) for i in sorted(run.samples, reverse=True))
    return next((frame for frame in frames if frame), None)


def read_frame(path: Path, iteration: int) -> Frame | None:
    """A PNG of a run; None if it cannot be read."""
    try:
        png = path.read_bytes()
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return Frame(iteration, png, *picture.size)


def samples_over_time(found: Sequence[tuple[Subject, list[Frame]]]) -> Picture:
    """Sample grids from the first to the last."""
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
    picture = one_each(found, _draw_film, _told, Table(("run", "iteration", "size"), rows))
    return replace(picture, strips=strips)


def _told(subject: Subject, frames: Sequence[Frame]) -> str:
    grids = count(len(subject.run.samples), "grid")
    return f"{grids}, the last after iteration {frames[-1].iteration:,}"


def _draw_film(_subject: Subject, frames: Sequence[Frame]) -> Figure:
    chosen = chosen_evenly(frames, _MOST_IN_DRAWING)
    titled = [(f"iteration {frame.iteration:,}", frame) for frame in chosen]
    return draw_frames(titled, _MOST_IN_DRAWING)


def neighbours(run: RecordedRun) -> tuple[Frame, Scores] | None:
    """Some samples, and the held-out ones next to them, of the newest generator scored so."""
    scored = [row for row in run.of(Scores) if row.neighbours]
    frame = read_frame(run.neighbours, scored[-1].iteration) if scored else None
    return (frame, scored[-1]) if frame else None


def nearest_real(found: Sequence[tuple[Subject, tuple[Frame, Scores]]]) -> Picture:
    """Samples above, their nearest real neighbours below."""
    rows: list[Row] = []
    strips = []
    for subject, (frame, scores) in found:
        nearest = scores.neighbours
        assert nearest is not None
        of = f"{nearest.n:,} samples" if nearest.n else "no sample"
        rows.append((subject.label, f"{frame.iteration:,}", of, said(nearest.generated),
                     said(nearest.real)))  # fmt: skip
        beneath = f"{subject.label}, iteration {frame.iteration:,}"
        what = f"Samples of {subject.label} and their nearest real neighbours"
        strips.append(Strip(what, [(frame, what, beneath)], subject))
    header = ("run", "iteration", "held out", "distance, generated to real", "real to real")
    picture = one_each(found, _draw_neighbours, _said_near, Table(header, rows))
    return replace(picture, strips=strips)


def _said_near(_subject: Subject, found: tuple[Frame, Scores]) -> str:
    nearest = found[1].neighbours
    assert nearest is not None
    return (
        f"In the features of the extractor a sample lies {said(nearest.generated)} from its "
        f"nearest neighbour, a real one {said(nearest.real)} (medians)"
    )


def _draw_neighbours(_subject: Subject, found: tuple[Frame, Scores]) -> Figure:
    return draw_frames([("generated above, real below", found[0])], 1)


def draw_frames(titled: Sequence[tuple[str, Frame]], columns: int) -> Figure:
    """One drawing of pictures with their titles, in so many columns."""
    num_rows = -(-len(titled) // columns)
    tallest = max(frame.height / frame.width for _, frame in titled)
    figure = new_figure(num_rows * (tallest * WIDE_INCHES / columns + 0.2), wide=True)
    grid = figure.subplots(num_rows, columns, squeeze=False)
    for axes, (title, frame) in zip(grid.flat, titled, strict=False):
        axes.imshow(imread(io.BytesIO(frame.png), format="png"))
        axes.set_title(title)
    for axes in grid.flat:
        axes.set_axis_off()
    return figure
