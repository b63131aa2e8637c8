"""What the generators made, as strips of pictures."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Neighbours, ScoresRow
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.picture import OfRun, PictureFile, each_run
from mdgan.report.numbers.subject import Subject
from mdgan.storage.foreign_file import read_whole

_MOST_STILLS = 12


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
        png = read_whole(path)
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return PictureFile(iteration, png, *picture.size)


@each_run("iteration", "size")
def samples_over_time(subject: Subject, files: Sequence[PictureFile]) -> OfRun:
    """Grids of the same noise, one after another."""
    rows = [(f"{file.iteration:,}", f"{file.width} × {file.height} pixels") for file in files]
    grids = count(len(subject.run.samples), "grid")
    told = f"{grids}, the last after iteration {files[-1].iteration:,}"
    stills = [(file, subject.label, f"iteration {file.iteration:,}") for file in files]
    return OfRun(rows, told, pictures=(f"Samples of {subject.label}", stills))


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


@each_run("iteration", "held out", "distance, generated to real", "real to real")
def nearest_real(subject: Subject, nearest: NearestReal) -> OfRun:
    """Samples and their nearest real neighbours."""
    file, near = nearest
    held_out = f"{near.n:,} samples" if near.n else "no sample"
    row = (f"{file.iteration:,}", held_out, said(near.generated), said(near.real))
    told = (
        f"In the features of the extractor a sample lies {said(near.generated)} "
        f"from its nearest neighbour, a real one {said(near.real)} (medians)"
    )
    what = f"Samples of {subject.label} and their nearest real neighbours"
    still = (file, what, f"{subject.label}, iteration {file.iteration:,}")
    return OfRun([row], told, pictures=(what, [still]))
