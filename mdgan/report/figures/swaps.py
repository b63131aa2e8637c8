"""Where discriminators go."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from matplotlib.figure import Figure

from mdgan.records.values import count
from mdgan.report.figures.charts import MOST_TICKS, heat_map, iteration_axis, new_axes, some_names
from mdgan.report.figures.picture import Picture, Row, one_each
from mdgan.report.figures.style import COLOURS, IDLE, INK, MARKERS
from mdgan.report.numbers import swaps as numbers
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.swaps import Origin, Swap
from mdgan.report.palette import OTHER

_MOST_PATHS = 40
_MOST_SWAPS_DRAWN = 20
_MOST_COLOURED = 4
_MOST_WORKERS = 100
_MOST_ROWS = 400

Paths: TypeAlias = Mapping[Origin, Sequence[int | None]]
"""Where a discriminator began → where it was; None before it came and once it is gone."""


class Swaps(NamedTuple):
    """The swaps of a run.

    Attributes:
        swaps: in order.
        workers: all that took part or swapped, in increasing order.
    """

    swaps: list[Swap]
    workers: list[int]


def of_run(subject: Subject) -> Swaps | None:
    """The swaps of a run; None if no discriminator was to move."""
    swaps = numbers.swaps_of(subject.run)
    swapped = {worker for swap in swaps for move in swap.moves.items() for worker in move}
    return Swaps(swaps, sorted(swapped | set(subject.workers))) if swapped else None


def who_gave_to_whom(found: Sequence[tuple[Subject, Swaps]]) -> Picture | str:
    """How often each worker's discriminator went to each other worker."""
    drawn = [(s, swaps) for s, swaps in found if len(swaps.workers) <= _MOST_WORKERS]
    if not drawn:
        return f"more than {_MOST_WORKERS} workers are too many to draw"
    rows = [
        (subject.label, f"worker {giver}", f"worker {taker}", f"{times:,}")
        for subject, (swaps, _) in drawn
        for (giver, taker), times in sorted(numbers.swap_counts(swaps).items())
    ]
    header = ("run", "discriminator of", "went to", "times")
    return one_each(
        drawn,
        _draw_matrix,
        lambda _, found: numbers.exactness(found.swaps),
        header,
        rows[:_MOST_ROWS],
    )


def _draw_matrix(_subject: Subject, found: Swaps) -> Figure:
    workers, counts = found.workers, numbers.swap_counts(found.swaps)
    matrix = [[counts[giver, taker] for taker in workers] for giver in workers]
    figure, axes = new_axes(min(4.3, 0.75 + 0.4 * len(workers)))
    heat_map(axes, matrix, written=len(workers) <= MOST_TICKS)
    some_names(axes.set_xticks, workers)
    some_names(axes.set_yticks, workers)
    ends = [-0.5, len(workers) - 0.5]
    axes.plot(ends, ends, color=IDLE, linewidth=1)
    axes.set(xlabel="to worker", ylabel="discriminator of worker", aspect="equal", anchor="W")
    return figure


def where_discriminators_were(found: Sequence[tuple[Subject, Swaps]]) -> Picture | str:
    """At which worker each discriminator was after every swap."""
    told_apart = [(s, swaps) for s, swaps in found if len(swaps.workers) <= _MOST_PATHS]
    if not told_apart:
        return f"the paths of more than {_MOST_PATHS} discriminators cannot be told apart"
    drawn = [(subject, _paths(subject, swaps)) for subject, (swaps, _) in told_apart]
    rows = [
        _path_row(subject, origin, path)
        for subject, paths in drawn
        for origin, path in sorted(paths.items())
    ]
    header = ("run", "discriminator that began at", "moved", "workers visited", "is now at")
    picture = one_each(drawn, _draw_paths, lambda *_: "", header, rows)
    longest = max(len(swaps) for _, (swaps, _) in told_apart)
    seen = f"The first {_MOST_SWAPS_DRAWN} swaps are drawn." if longest > _MOST_SWAPS_DRAWN else ""
    return replace(picture, seen=seen)


def _paths(subject: Subject, swaps: list[Swap]) -> Paths:
    stays = {worker.worker: worker.stays for worker in subject.attendance}
    paths = numbers.discriminator_paths(stays, swaps)
    return {origin: path for origin, path in paths.items() if any(path)}


def _draw_paths(_subject: Subject, paths: Paths) -> Figure:
    begun = [path[: _MOST_SWAPS_DRAWN + 1] for path in paths.values()]
    begun = [path for path in begun if any(path)]
    workers = sorted({worker for path in begun for worker in path if worker is not None})
    lanes = {worker: lane for lane, worker in enumerate(workers)}
    figure, axes = new_axes(min(4.6, 1.0 + 0.24 * len(workers)))
    every = -(-len(begun) // _MOST_COLOURED)
    for number, path in enumerate(begun):
        y = [float("nan") if worker is None else lanes[worker] for worker in path]
        place, between = divmod(number, every)
        style: dict[str, Any] = (
            {"color": OTHER.light, "linewidth": 0.6, "alpha": 0.5}
            if between
            else {"color": COLOURS[place], "marker": MARKERS[place], "linewidth": 1.4}
        )
        axes.plot(range(len(y)), y, markersize=3.4, **style)
        last = max(place for place, worker in enumerate(path) if worker is not None)
        if last + 1 < len(path):
            axes.plot(last, y[last], "x", color=INK, markersize=7, zorder=3)
    some_names(axes.set_yticks, workers)
    axes.set(ylabel="worker", ylim=(len(workers) - 0.5, -0.5))
    axes.margins(x=0.02)
    iteration_axis(axes, "swap")
    return figure


def _path_row(subject: Subject, origin: Origin, path: Sequence[int | None]) -> Row:
    places = [worker for worker in path if worker is not None]
    moves = sum(now != before for before, now in pairwise(places))
    now = "gone" if path[-1] is None else f"worker {path[-1]}"
    worker, iteration = origin
    began = f"worker {worker}" + (f", which joined in {iteration:,}" if iteration else "")
    return subject.label, began, count(moves, "time"), f"{len(set(places)):,}", now
