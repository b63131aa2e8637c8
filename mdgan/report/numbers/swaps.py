"""Where swaps took discriminators."""

from collections import Counter
from collections.abc import Mapping, Sequence

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Swap as Swap
from mdgan.records.values import count, said_list

Origin = tuple[int, int]
"""(worker, iteration): where and when a discriminator began; iteration 0 is before training."""


def swaps_of(run: RecordedRun) -> list[Swap]:
    """A run's swaps, in order."""
    return run.of(Swap)


def swap_counts(swaps: list[Swap]) -> Counter[tuple[int, int]]:
    """How often the discriminator of one worker went to another: (giver, taker) → times."""
    return Counter(
        (giver, taker)
        for swap in swaps
        for giver, taker in swap.moves.items()
        if taker in swap.arrived
    )


def inexact(swaps: list[Swap]) -> list[int]:
    """The iterations of the swaps in which some discriminator did not arrive as it left."""
    return [swap.iteration for swap in swaps if swap.exact is False]


def exactness(swaps: list[Swap]) -> str:
    """Whether every discriminator arrived bit for bit, in words."""
    wrong = inexact(swaps)
    if wrong:
        return (
            f"{len(wrong)} of {count(len(swaps), 'swap')} did not arrive bit for bit, after "
            f"iteration {said_list([f'{i:,}' for i in wrong])}"
        )
    cut = [f"{swap.iteration:,}" for swap in swaps if not swap.complete]
    short = ""
    if cut:
        short = (
            f"; {count(len(cut), 'swap')} cut short, after iteration {said_list(cut)}, since a "
            "worker died or was out of reach: its partner keeps its own"
        )
    if any(swap.exact is None for swap in swaps):
        return f"{count(len(swaps), 'swap')}, not all of them verified{short}"
    if cut:
        every = f"all discriminators that arrived in {count(len(swaps), 'swap')} did so bit for bit"
        return every + short
    return f"all discriminators of {count(len(swaps), 'swap')} arrived bit for bit"


def discriminator_paths(
    stays: Mapping[int, Sequence[tuple[int, int]]], swaps: list[Swap]
) -> dict[Origin, list[int | None]]:
    """Where each discriminator was at the start and after every swap.

    Args:
        stays: worker → (begin, end), when it took part. It brings a discriminator when it comes,
            and takes the one that it has with it when it goes.
        swaps: in order.

    Returns:
        Origin → the worker that has it, at the start and after every swap; None before it came and
        after it went. A discriminator that failed to arrive stays where it was.
    """
    at: dict[int, Origin] = {}
    until: dict[int, int] = {}
    paths: dict[Origin, list[int | None]] = {}
    coming = sorted(
        (begin, worker, end) for worker, stretches in stays.items() for begin, end in stretches
    )
    arrived = 0
    for place, swap in enumerate([Swap(iteration=0, pairs=()), *swaps]):
        while arrived < len(coming) and coming[arrived][0] <= swap.iteration:
            begin, worker, until[worker] = coming[arrived]
            at[worker] = (worker, begin)
            paths[worker, begin] = [None] * place
            arrived += 1
        before = dict(at)
        for giver, taker in swap.moves.items():
            if giver in before and taker in before and taker in swap.arrived:
                at.pop(taker)  # its giver keeps a copy; the newest owner stands last
                at[taker] = before[giver]
        for worker in [worker for worker in at if until[worker] <= swap.iteration]:
            del at[worker]
        where = {origin: worker for worker, origin in at.items()}
        for origin, path in paths.items():
            path.append(where.get(origin))
    return paths
