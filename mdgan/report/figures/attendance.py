"""Who took part when."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.values import count
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.shapes import Rectangle, rectangles
from mdgan.report.figures.style import INK, SOFT, iteration_axis, new_figure
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
from mdgan.report.numbers.table import Table
from mdgan.report.palette import PRESENCE, SURFACES

_MOST_LANES = 30
_MOST_STRETCHES = 300
_MOST_MARKS = 100
_BAR_HEIGHT = 0.62
_LEAST_HEIGHT = 0.16
"""Of what a worker missed, so that one iteration among many can be seen."""
_LEGEND_COLUMNS = 8
_DASHES = (0, (4, 2))
_TOOK_PART, _WAS_THERE = "took part", "was there"
_MARKERS = {LOST: "X", SHUT_OUT: "s", LEFT: "<", JOINED: ">"}


def who_took_part(subjects: Sequence[Subject]) -> Picture | str:
    """When each worker took part, and what it missed."""
    distributed = [subject for subject in subjects if not subject.standalone]
    if not distributed:
        return "the standalone baseline has no workers"
    found = [s for s in distributed if s.attendance and eventful(s.run, s.attendance)]
    if not found:
        return "no worker was lost, late, refused or joined, and no run was resumed"
    several = len(found) > 1
    panels, told = [], []
    for subject in found:
        said = _said(subject)
        told.append(said)
        label, note = (subject.label, said) if several else ("", "")
        panels.append(Panel(label, _draw(subject), note))
    rows = [row for subject in found for row in _rows(subject)]
    return Picture(panels, only(told), Table(("run", "worker", *COUNTED, "what happened"), rows))


def _said(subject: Subject) -> str:
    left_out = max(0, len(subject.attendance) - _MOST_LANES)
    more = count(left_out, "more worker is", "more workers are")
    room = f"; {more} left out of the drawing" if left_out else ""
    return said_in_all(subject.run, subject.attendance) + room


def _rows(subject: Subject) -> list[tuple[str, ...]]:
    last = _last(subject.attendance)
    return [
        (
            subject.label,
            f"worker {worker.worker}",
            *(f"{worker.counts[what]:,}" for what in COUNTED),
            said_story(worker, last) or "–",
        )
        for worker in subject.attendance
    ]


def _last(workers: Sequence[Attendance]) -> int:
    return max((end for worker in workers for _, end in worker.stays), default=1)


def _draw(subject: Subject) -> Figure:
    last = _last(subject.attendance)
    workers = most_eventful(subject.attendance, _MOST_LANES)
    figure = new_figure(0.62 + 0.25 * len(workers), wide=True)
    axes = figure.add_subplot()
    boxes: dict[str, list[Rectangle]] = {name: [] for name in (_TOOK_PART, LATE, REFUSED)}
    for y, worker in enumerate(workers):
        _add_lane(boxes, worker, y, last)
    for name, lane in boxes.items():
        rectangles(axes, lane, facecolor=PRESENCE[name].light, linewidth=0)
    labels = {_TOOK_PART: _WAS_THERE} if subject.in_rounds else {}
    handles: list[Artist] = [
        Patch(facecolor=PRESENCE[name].light, label=labels.get(name, name))
        for name, lane in boxes.items()
        if lane
    ]
    handles += _draw_marks(axes, workers, last)
    if begins := resumptions(subject.run):
        lines = [axes.axvline(x, color=INK, linewidth=1.2, linestyle=_DASHES) for x in begins]
        lines[0].set_label(RESUMED)
        handles.append(lines[0])
    axes.set_yticks(range(len(workers)), [str(worker.worker) for worker in workers])
    axes.set(xlim=(0, last), ylim=(len(workers) - 0.5, -0.5), ylabel="worker")
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    iteration_axis(axes, most_ticks=10)
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=_LEGEND_COLUMNS,
        labelcolor=SOFT,
        handlelength=1.6,
    )
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
    places: dict[str, list[tuple[int, int]]] = {kind: [] for kind in _MARKERS}
    for y, worker in enumerate(workers):
        for mark in thinned(worker.marks, last, _MOST_MARKS):
            places[mark.kind].append((mark.iteration, y))
    for kind, points in places.items():
        if points:
            x, y_values = zip(*points, strict=True)
            (line,) = axes.plot(
                x,
                y_values,
                _MARKERS[kind],
                label=kind,
                color=INK,
                markeredgecolor=SURFACES["card"].light,
                markeredgewidth=0.8,
                markersize=8,
                clip_on=False,
                zorder=3,
            )
            handles.append(line)
    return handles
