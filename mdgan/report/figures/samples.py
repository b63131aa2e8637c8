"""What the generators made, as strips of pictures."""

import io
from pathlib import Path

from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import ScoresRow
from mdgan.records.run_directory import NEIGHBOURS_FILE
from mdgan.records.values import chosen_evenly, said
from mdgan.report.figures.picture import OfRun, PictureFile
from mdgan.report.numbers.subject import Subject
from mdgan.spelling import count
from mdgan.storage.budget import check_picture
from mdgan.storage.foreign_file import MOST_PICTURE_BYTES, read_whole

_MOST_STILLS = 12


def result(run: RecordedRun) -> PictureFile | None:
    """The last sample grid of a run that can be read."""
    files = (read_picture(run.samples[i], i) for i in sorted(run.samples, reverse=True))
    return next((file for file in files if file), None)


def read_picture(path: Path, iteration: int) -> PictureFile | None:
    """A PNG of a run; None if it cannot be read, or is too large for a page."""
    try:
        png = read_whole(path, MOST_PICTURE_BYTES)
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            check_picture(picture.size, len(png))
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return PictureFile(iteration, png, *picture.size)


def samples_over_time(subject: Subject) -> OfRun | None:
    """At most twelve grids of the same noise, the first and the last among them."""
    saved = subject.run.samples
    chosen = chosen_evenly(sorted(saved), _MOST_STILLS)
    if not (files := [file for i in chosen if (file := read_picture(saved[i], i))]):
        return None
    rows = [(f"{file.iteration:,}", f"{file.width} × {file.height} pixels") for file in files]
    grids = count(len(saved), "grid")
    summary = f"{grids}, the last after iteration {files[-1].iteration:,}"
    if unread := len(chosen) - len(files):
        summary += f"; {unread} left out, which cannot be read or are too large"
    stills = [(file, subject.label, f"iteration {file.iteration:,}") for file in files]
    what = f"Samples of {subject.label}"
    return OfRun(rows, summary, pictures=(what, stills), header=("iteration", "size"))


def nearest_real(subject: Subject) -> OfRun | None:
    """Samples and their nearest real neighbours, of the newest generator scored so."""
    run = subject.run
    scored = [(row.iteration, row.neighbours) for row in run.of(ScoresRow) if row.neighbours]
    if not scored:
        return None
    iteration, near = scored[-1]
    if (file := read_picture(run.path / NEIGHBOURS_FILE, iteration)) is None:
        return None
    held_out = f"{near.n:,} samples" if near.n else "no sample"
    row = (f"{file.iteration:,}", held_out, said(near.generated), said(near.real))
    summary = (
        f"In the features of the extractor a sample lies {said(near.generated)} "
        f"from its nearest neighbour, a real one {said(near.real)} (medians)"
    )
    what = f"Samples of {subject.label} and their nearest real neighbours"
    still = (file, what, f"{subject.label}, iteration {file.iteration:,}")
    header = ("iteration", "held out", "distance, generated to real", "real to real")
    return OfRun([row], summary, pictures=(what, [still]), header=header)
