"""A swap under way, and whether every bit of every discriminator arrived."""

from collections.abc import Mapping, Sequence
from typing import Any

from mdgan.algorithms.swap import Moves
from mdgan.messages import Message


class SwapRecord:
    """The digests that hosts report of one swap.

    Args:
        iteration: after which it took place.
        moves: giver → taker.
        workers: all live workers.
    """

    def __init__(self, iteration: int, moves: Moves, workers: Sequence[int]) -> None:
        self.iteration = iteration
        self._moves = moves
        self._sits_out = sorted(set(workers) - moves.keys())
        self._given: dict[int, str] = {}
        self._taken: dict[int, str] = {}

    def note(self, message: Message) -> Mapping[str, Any] | None:
        """Takes in a SWAPPED message.

        Returns:
            What is to be recorded, once everybody has reported.
        """
        if message.iteration != self.iteration:
            return None
        self._given.update({int(n): digest for n, digest in message.fields["given"].items()})
        self._taken.update({int(n): digest for n, digest in message.fields["taken"].items()})
        if self._given.keys() < self._moves.keys():
            return None
        arrived = (self._taken.get(to) == self._given[giver] for giver, to in self._moves.items())
        return {
            "moves": sorted(self._moves.items()),
            "sits_out": self._sits_out,
            "given": self._given,
            "taken": self._taken,
            "exact": all(arrived),
        }
