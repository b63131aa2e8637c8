"""The sample grids of a run, few enough to look at."""

import struct
from typing import NamedTuple

from mdgan.observe.recorded_run import RecordedRun
from mdgan.observe.report.numbers.values import chosen_evenly

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
    frames = []
    for iteration in chosen_evenly(sorted(run.samples), MOST_FRAMES):
        try:
            png = run.samples[iteration].read_bytes()
        except OSError:
            continue
        if png.startswith(_SIGNATURE) and png.endswith(_END):
            width, height = struct.unpack(">II", png[16:24])
            frames.append(Frame(iteration, png, width, height))
    return frames
