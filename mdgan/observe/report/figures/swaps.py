"""Where discriminators go."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from mdgan.observe.report.figures.picture import Panel, Picture, only
from mdgan.observe.report.figures.shapes import heat_map
from mdgan.observe.report.figures.style import IDLE, iteration_axis, new_figure
from mdgan.observe.report.numbers.subject import Subject
from mdgan.observe.report.numbers.swaps import (
    Swap,
    discriminator_paths,
    exactness,
    losses_of_workers,
    swap_counts,
    swaps_of,
)
from mdgan.observe.report.numbers.table import Table
from mdgan.observe.report.numbers.values import count
from mdgan.observe.report.palette import OTHER, RUNS

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
        if subject.num_workers <= _MOST_WORKERS:
            panels.append(Panel(label, _draw_matrix(subject.num_workers, swaps), note))
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
    found = [(s, swaps) for s, swaps in swapped if s.num_workers <= _MOST_PATHS]
    if not found:
        return f"the paths of more than {_MOST_PATHS} discriminators cannot be told apart"
    panels, rows = [], []
    for subject, swaps in found:
        lost = {n: iteration for n, (iteration, _) in losses_of_workers(subject.run).items()}
        paths = discriminator_paths(subject.num_workers, swaps, lost)
        figure = _draw_paths(paths, subject.num_workers)
        panels.append(Panel(subject.label if len(found) > 1 else "", figure))
        rows += [_path_row(subject, d, path) for d, path in paths.items()]
    longest = max(len(swaps) for _, swaps in found)
    seen = f"The first {_MOST_SWAPS_DRAWN} swaps are drawn." if longest > _MOST_SWAPS_DRAWN else ""
    header = ("run", "discriminator that began at", "moved", "workers visited", "is now at")
    return Picture(panels, seen, Table(header, rows))


def _with_swaps(subjects: Sequence[Subject]) -> list[tuple[Subject, list[Swap]]]:
    every = [(subject, swaps_of(subject.run)) for subject in subjects]
    return [(subject, swaps) for subject, swaps in every if swaps and subject.num_workers > 1]


def _why_not(subjects: Sequence[Subject]) -> str:
    if all(subject.num_workers < 2 for subject in subjects):
        return "there are no two workers to swap"
    return "no swap has taken place"


def _draw_matrix(num_workers: int, swaps: list[Swap]) -> Figure:
    counts = swap_counts(swaps)
    workers = range(1, num_workers + 1)
    matrix = [[counts[giver, taker] for taker in workers] for giver in workers]
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


def _draw_paths(paths: Mapping[int, list[int | None]], num_workers: int) -> Figure:
    colours = [colour.light for colour in RUNS.values()]
    figure = new_figure(min(4.6, 1.0 + 0.24 * num_workers))
    axes = figure.add_subplot()
    every = -(-num_workers // _MOST_COLOURED)
    for d, path in paths.items():
        drawn = path[: _MOST_SWAPS_DRAWN + 1]
        y = [float("nan") if worker is None else worker for worker in drawn]
        told_apart = (d - 1) % every == 0
        place = (d - 1) // every
        colour = colours[place % len(colours)] if told_apart else OTHER.light
        marker = _MARKERS[place % len(_MARKERS)] if told_apart else "none"
        axes.plot(
            range(len(drawn)),
            y,
            color=colour,
            marker=marker,
            markersize=3.4,
            linewidth=1.4 if told_apart else 0.6,
            alpha=1 if told_apart else 0.5,
        )
        if None in drawn:
            axes.plot(drawn.index(None) - 1, y[drawn.index(None) - 1], "x", color=colour)
    step = -(-num_workers // _MOST_TICKS)
    axes.set_yticks(range(1, num_workers + 1, step))
    axes.set(ylabel="worker", ylim=(num_workers + 0.5, 0.5))
    axes.margins(x=0.02)
    iteration_axis(axes, "swap")
    return figure


def _path_row(subject: Subject, d: int, path: Sequence[int | None]) -> tuple[str, ...]:
    moves = sum(now is not None and now != before for before, now in pairwise(path))
    visited = len({worker for worker in path if worker is not None})
    now = "gone" if path[-1] is None else f"worker {path[-1]}"
    return subject.label, f"worker {d}", count(moves, "time"), f"{visited:,}", now
