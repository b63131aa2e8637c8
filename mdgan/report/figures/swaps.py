"""Who gave a discriminator to whom."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from mdgan.records.rows import Swap
from mdgan.records.values import count, said_list
from mdgan.report.figures.charts import IDLE, MOST_TICKS, heat_map, new_axes, some_names
from mdgan.report.figures.picture import Row, each_run
from mdgan.report.numbers.subject import Subject

_MOST_WORKERS = 100


class Swaps(NamedTuple):
    """The swaps of a run, and all workers that took part or swapped, in increasing order."""

    swaps: Sequence[Swap]
    workers: Sequence[int]


def of_run(subject: Subject) -> Swaps | None:
    """The swaps of a run; None if no discriminator was to move."""
    swaps = subject.run.of(Swap)
    swapped = {worker for swap in swaps for move in swap.moves.items() for worker in move}
    return Swaps(swaps, sorted(swapped | set(subject.workers))) if swapped else None


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


def _rows_of_swaps(_subject: Subject, found: Swaps) -> Iterable[Row]:
    return [
        (f"worker {giver}", f"worker {taker}", f"{times:,}")
        for (giver, taker), times in sorted(swap_counts(found.swaps).items())
    ]


def _said_swaps(_subject: Subject, found: Swaps) -> str:
    left_out = len(found.workers) - _MOST_WORKERS
    more = f"; only {_MOST_WORKERS} workers are drawn" if left_out > 0 else ""
    return exactness(found.swaps) + more


def _draw_matrix(_subject: Subject, found: Swaps) -> Figure:
    workers, counts = found.workers[:_MOST_WORKERS], swap_counts(found.swaps)
    matrix = [[counts[giver, taker] for taker in workers] for giver in workers]
    figure, axes = new_axes(min(4.3, 0.75 + 0.4 * len(workers)))
    heat_map(axes, matrix, written=len(workers) <= MOST_TICKS)
    some_names(axes.set_xticks, workers)
    some_names(axes.set_yticks, workers)
    ends = [-0.5, len(workers) - 0.5]
    axes.plot(ends, ends, color=IDLE, linewidth=1)
    axes.set(xlabel="to worker", ylabel="discriminator of worker", aspect="equal", anchor="W")
    return figure


who_gave_to_whom = each_run(
    ("discriminator of", "went to", "times"),
    rows=_rows_of_swaps, told=_said_swaps, draw=_draw_matrix,
)  # fmt: skip
