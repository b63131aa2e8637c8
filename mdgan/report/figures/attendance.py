"""Who took part when, in iterations and in rounds, and what the server has seen."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from math import ceil, isfinite
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.rows import RoundRow
from mdgan.records.run_state import COUNTED
from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures import charts
from mdgan.report.figures.picture import Picture, Table, one_each, together
from mdgan.report.figures.style import DASHED, INK, SOFT, run_colour
from mdgan.report.numbers import attendance as numbers
from mdgan.report.numbers import rounds as seen_numbers
from mdgan.report.numbers.attendance import Presence
from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.groups import Group, said_bands
from mdgan.report.numbers.rounds import SEEN_OFTEN
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


_MOST_COLUMNS = 200
_MOST_ROUND_LANES = 100
_LEVELS = 8
_MADE_OF = {"took part": "took part", "asked in vain": "late", "aborted": "refused"}
"""What a round was for a worker, and the name of its colour."""
_EVERY_CLASS = f"Rounds until every class was seen {SEEN_OFTEN} times"


def who_took_part_in_rounds(found: Sequence[tuple[Subject, list[RoundRow]]]) -> Picture | str:
    """Which workers took part in which rounds: worker against round."""
    every = [(subject, one) for subject, rounds in found for one in rounds]
    if not any(one.asked or one.took_part for _, one in every):
        return "not written down, so that differential privacy hides it"
    if all({*one.counted} >= {*s.workers} and len({*one.shares}) < 2 for s, one in every):
        return "every worker in every round, with equal weight"
    rows = []
    for subject, rounds in found:
        asked = Counter(worker for one in rounds for worker in one.asked)
        for n in sorted({*subject.workers, *asked}):
            weights = [one.weights[n] for one in rounds if n in one.counted]
            mean = said(fmean(weights)) if weights else "–"
            times = (f"{asked[n]:,}", f"{len(weights):,}")
            rows.append((subject.label, f"worker {n}", *times, mean, said(sum(weights))))
    header = ("run", "worker", "asked", "took part", "weight, mean", "weight, in all")
    wide, narrow = (partial(_draw_map, wide=wide) for wide in (True, False))
    return one_each(found, wide, _said_rounds, Table(header, rows), narrow)


def _said_rounds(_subject: Subject, rounds: Sequence[RoundRow]) -> str:
    sizes = [len(one.counted) for one in rounds]
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    aborted = sum(one.aborted for one in rounds)
    more = f", {aborted:,} of them aborted" if aborted else ""
    return f"{count(len(rounds), 'round')} of {size} workers{more}"


def _draw_map(subject: Subject, rounds: Sequence[RoundRow], wide: bool) -> Figure:
    workers = sorted({*subject.workers, *(worker for one in rounds for worker in one.asked)})
    workers = chosen_evenly(workers, _MOST_ROUND_LANES)
    height = 0.75 + min(6.0, max(0.09, min(0.3, 3.2 / len(workers))) * len(workers))
    names = [str(worker) for worker in workers]
    figure, axes = charts.lane_chart(height, names, (0.5, len(rounds) + 0.5), wide)
    boxes = _boxes(rounds, workers)
    for (name, level), lane in boxes.items():
        colour = PRESENCE[_MADE_OF[name]].light
        charts.rectangles(axes, lane, facecolor=colour, alpha=level / _LEVELS, linewidth=0)
    for name in _MADE_OF:  # the legend shows them at their strongest, and only those that are there
        nothing = [(0, 0, 0, 0)] if any(name == shown for shown, _ in boxes) else []
        colour = PRESENCE[_MADE_OF[name]].light
        charts.rectangles(axes, nothing, facecolor=colour, linewidth=0, label=name)
    charts.some_names(axes.set_yticks, names)
    axes.set_ylabel("worker")
    charts.iteration_axis(axes, "round", most_ticks=10 if wide else 5)
    charts.legend(figure)
    return figure


def _boxes(
    rounds: Sequence[RoundRow], workers: Sequence[int]
) -> dict[tuple[str, int], list[charts.Rectangle]]:
    """Rectangles by what they show and how strongly: the share of a stretch of rounds."""
    size = ceil(len(rounds) / _MOST_COLUMNS)
    lanes = {worker: y for y, worker in enumerate(workers)}
    boxes: defaultdict[tuple[str, int], list[charts.Rectangle]] = defaultdict(list)
    gap = 0.08 if len(rounds) <= _MOST_COLUMNS / 2 else 0.0
    for begin in range(0, len(rounds), size):
        stretch = rounds[begin : begin + size]
        times = Counter((worker, _what(one, worker)) for one in stretch for worker in one.asked)
        for (worker, name), amount in times.items():
            if worker in lanes:
                level = max(1, round(_LEVELS * amount / len(stretch)))
                left, width = begin + 0.5 + gap / 2, len(stretch) - gap
                boxes[name, level].append((left, lanes[worker] - 0.44, width, 0.88))
    return boxes


def _what(one: RoundRow, worker: int) -> str:
    if one.aborted:
        return "aborted"
    return "took part" if worker in one.weights else "asked in vain"


def classes_seen(group: Group) -> BandedLine | None:
    """Samples of a class seen after every round: mean, least and greatest of classes and runs."""
    found = [seen_numbers.seen_of(subject.run) for subject in group.members]
    return _band([[[0] * len(real), *seen] for seen, real in found if real])


def _band(every: Sequence[Sequence[Sequence[float]]]) -> BandedLine | None:
    """A line through the values of every run after every round; None for no runs."""
    line = BandedLine([], [], [], [])
    for number, after in enumerate(zip(*every, strict=False)):
        values = [float(value) for of_run in after for value in of_run]
        line.add(number, values, fmean(values))
    return line if every else None


def samples_seen(found: Sequence[tuple[Group, BandedLine]]) -> Picture:
    """Samples of a class that the server has seen, against rounds."""
    figure, axes = charts.new_axes()
    for group, line in found:
        charts.draw_line(axes, group.first, group.label, line)
    axes.set_xlim(0, None)
    charts.iteration_axis(axes, "round")
    if len(found) > 1:
        charts.legend(figure)
    axes.axhline(SEEN_OFTEN, color=SOFT, linestyle=DASHED, linewidth=1.1)
    axes.set(ylim=(0, None), ylabel="samples of a class seen")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    rows = []
    for group, _ in found:
        every = [seen_numbers.rounds_until_seen(subject.run) for subject in group.members]
        known = [reached for reached in every if reached is not None]
        if len(known) == len(every):  # a mean of those that got there would flatter the others
            colour, x = run_colour(group.first), fmean(known)
            axes.axvline(x, color=colour, linewidth=1, linestyle=":")
            axes.plot(x, SEEN_OFTEN, "D", color=colour, markeredgecolor=INK, markersize=6, zorder=4)
        for subject, reached in zip(group.members, every, strict=True):
            seen, kl = seen_numbers.seen_of(subject.run)[0], seen_numbers.kl_of_seen(subject.run)
            last = (f"{min(seen[-1]):,}", f"{max(seen[-1]):,}") if seen else ("–", "–")
            often = "never" if reached is None else f"{reached:,}"
            at = [chosen_evenly(kl, 3)[k] if len(kl) > 2 else None for k in range(3)]
            divergence = ("∞" if x is not None and not isfinite(x) else said(x) for x in at)
            rounds = f"{len(subject.run.of(RoundRow)):,}"
            rows.append((subject.label, rounds, *last, *divergence, often))
    told = "; ".join(f"{row[0]}: {row[-1]}" if len(rows) > 1 else row[-1] for row in rows)
    header = ("run", "rounds", "least seen class", "most seen class", "KL [nats] after round 1",
              "in the middle", "at the end", _EVERY_CLASS)  # fmt: skip
    seen_in_words = f"{_EVERY_CLASS}: {told}. {said_bands([group for group, _ in found])}"
    return together(figure, seen_in_words, header, rows)
