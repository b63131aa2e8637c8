"""Figures of workers: when they took part, the samples that the server saw, and swaps."""

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mdgan.records.happenings import JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.rows import RoundRow, Swap
from mdgan.records.run_state import COUNTED
from mdgan.records.values import chosen_evenly, said, said_list, said_range
from mdgan.report.figures import charts
from mdgan.report.figures.charts import DASHED, INK, SOFT, run_colour
from mdgan.report.figures.picture import OfRun, Picture, Row, together
from mdgan.report.numbers import attendance as numbers
from mdgan.report.numbers.attendance import SEEN_OFTEN, Presence
from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.subject import Group, Subject, said_bands
from mdgan.report.palette import PRESENCE, SURFACES
from mdgan.spelling import count

_MOST_LANES = 30
_MOST_STRETCHES = 300
_MOST_MARKS = 100
_MOST_SWAPPING = 100
_BAR_HEIGHT = 0.62
_LEAST_HEIGHT = 0.16  # of what a worker missed, so that one iteration among many can be seen
_TOOK_PART = "took part"
_MARKERS = {LOST: "X", SHUT_OUT: "s", LEFT: "<", JOINED: ">"}


def who_took_part(subject: Subject) -> OfRun | None:
    """When each worker took part, and what it missed; None if nothing unusual happened."""
    workers = subject.presences
    if not workers or not numbers.eventful(subject.run, workers):
        return None
    last = max((end for worker in workers for _, end in worker.stays), default=1)
    rows = []
    for worker in workers:
        counts = (f"{worker.counts[what]:,}" for what in COUNTED)
        story = numbers.said_story(worker, last) or "–"
        rows.append((f"worker {worker.worker}", *counts, story))
    left_out = len(workers) - _MOST_LANES
    more = count(left_out, "more worker is", "more workers are")
    room = f"; {more} left out of the drawing" if left_out > 0 else ""
    summary = numbers.said_in_all(subject.run, workers) + room
    header = ("worker", *COUNTED, "what happened")
    return OfRun(rows, summary, _draw(subject, workers, last), header=header)


def _draw(subject: Subject, every: Sequence[Presence], last: int) -> Figure:
    workers = numbers.most_eventful(every, _MOST_LANES)
    names = [str(worker.worker) for worker in workers]
    figure, axes = charts.lane_chart(0.62 + 0.25 * len(workers), names, last)
    boxes: dict[str, list[charts.Rectangle]] = {name: [] for name in (_TOOK_PART, LATE, REFUSED)}
    for y, worker in enumerate(workers):
        _add_lane(boxes, worker, y, last=last)
    for name, lane in boxes.items():
        label = "was there" if subject.has_rounds() and name == _TOOK_PART else name
        charts.rectangles(axes, lane, facecolor=PRESENCE[name].light, linewidth=0, label=label)
    _draw_marks(axes, workers, last)
    style: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (4, 2))}
    for k, x in enumerate(numbers.resumptions(subject.run)):
        axes.axvline(x, **style, label=RESUMED if k == 0 else None)
    axes.set_ylabel("worker")
    charts.iteration_axis(axes, most_ticks=10)
    charts.legend(figure)
    return figure


def _add_lane(
    boxes: dict[str, list[charts.Rectangle]], worker: Presence, y: int, last: int
) -> None:
    """Adds one worker's bar, and on it boxes as high as the shares that the worker missed."""
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


def who_was_asked(subject: Subject) -> OfRun | None:
    """How often each worker was asked, and took part; None if rounds do not record workers."""
    rounds = subject.run.of(RoundRow)
    if not any(one.asked or one.took_part for one in rounds):
        return None
    rows: list[Row] = []
    asked = Counter(worker for one in rounds for worker in one.asked)
    for n in sorted({*subject.workers, *asked}):
        weights = [one.weights[n] for one in rounds if n in one.counted]
        mean = said(fmean(weights)) if weights else "–"
        counts = (f"{asked[n]:,}", f"{len(weights):,}")
        rows.append((f"worker {n}", *counts, mean, said(sum(weights))))
    size = said_range([len(one.counted) for one in rounds])
    aborted = sum(one.aborted for one in rounds)
    more = f", {aborted:,} of them aborted" if aborted else ""
    summary = f"{count(len(rounds), 'round')} of {size} workers{more}"
    header = ("worker", "asked", "took part", "weight, mean", "weight, in all")
    return OfRun(rows, summary, header=header)


_EVERY_CLASS = f"Rounds until every class was seen {SEEN_OFTEN} times"


def classes_seen(group: Group) -> BandedLine | None:
    """Samples of a class seen after every round: mean, least and greatest of classes and runs."""
    recorded = [numbers.seen_of(subject.run) for subject in group.members]
    every = [[[0] * len(real), *seen] for seen, real in recorded if real]
    line = BandedLine(x=[], low=[], middle=[], high=[])
    for number, after in enumerate(zip(*every, strict=False)):
        values = [float(value) for of_run in after for value in of_run]
        line.add(number, values, fmean(values))
    return line if every else None


