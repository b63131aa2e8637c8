"""How often something may happen: messages of a link, calls of one caller."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf

from mdgan.transport.frames import Most

MOST_IN_A_ROW = 600
"""How many messages of a kind that is bound to a rate may come at once.

A host that tells something every second has sent so many while a network stood still, or while this
process did, for ten minutes.
"""
MOST_REMEMBERED = 4096
"""Callers of whom something is kept; then the one that was heard least lately is forgotten."""


class Bucket:
    """Lets something happen so many times in a row, and so often a second on average."""

    def __init__(
        self, in_a_row: float, a_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._a_second, self._clock = in_a_row, a_second, clock
        self._left, self._counted = in_a_row, clock()

    def take(self) -> bool:
        """Counts once; False if it has happened too often."""
        now = self._clock()
        gained = (now - self._counted) * self._a_second
        self._left, self._counted = min(self._most, self._left + gained), now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """It does not count after all."""
        self._left += 1


class Allowance:
    """Counts the messages that come over one link.

    Args:
        asked: how often the server has sent each kind of message to this host, and "" for all.
    """

    def __init__(
        self,
        accepts: Mapping[str, Most],
        asked: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accepts, self._asked = accepts, asked
        bound = {kind: most.a_second for kind, most in accepts.items() if most.a_second < inf}
        self._buckets = {kind: Bucket(MOST_IN_A_ROW, each, clock) for kind, each in bound.items()}
        self._heard: Counter[str] = Counter()

    def allows(self, kind: str) -> bool:
        """Counts a message; False if too many have come."""
        if kind in self._buckets and not self._buckets[kind].take():
            return False
        most = self._accepts[kind]
        self._heard[kind] += 1
        return self._heard[kind] <= most.unasked + most.each * self._asked[most.answers]
