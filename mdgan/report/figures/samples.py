"""What the generators made: as strips in the page, and as one drawing for a paper."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.image import imread
from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Neighbours, ScoresRow
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.charts import new_figure
from mdgan.report.figures.picture import Picture, PictureFile, Table, one_strip_each
from mdgan.report.figures.style import WIDE_INCHES
from mdgan.report.numbers.subject import Subject

_MOST_STILLS = 12
_MOST_IN_DRAWING = 5

Stills = Sequence[tuple[PictureFile, str, str]]


def film(run: RecordedRun) -> list[PictureFile]:
    """At most twelve sample grids, evenly chosen, the first and the last among them."""
    chosen = chosen_evenly(sorted(run.samples), _MOST_STILLS)
    return [file for i in chosen if (file := read_picture(run.samples[i], i)) is not None]


def result(run: RecordedRun) -> PictureFile | None:
    """The last sample grid of a run that can be read."""
    files = (read_picture(run.samples[i], i) for i in sorted(run.samples, reverse=True))
    return next((file for file in files if file), None)


def read_picture(path: Path, iteration: int) -> PictureFile | None:
    """A PNG of a run; None if it cannot be read."""
    try:
        png = path.read_bytes()
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return PictureFile(iteration, png, *picture.size)


def samples_over_time(found: Sequence[tuple[Subject, list[PictureFile]]]) -> Picture:
    """Sample grids from the first to the last."""
    rows = [
        (subject.label, f"{file.iteration:,}", f"{file.width} × {file.height} pixels")
        for subject, files in found
        for file in files
    ]

    def told(subject: Subject, files: Sequence[PictureFile]) -> str:
        grids = count(len(subject.run.samples), "grid")
        return f"{grids}, the last after iteration {files[-1].iteration:,}"

    def draw(_subject: Subject, files: Sequence[PictureFile]) -> Figure:
        chosen = chosen_evenly(files, _MOST_IN_DRAWING)
        titled = [(f"iteration {file.iteration:,}", file) for file in chosen]
        return draw_files(titled, _MOST_IN_DRAWING)

    def strip(subject: Subject, files: Sequence[PictureFile]) -> tuple[str, Stills]:
        stills = [(file, subject.label, f"iteration {file.iteration:,}") for file in files]
        return f"Samples of {subject.label}", stills

    return one_strip_each(found, draw, told, Table(("run", "iteration", "size"), rows), strip)


class NearestReal(NamedTuple):
    """Samples and the held-out ones next to them, and how near they are."""

    file: PictureFile
    distances: Neighbours


def neighbours(run: RecordedRun) -> NearestReal | None:
    """Some samples, and the held-out ones next to them, of the newest generator scored so."""
    scored = [(row.iteration, row.neighbours) for row in run.of(ScoresRow) if row.neighbours]
    if not scored:
        return None
    iteration, distances = scored[-1]
    file = read_picture(run.neighbours, iteration)
    return NearestReal(file, distances) if file else None


def nearest_real(found: Sequence[tuple[Subject, NearestReal]]) -> Picture:
    """Samples above, their nearest real neighbours below."""
    rows = [
        (subject.label, f"{file.iteration:,}",
         f"{near.n:,} samples" if near.n else "no sample", said(near.generated), said(near.real))
        for subject, (file, near) in found
    ]  # fmt: skip
    header = ("run", "iteration", "held out", "distance, generated to real", "real to real")

    def told(_subject: Subject, nearest: NearestReal) -> str:
        return (
            f"In the features of the extractor a sample lies {said(nearest.distances.generated)} "
            f"from its nearest neighbour, a real one {said(nearest.distances.real)} (medians)"
        )

    def draw(_subject: Subject, nearest: NearestReal) -> Figure:
        return draw_files([("generated above, real below", nearest.file)], 1)

    def strip(subject: Subject, nearest: NearestReal) -> tuple[str, Stills]:
        what = f"Samples of {subject.label} and their nearest real neighbours"
        beneath = f"{subject.label}, iteration {nearest.file.iteration:,}"
        return what, [(nearest.file, what, beneath)]

    return one_strip_each(found, draw, told, Table(header, rows), strip)


def draw_files(titled: Sequence[tuple[str, PictureFile]], columns: int) -> Figure:
    """One drawing of pictures with their titles, in so many columns."""
    num_rows = -(-len(titled) // columns)
    tallest = max(file.height / file.width for _, file in titled)
    figure = new_figure(num_rows * (tallest * WIDE_INCHES / columns + 0.2), wide=True)
    grid = figure.subplots(num_rows, columns, squeeze=False)
    for axes, (title, file) in zip(grid.flat, titled, strict=False):
        axes.imshow(imread(io.BytesIO(file.png), format="png"))
        axes.set_title(title)
    for axes in grid.flat:
        axes.set_axis_off()
    return figure
