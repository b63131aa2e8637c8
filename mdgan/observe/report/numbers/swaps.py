"""Where discriminators went."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from mdgan.observe.recorded_run import RecordedRun
from mdgan.observe.report.numbers.values import count, mapping, said_list


class Swap(NamedTuple):
    """One swap.

    Attributes:
        iteration: after which it took place.
        moves: giver → taker, those that were ordered.
        arrived: the takers that got what they were to get.
        exact: whether every bit of every discriminator arrived; None if it was not recorded.
    """

    iteration: int
    moves: Mapping[int, int]
    arrived: frozenset[int]
    exact: bool | None


def swaps_of(run: RecordedRun) -> list[Swap]:
    """A run's swaps, in order."""
    return [swap for event in run.named("swap") if (swap := _swap(event)) is not None]


def _swap(event: Mapping[str, Any]) -> Swap | None:
    try:
        moves = {int(giver): int(taker) for giver, taker in event["moves"]}
        taken = event.get("taken")
        arrived = frozenset(map(int, taken)) if isinstance(taken, Mapping) else moves.values()
        exact = event.get("exact")
        exact = exact if isinstance(exact, bool) else None
        return Swap(int(event["iteration"]), moves, frozenset(arrived), exact)
    except (KeyError, TypeError, ValueError):
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
    if any(swap.exact is None for swap in swaps):
        return f"{count(len(swaps), 'swap')}, not all of them verified"
    return f"all discriminators of {count(len(swaps), 'swap')} arrived bit for bit"


def discriminator_paths(
    num_workers: int, swaps: list[Swap], lost: Mapping[int, int]
) -> dict[int, list[int | None]]:
    """Where each discriminator was at the start and after every swap.

    Args:
        num_workers: N; discriminator d begins at worker d.
        swaps: in order.
        lost: worker → the iteration in which it was lost, and its discriminator with it.

    Returns:
        Discriminator → worker, at the start and after every swap; None once it is gone. What
        failed to arrive stays where it was, as its giver keeps it.
    """
    at = {worker: worker for worker in range(1, num_workers + 1)}
    paths: dict[int, list[int | None]] = {d: [d] for d in at}
    for swap in swaps:
        before = dict(at)
        for giver, taker in swap.moves.items():
            if giver in before and taker in swap.arrived:
                at[taker] = before[giver]
        for worker, iteration in lost.items():
            if iteration <= swap.iteration:
                at.pop(worker, None)
        place = {d: worker for worker, d in at.items()}
        for d, path in paths.items():
            path.append(place.get(d))
    return paths


def losses_of_workers(run: RecordedRun) -> dict[int, tuple[int, str]]:
    """Worker → (iteration, reason) of the workers that were lost."""
    lost: dict[int, tuple[int, str]] = {}
    for event in run.named("lost"):
        workers = event.get("workers")
        for worker in workers if isinstance(workers, list) else []:
            if isinstance(worker, int) and isinstance(event.get("iteration"), int):
                lost.setdefault(worker, (event["iteration"], str(event.get("reason", ""))))
    return lost


def holdings(run: RecordedRun) -> dict[int, list[int]]:
    """Worker → how many samples of each class it holds."""
    events = run.named("holdings")
    found = {}
    for name, holding in mapping(events[-1].get("workers")).items() if events else ():
        counts = mapping(holding).get("classes")
        if name.isdecimal() and isinstance(counts, list):
            found[int(name)] = [count if isinstance(count, int) else 0 for count in counts]
    return dict(sorted(found.items()))
