"""Which workers have trained a discriminator, as a run has recorded its swaps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mdgan.records.rows import Swap


@dataclass
class Visits:
    """With whom a discriminator has been.

    Attributes:
        iterations: worker → how long it was there, in iterations.
        last: the worker that trained it last; the one with which it began if none has.
    """

    last: int
    iterations: dict[int, int] = field(default_factory=dict)

    def stay(self, worker: int, iterations: int) -> None:
        """It was with a worker, for a number of iterations."""
        if iterations > 0:
            self.last = worker
            self.iterations[worker] = self.iterations.get(worker, 0) + iterations


def visits(swaps: Iterable[Swap], workers: Sequence[int], iteration: int) -> dict[int, Visits]:
    """The visits of the discriminators that workers hold after an iteration.

    Returns:
        By worker, of the discriminator that it holds.
    """
    now = {worker: Visits(worker) for worker in workers}
    since = 0
    for swap in sorted(swaps, key=lambda swap: swap.iteration):
        if swap.iteration > iteration:
            break
        for worker, held in now.items():
            held.stay(worker, swap.iteration - since)
        since = swap.iteration
        moved = {
            taker: Visits(now[giver].last, dict(now[giver].iterations))
            for giver, taker in swap.moves.items()
            if taker in swap.arrived and giver in now and taker in now
        }
        now.update(moved)
    for worker, held in now.items():
        held.stay(worker, iteration - since)
    return now
