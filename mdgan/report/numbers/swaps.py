"""Where discriminators went."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import count, mapping, said_list

Origin = tuple[int, int]
"""The worker where a discriminator began, and the iteration in which; 0 before training."""


class Swap(NamedTuple):
    """One swap.

    Attributes:
        iteration: after which it took place.
        moves: giver → taker, those that were ordered.
        arrived: the takers that got what they were to get; all others keep their own.
        exact: whether every bit of what arrived is as it left; None if it was not recorded.
    """

    iteration: int
    moves: Mapping[int, int]
    arrived: frozenset[int]
    exact: bool | None

    @property
    def complete(self) -> bool:
        """Whether nobody died or was out of reach meanwhile."""
        return self.arrived >= set(self.moves.values())


def swaps_of(run: RecordedRun) -> list[Swap]:
    """A run's swaps, in order."""
    return [swap for event in run.named("swap") if (swap := _swap(event)) is not None]


def _swap(event: Mapping[str, Any]) -> Swap | None:
    try:
        moves = {int(giver): int(taker) for giver, taker in event["moves"]}
        iteration = int(event["iteration"])
        if not isinstance(event.get("taken"), Mapping):
            exact = event.get("exact")
            exact = exact if isinstance(exact, bool) else None
            return Swap(iteration, moves, frozenset(moves.values()), exact)
        given, taken = mapping(event.get("given")), event["taken"]
        arrived = frozenset(int(taker) for taker in taken)
        pairs = [
            (given.get(str(giver)), taken[str(taker)])
            for giver, taker in moves.items()
            if taker in arrived
        ]
        torn = any(left != came for left, came in pairs if left is not None)
        unknown = any(left is None for left, _ in pairs)  # its giver died before it could tell
        return Swap(iteration, moves, arrived, False if torn else None if unknown else True)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


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
        stays: when each worker was there: after one iteration, up to another. A worker brings a
            discriminator, and takes the one that it has then with it.
        swaps: in order.

    Returns:
        Origin → worker, at the start and after every swap; None before it is there and once it is
        gone. What failed to arrive stays where it was, as its giver keeps it.
    """
    at: dict[int, Origin] = {}
    until: dict[int, int] = {}
    paths: dict[Origin, list[int | None]] = {}
    coming = sorted(
        (begin, worker, end) for worker, stretches in stays.items() for begin, end in stretches
    )
    arrived = 0
    for place, swap in enumerate([Swap(0, {}, frozenset(), None), *swaps]):
        while arrived < len(coming) and coming[arrived][0] <= swap.iteration:
            begin, worker, until[worker] = coming[arrived]
            at[worker] = (worker, begin)
            paths[worker, begin] = [None] * place
            arrived += 1
        before = dict(at)
        for giver, taker in swap.moves.items():
            if giver in before and taker in before and taker in swap.arrived:
                at.pop(taker)  # who has got it last comes last: what its giver keeps is idle
                at[taker] = before[giver]
        for worker in [worker for worker in at if until[worker] <= swap.iteration]:
            del at[worker]
        where = {origin: worker for worker, origin in at.items()}
        for origin, path in paths.items():
            path.append(where.get(origin))
    return paths