def samples_seen(recorded: Sequence[tuple[Group, BandedLine]]) -> Picture:
    """Samples of a class that the server has seen, against rounds."""
    figure, axes = charts.new_axes()
    for group, line in recorded:
        charts.draw_line(axes, group.first, group.label, line=line)
    axes.set_xlim(0, None)
    charts.iteration_axis(axes, "round")
    if len(recorded) > 1:
        charts.legend(figure)
    axes.axhline(SEEN_OFTEN, color=SOFT, linestyle=DASHED, linewidth=1.1)
    axes.set(ylim=(0, None), ylabel="samples of a class seen")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    rows = []
    for group, _ in recorded:
        every = [numbers.rounds_until_seen(subject.run) for subject in group.members]
        known = [reached for reached in every if reached is not None]
        if len(known) == len(every):  # else a mean would leave out the runs that never got there
            colour, x = run_colour(group.first), fmean(known)
            axes.axvline(x, color=colour, linewidth=1, linestyle=":")
            axes.plot(x, SEEN_OFTEN, "D", color=colour, markeredgecolor=INK, markersize=6, zorder=4)
        for subject, reached in zip(group.members, every, strict=True):
            seen, kl = numbers.seen_of(subject.run)[0], numbers.kl_of_seen(subject.run)
            last = (f"{min(seen[-1]):,}", f"{max(seen[-1]):,}") if seen else ("–", "–")
            often = "never" if reached is None else f"{reached:,}"
            at = [chosen_evenly(kl, 3)[k] if len(kl) > 2 else None for k in range(3)]
            divergence = ("∞" if x is not None and not isfinite(x) else said(x) for x in at)
            rounds = f"{len(subject.run.of(RoundRow)):,}"
            rows.append((subject.label, rounds, *last, *divergence, often))
    summary = "; ".join(f"{row[0]}: {row[-1]}" if len(rows) > 1 else row[-1] for row in rows)
    header = ("run", "rounds", "least seen class", "most seen class", "KL [nats] after round 1",
              "in the middle", "at the end", _EVERY_CLASS)  # fmt: skip
    seen_in_words = f"{_EVERY_CLASS}: {summary}. {said_bands([group for group, _ in recorded])}"
    return together(figure, seen_in_words, header, rows=rows)


def swap_counts(swaps: Sequence[Swap]) -> Counter[tuple[int, int]]:
    """How often the discriminator of one worker went to another: (giver, taker) → times."""
    return Counter(
        (giver, taker)
        for swap in swaps
        for giver, taker in swap.moves.items()
        if taker in swap.arrived
    )


def exactness(swaps: Sequence[Swap]) -> str:
    """Whether every discriminator arrived bit for bit, in words."""
    if wrong := [f"{swap.iteration:,}" for swap in swaps if swap.exact is False]:
        return (
            f"{len(wrong)} of {count(len(swaps), 'swap')} did not arrive bit for bit, after "
            f"iteration {said_list(wrong)}"
        )
    every, short = count(len(swaps), "swap"), ""
    if cut := [f"{swap.iteration:,}" for swap in swaps if not swap.complete]:
        short = (
            f"; {count(len(cut), 'swap')} cut short, after iteration {said_list(cut)}, since a "
            "worker died or was out of reach: its partner keeps its own"
        )
    if any(swap.exact is None for swap in swaps):
        return f"{every}, not all of them verified{short}"
    if cut:
        return f"all discriminators that arrived in {every} did so bit for bit{short}"
    return f"all discriminators of {every} arrived bit for bit"


def who_gave_to_whom(subject: Subject) -> OfRun | None:
    """How often each worker's discriminator went to each other worker; None without swaps."""
    swaps = subject.run.of(Swap)
    swapped = {worker for swap in swaps for move in swap.moves.items() for worker in move}
    if not swapped:
        return None
    every, counts = sorted(swapped | set(subject.workers)), swap_counts(swaps)
    workers = every[:_MOST_SWAPPING]
    rows = [
        (f"worker {giver}", f"worker {taker}", f"{times:,}")
        for (giver, taker), times in sorted(counts.items())
    ]
    more = f"; only {_MOST_SWAPPING} workers are drawn" if len(every) > _MOST_SWAPPING else ""
    matrix = [[counts[giver, taker] for taker in workers] for giver in workers]
    figure, axes = charts.new_axes(min(4.3, 0.75 + 0.4 * len(workers)))
    charts.heat_map(axes, matrix, written=len(workers) <= charts.MOST_TICKS)
    charts.some_names(axes.set_xticks, workers)
    charts.some_names(axes.set_yticks, workers)
    ends = [-0.5, len(workers) - 0.5]
    axes.plot(ends, ends, color=charts.IDLE, linewidth=1)
    axes.set(xlabel="to worker", ylabel="from worker", aspect="equal", anchor="W")
    header = ("discriminator of", "went to", "times")
    return OfRun(rows, exactness(swaps) + more, figure, header=header)
