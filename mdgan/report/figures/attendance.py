"""Who took part when."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.run_state import COUNTED
from mdgan.records.values import count
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Table, one_each
from mdgan.report.figures.style import INK
from mdgan.report.numbers import attendance as numbers
from mdgan.report.numbers.attendance import Presence
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


def of_run(subject: Subject) -> Sequence[Presence]:
    """When the workers of a run were there, if anything out of the ordinary happened."""
    workers = subject.presences
    return workers if workers and numbers.eventful(subject.run, workers) else []


def who_took_part(found: Sequence[tuple[Subject, Sequence[Presence]]]) -> Picture:
    """When each worker took part, and what it missed."""
    rows = []
    for subject, workers in found:
        for worker in workers:
            counts = (f"{worker.counts[what]:,}" for what in COUNTED)
            story = numbers.said_story(worker, _last(workers)) or "–"
            rows.append((subject.label, f"worker {worker.worker}", *counts, story))
    header = ("run", "worker", *COUNTED, "what happened")
    return one_each(
        found, partial(_draw, wide=True), _said, Table(header, rows), partial(_draw, wide=False)
    )


def _said(subject: Subject, workers: Sequence[Presence]) -> str:
    left_out = len(workers) - _MOST_LANES
    more = count(left_out, "more worker is", "more workers are")
    room = f"; {more} left out of the drawing" if left_out > 0 else ""
    return numbers.said_in_all(subject.run, workers) + room


def _last(workers: Sequence[Presence]) -> int:
    return max((end for worker in workers for _, end in worker.stays), default=1)


def _draw(subject: Subject, every: Sequence[Presence], wide: bool) -> Figure:
    last = _last(every)
    workers = numbers.most_eventful(every, _MOST_LANES)
    names = [str(worker.worker) for worker in workers]
    figure, axes = charts.lane_chart(0.62 + 0.25 * len(workers), names, (0, last), wide)
    boxes: dict[str, list[charts.Rectangle]] = {name: [] for name in (_TOOK_PART, LATE, REFUSED)}
    for y, worker in enumerate(workers):
        _add_lane(boxes, worker, y, last)
    for name, lane in boxes.items():
        label = "was there" if subject.has_rounds() and name == _TOOK_PART else name
        charts.rectangles(axes, lane, facecolor=PRESENCE[name].light, linewidth=0, label=label)
    _draw_marks(axes, workers, last)
    style: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (4, 2))}
    for k, x in enumerate(numbers.resumptions(subject.run)):
        axes.axvline(x, **style, label=RESUMED if k == 0 else None)
    axes.set_ylabel("worker")
    charts.iteration_axis(axes, most_ticks=10 if wide else 5)
    charts.legend(figure)
    return figure


def _add_lane(
    boxes: dict[str, list[charts.Rectangle]], worker: Presence, y: int, last: int
) -> None:
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


def _draw_marks(axes: Axes, workers: Sequence[Presence], last: int) -> None:
    """How workers came and went."""
    edge: dict[str, Any] = {"markeredgecolor": SURFACES["card"].light, "markeredgewidth": 0.8}
    style = {"color": INK, "markersize": 8, "clip_on": False, "zorder": 3, **edge}
    for kind, marker in _MARKERS.items():
        points = [
            (mark.iteration, y)
            for y, worker in enumerate(workers)
            for mark in numbers.thinned(worker.marks, last, _MOST_MARKS)
            if mark.kind == kind
        ]
        if points:
            x, y_values = zip(*points, strict=True)
            axes.plot(x, y_values, marker, label=kind, **style)
