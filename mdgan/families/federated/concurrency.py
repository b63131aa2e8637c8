"""How many slots a machine uses: one more every few rounds while that makes it faster.

Sani et al. 2024, "Pollen", section 3.2. The paper says when to stop as "until the execution speed
stops improving"; the 2 % and the round for warming up are ours.
"""

from math import floor, isfinite
from statistics import median

_ENOUGH = 1.02
"""So much more work a second makes one slot more worth it."""


class Climb:
    """The search for the number of slots of one machine.

    Attributes:
        num_slots: to use in the next round.
        settled: whether the search is over.
        history: numbers of slots tried, with the median rate of each (work a second).
    """

    def __init__(self, most: int, rounds_each: int, start: int = 1) -> None:
        """Begins the search.

        Args:
            most: slots that the machine can hold, ≥ 1: W_max.
            rounds_each: rounds that count for each number, ≥ 1: T_c. One more goes before them, in
                which the new slot warms up.
            start: slots to begin with, ≥ 1; at `most` or above there is nothing to search.
        """
        self._most = most
        self._rounds_each = rounds_each
        self._rates: list[float] = []
        self.num_slots = min(start, most)
        self.settled = start >= most
        self.history: list[tuple[int, float]] = []

    def note(self, work: float, seconds: float) -> None:
        """Takes a round into account that used `num_slots`.

        Args:
            work: what all clients of the machine did, such as iterations; a round without work does
                not count.
            seconds: that the round took.
        """
        valid = isfinite(work) and isfinite(seconds) and work > 0 and seconds > 0
        if self.settled or not valid:
            return
        self._rates.append(work / seconds)
        if len(self._rates) > self._rounds_each:
            self._compare(median(self._rates[1:]))

    def _compare(self, rate: float) -> None:
        faster = not self.history or rate > _ENOUGH * self.history[-1][1]
        self.history.append((self.num_slots, rate))
        self._rates = []
        if not faster:
            self.num_slots -= 1
        self.settled = not faster or self.num_slots == self._most
        if not self.settled:
            self.num_slots += 1


def most_slots(free_bytes: int, bytes_each: int, share: float = 0.9) -> int:
    """How many slots fit into memory: W_max, at least 1.

    Args:
        free_bytes: memory of the machine or device that nothing uses yet.
        bytes_each: what one slot takes, as measured with one client; ≥ 1.
        share: of the free memory that slots may use, in (0, 1].
    """
    return max(1, floor(free_bytes * share / bytes_each))
