"""Who took part when."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.values import count
from mdgan.report.figures.charts import (
    Rectangle,
    iteration_axis,
    lane_chart,
    lane_legend,
    rectangles,
)
from mdgan.report.figures.picture import Picture, one_each
from mdgan.report.figures.style import INK
from mdgan.report.numbers.attendance import (
    COUNTED,
    Attendance,
    eventful,
    most_eventful,
    resumptions,
    said_in_all,
    said_story,
    thinned,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.palette import PRESENCE, SURFACES

_MOST_LANES = 30
_MOST_STRETCHES = 300
_MOST_MARKS = 100
_BAR_HEIGHT = 0.62
_LEAST_HEIGHT = 0.16
"""Of what a worker missed, so that one iteration among many can be seen."""
_TOOK_PART = "took part"
_MARKERS = {LOST: "X", SHUT_OUT: "s", LEFT: "<", JOINED: ">"}


class Presence(NamedTuple):
    """What happened to the workers of a run.

    Attributes:
        workers: when each was there, and what it missed.
        last: the last iteration.
        resumed: the iterations from which the run went on after it had stopped.
        said: what happened, in one clause.
    """

    workers: Sequence[Attendance]
    last: int
    resumed: Sequence[int]
    said: str


def presence(subject: Subject) -> Presence | None:
    """When the workers of a run were there; None if nothing out of the ordinary happened."""
    workers = subject.attendance
    if not workers or not eventful(subject.run, workers):
        return None
    left_out = max(0, len(workers) - _MOST_LANES)
    more = count(left_out, "more worker is", "more workers are")
    room = f"; {more} left out of the drawing" if left_out else ""
    return Presence(
        workers,
        max((end for worker in workers for _, end in worker.stays), default=1),
        resumptions(subject.run),
        said_in_all(subject.run, workers) + room,
    )


def who_took_part(found: Sequence[tuple[Subject, Presence]]) -> Picture:
    """When each worker took part, and what it missed."""
    rows = [
        (
            subject.label,
            f"worker {worker.worker}",
            *(f"{worker.counts[what]:,}" for what in COUNTED),
            said_story(worker, there.last) or "–",
        )
        for subject, there in found
        for worker in there.workers
    ]
    header = ("run", "worker", *COUNTED, "what happened")
    return one_each(found, _draw, lambda _, there: there.said, header, rows)


def _draw(subject: Subject, there: Presence) -> Figure:
    workers = most_eventful(there.workers, _MOST_LANES)
    names = [str(worker.worker) for worker in workers]
    figure, axes = lane_chart(0.62 + 0.25 * len(workers), names, (0, there.last))
    boxes: dict[str, list[Rectangle]] = {name: [] for name in (_TOOK_PART, LATE, REFUSED)}
    for y, worker in enumerate(workers):
        _add_lane(boxes, worker, y, there.last)
    handles: list[Artist] = []
    for name, lane in boxes.items():
        colour = PRESENCE[name].light
        rectangles(axes, lane, facecolor=colour, linewidth=0)
        label = "was there" if subject.in_rounds and name == _TOOK_PART else name
        handles += [Patch(facecolor=colour, label=label)] if lane else []
    handles += _draw_marks(axes, workers, there.last)
    lines: list[Artist] = [
        axes.axvline(x, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label=RESUMED)
        for x in there.resumed
    ]
    axes.set_ylabel("worker")
    iteration_axis(axes, most_ticks=10)
    lane_legend(figure, handles + lines[:1])
    return figure


def _add_lane(boxes: dict[str, list[Rectangle]], worker: Attendance, y: int, last: int) -> None:
    """One worker's bar; what it missed stands on it, as high as the share that it missed."""
    floor = y + _BAR_HEIGHT / 2
    for begin, end in worker.stays:
        boxes[_TOOK_PART].append((begin, y - _BAR_HEIGHT / 2, end - begin, _BAR_HEIGHT))
    for share in worker.shares(last, _MOST_STRETCHES):
        bottom = floor
        for name, missed in ((LATE, share.late), (REFUSED, share.refused)):
            height = min(_BAR_HEIGHT * max(missed, _LEAST_HEIGHT), bottom - floor + _BAR_HEIGHT)
            if missed and height > 0:
                bottom -= height
                boxes[name].append((share.begin, bottom, share.end - share.begin, height))


def _draw_marks(axes: Axes, workers: Sequence[Attendance], last: int) -> list[Artist]:
    """How workers came and went; returns what the legend shows."""
    handles: list[Artist] = []
    for kind, marker in _MARKERS.items():
        points = [
            (mark.iteration, y)
            for y, worker in enumerate(workers)
            for mark in thinned(worker.marks, last, _MOST_MARKS)
            if mark.kind == kind
        ]
        if points:
            handles += axes.plot(
                *zip(*points, strict=True),
                marker,
                label=kind,
                color=INK,
                markeredgecolor=SURFACES["card"].light,
                markeredgewidth=0.8,
                markersize=8,
                clip_on=False,
                zorder=3,
            )
    return handles
