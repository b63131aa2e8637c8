"""A few of the sample grids of a run."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import chosen_evenly
from mdgan.report.numbers.groups import Group
from mdgan.report.numbers.subject import Subject

MOST_FRAMES = 12
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"IEND\xaeB`\x82"


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
    frames = []
    for group in found:
        for subject in group.members:
            last = max(subject.run.samples, default=None)
            frame = None if last is None else _frame(subject.run, last)
            if frame is not None:
                frames.append((group, subject, frame))
                break
    return frames


def _frame(run: RecordedRun, iteration: int) -> Frame | None:
    try:
        png = run.samples[iteration].read_bytes()
    except OSError:
        return None
    if not (png.startswith(_SIGNATURE) and png.endswith(_END)):
        return None
    width, height = struct.unpack(">II", png[16:24])
    return Frame(iteration, png, width, height)
