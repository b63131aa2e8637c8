"""A few of the sample grids of a run."""

from collections.abc import Sequence
from io import BytesIO
from itertools import islice
from typing import NamedTuple

from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import chosen_evenly
from mdgan.report.numbers.groups import Group
from mdgan.report.numbers.subject import Subject

MOST_FRAMES = 12


class Frame(NamedTuple):
    """One sample grid.

    Attributes:
        iteration: of the generator that made it.
        png: the picture file.
        width: in pixels.
        height: in pixels.
    """

    iteration: int
    png: bytes
    width: int
    height: int


def film(run: RecordedRun) -> list[Frame]:
    """At most twelve sample grids, evenly chosen, the first and the last among them."""
    chosen = chosen_evenly(sorted(run.samples), MOST_FRAMES)
    return [frame for iteration in chosen if (frame := _frame(run, iteration)) is not None]


def last_frames(found: Sequence[Group]) -> list[tuple[Group, Subject, Frame]]:
    """The last sample grid of every configuration, of the first of its runs that has one."""
    frames: list[tuple[Group, Subject, Frame]] = []
    for group in found:
        sampled = (subject for subject in group.members if subject.run.samples)
        last = ((subject, _frame(subject.run, max(subject.run.samples))) for subject in sampled)
        frames += islice(((group, subject, frame) for subject, frame in last if frame), 1)
    return frames


def _frame(run: RecordedRun, iteration: int) -> Frame | None:
    try:
        png = run.samples[iteration].read_bytes()
        with Image.open(BytesIO(png), formats=["PNG"]) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return Frame(iteration, png, *picture.size)
