"""Where discriminators go."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from mdgan.records.values import count
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.shapes import heat_map
from mdgan.report.figures.style import IDLE, INK, iteration_axis, new_figure
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.swaps import (
    Origin,
    Swap,
    discriminator_paths,
    exactness,
    swap_counts,
    swaps_of,
)
from mdgan.report.numbers.table import Table
from mdgan.report.palette import OTHER, RUNS

_MOST_PATHS = 40
_MOST_SWAPS_DRAWN = 20
_MOST_COLOURED = 4
_MOST_WORKERS = 100
_MOST_TICKS = 20
_MARKERS = "os^DvPX*"


def who_swapped_with_whom(subjects: Sequence[Subject]) -> Picture | str:
    """How often each worker's discriminator went to each other worker."""
    found = _with_swaps(subjects)
    if not found:
        return _why_not(subjects)
    panels, rows, told = [], [], []
    for subject, swaps in found:
        label, note = (subject.label, exactness(swaps)) if len(found) > 1 else ("", "")
        workers = _workers(subject, swaps)
        if len(workers) <= _MOST_WORKERS:
            panels.append(Panel(label, _draw_matrix(workers, swaps), note))
        told.append(exactness(swaps))
        rows += [
            (subject.label, f"worker {giver}", f"worker {taker}", f"{times:,}")
            for (giver, taker), times in sorted(swap_counts(swaps).items())
        ]
    if not panels:
        return f"more than {_MOST_WORKERS} workers are too many to draw"
    table = Table(("run", "discriminator of", "went to", "times"), rows[:400])
    return Picture(panels, only(told), table)


def where_discriminators_were(subjects: Sequence[Subject]) -> Picture | str:
    """At which worker each discriminator was after every swap."""
    swapped = _with_swaps(subjects)
    if not swapped:
        return _why_not(subjects)
    found = [(s, swaps) for s, swaps in swapped if len(_workers(s, swaps)) <= _MOST_PATHS]
    if not found:
        return f"the paths of more than {_MOST_PATHS} discriminators cannot be told apart"
    panels, rows = [], []
    for subject, swaps in found:
        stays = {worker.worker: worker.stays for worker in subject.attendance}
        paths = discriminator_paths(stays, swaps)
        paths = {origin: path for origin, path in paths.items() if any(path)}
        drawn = {origin: path[: _MOST_SWAPS_DRAWN + 1] for origin, path in paths.items()}
        figure = _draw_paths({o: path for o, path in drawn.items() if any(path)})
        panels.append(Panel(subject.label if len(found) > 1 else "", figure))
        rows += [_path_row(subject, origin, path) for origin, path in sorted(paths.items())]
    longest = max(len(swaps) for _, swaps in found)
    seen = f"The first {_MOST_SWAPS_DRAWN} swaps are drawn." if longest > _MOST_SWAPS_DRAWN else ""
    header = ("run", "discriminator that began at", "moved", "workers visited", "is now at")
    return Picture(panels, seen, Table(header, rows))


def _with_swaps(subjects: Sequence[Subject]) -> list[tuple[Subject, list[Swap]]]:
    every = [(subject, swaps_of(subject.run)) for subject in subjects]
    return [(s, swaps) for s, swaps in every if any(swap.moves for swap in swaps)]


def _workers(subject: Subject, swaps: list[Swap]) -> list[int]:
    """Everybody who was there or swapped, in increasing order."""
    swapped = {worker for swap in swaps for move in swap.moves.items() for worker in move}
    return sorted(swapped | set(subject.workers))


def _why_not(subjects: Sequence[Subject]) -> str:
    if all(max(subject.num_workers, len(subject.workers)) < 2 for subject in subjects):
        return "there are no two workers to swap"
    return "no swap has taken place"


def _draw_matrix(workers: Sequence[int], swaps: list[Swap]) -> Figure:
    counts = swap_counts(swaps)
    matrix = [[counts[giver, taker] for taker in workers] for giver in workers]
    num_workers = len(workers)
    figure = new_figure(min(4.3, 0.75 + 0.4 * num_workers))
    axes = figure.add_subplot()
    heat_map(axes, matrix, written=num_workers <= _MOST_TICKS)
    step = -(-num_workers // _MOST_TICKS)
    ticks, names = range(0, num_workers, step), [str(n) for n in workers[::step]]
    axes.set_xticks(ticks, names)
    axes.set_yticks(ticks, names)
    axes.plot([-0.5, num_workers - 0.5], [-0.5, num_workers - 0.5], color=IDLE, linewidth=1)
    axes.set(xlabel="to worker", ylabel="discriminator of worker", aspect="equal", anchor="W")
    return figure


def _draw_paths(paths: Mapping[Origin, Sequence[int | None]]) -> Figure:
    colours = [colour.light for colour in RUNS.values()]
    workers = sorted({worker for path in paths.values() for worker in path if worker is not None})
    lanes = {worker: lane for lane, worker in enumerate(workers)}
    figure = new_figure(min(4.6, 1.0 + 0.24 * len(workers)))
    axes = figure.add_subplot()
    every = -(-len(paths) // _MOST_COLOURED)
    for number, path in enumerate(paths.values()):
        y = [float("nan") if worker is None else lanes[worker] for worker in path]
        told_apart = number % every == 0
        place = number // every
        colour = colours[place % len(colours)] if told_apart else OTHER.light
        marker = _MARKERS[place % len(_MARKERS)] if told_apart else "none"
        axes.plot(
            range(len(y)),
            y,
            color=colour,
            marker=marker,
            markersize=3.4,
            linewidth=1.4 if told_apart else 0.6,
            alpha=1 if told_apart else 0.5,
        )
        last = max(place for place, worker in enumerate(path) if worker is not None)
        if last + 1 < len(path):
            axes.plot(last, y[last], "x", color=INK, markersize=7, zorder=3)
    step = -(-len(workers) // _MOST_TICKS)
    axes.set_yticks(range(0, len(workers), step), [str(worker) for worker in workers[::step]])
    axes.set(ylabel="worker", ylim=(len(workers) - 0.5, -0.5))
    axes.margins(x=0.02)
    iteration_axis(axes, "swap")
    return figure


def _path_row(subject: Subject, origin: Origin, path: Sequence[int | None]) -> tuple[str, ...]:
    places = [worker for worker in path if worker is not None]
    moves = sum(now != before for before, now in pairwise(places))
    now = "gone" if path[-1] is None else f"worker {path[-1]}"
    worker, iteration = origin
    began = f"worker {worker}" + (f", which joined in {iteration:,}" if iteration else "")
    return subject.label, began, count(moves, "time"), f"{len(set(places)):,}", now
