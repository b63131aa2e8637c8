"""Finds the hosts that spoil masked sums, by asking for sums of other hosts in later questions.

A sum that makes no sense tells that one of its hosts has not masked as agreed, or has answered
absurdly, and not which. So the hosts of the next questions are divided into smaller sums, at
random, and the smaller the more of them are spoiled. Divisions in which no sum holds all hosts of
one that was spoiled are preferred. When sums are well again they grow, the slower the more were
spoiled.

A host is guilty if three spoiled sums had it, more than any other of the last one's hosts, and no
other host was in all of these. So one host that lies, in whichever sums it likes, can have no
other one found guilty: it is in all spoiled sums itself. Some that work together can, but each of
their sums counts against one of them, too.

No answer is in two sums: those of one question have no host in common, and each question is
answered anew.
"""

import random
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from statistics import median_low
from typing import TypeVar

ABSURD_SUM_FACTOR = 30.0
"""How many times the usual norm, by worker, a sum is refused. Of n workers one that lies has to
answer n · 30 times as much. Usual norms follow the training: on digits they grew tenfold in 400
iterations, and no sum had more than twice the norm of another one of its iteration."""

_Key = TypeVar("_Key")
_LEAST_SPOILED = 3
_REMEMBERED_SUMS = 64
_NUM_DRAWS = 16
_RECENT = 5


class SpoilerSearch:
    """Remembers which sums were spoiled, and divides hosts accordingly.

    Hosts are remembered by what they count as (`Peers.identity`).

    Args:
        divides: whether there may be several sums of one question; else some hosts are left out.
    """

    def __init__(self, *, divides: bool) -> None:
        self._divides = divides
        self._spoiled: deque[frozenset[str]] = deque(maxlen=_REMEMBERED_SUMS)
        self._size = 0
        self._num_calm = 0

    @property
    def is_on(self) -> bool:
        """Whether hosts are to be divided."""
        return self._size > 0

    def begin(self, least: int) -> None:
        """The next sums are of as few hosts as it takes."""
        self._num_calm, self._size = 0, least

    def pause(self) -> None:
        """The next sums are of all hosts."""
        self._size = 0

    def sums_of(self, owners: Mapping[int, str], least: int) -> list[list[int]]:
        """The hosts of each sum that is to be asked for, in increasing order.

        Args:
            owners: by host, what it counts as.
            least: how many hosts a sum takes.
        """
        number = min(ceil(len(owners) / self._size), len(owners) // least)

        def drawn() -> list[list[int]]:
            hosts = random.sample(sorted(owners), len(owners))  # in an order that none foresees
            if number > 1 and self._divides:
                return [sorted(hosts[first::number]) for first in range(number)]
            return [sorted(hosts[: max(least, self._size)])]

        def num_tried(sums: Sequence[Collection[int]]) -> int:
            tried = [{owners[host] for host in hosts} for hosts in sums]
            return sum(any(bad <= own for bad in self._spoiled) for own in tried)

        return min((drawn() for _ in range(_NUM_DRAWS)), key=num_tried)

    def guilty(self, owners: Collection[str]) -> str | None:
        """Notes a spoiled sum of hosts that count as `owners`; says which one must be to blame."""
        self._spoiled.append(frozenset(owners))
        counts = Counter(owner for spoiled in self._spoiled for owner in spoiled)
        (most, count), *others = sorted(((o, counts[o]) for o in owners), key=lambda own: -own[1])
        if count < _LEAST_SPOILED or any(other == count for _, other in others):
            return None
        its = [spoiled for spoiled in self._spoiled if most in spoiled]
        return most if frozenset.intersection(*its) == {most} else None

    def forget(self, owner: str) -> None:
        """A host takes part no more: it explains the sums that it was in."""
        kept = [spoiled for spoiled in self._spoiled if owner not in spoiled]
        self._spoiled = deque(kept, maxlen=_REMEMBERED_SUMS)

    def note(self, num_hosts: int, least: int, *, any_spoiled: bool) -> None:
        """All sums of a question that so many hosts could answer are in."""
        if any_spoiled:
            self._num_calm, self._size = 0, max(least, min(self._size or num_hosts, num_hosts) // 2)
            return
        self._num_calm += 1
        if self.is_on and self._num_calm >= len(self._spoiled):
            self._num_calm, self._size = 0, self._size + 1
        if self._size >= num_hosts:
            self._size = 0


class UsualSums:
    """Knows which sums are absurdly long, by their norms divided by the weight of their workers.

    What is usual is the median of some recent sums, or what it ever was, as gradients may vanish
    and come back; and at least the smallest norm of a question's sums.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual = 0.0

    def absurd(self, norms: Mapping[_Key, float]) -> set[_Key]:
        """Those of a question's sums that are."""
        usual = self._usual
        if norms and (len(norms) > 1 or not self._recent):
            usual = max(usual, min(norms.values()))
        absurd = {sum_ for sum_, norm in norms.items() if norm > ABSURD_SUM_FACTOR * usual > 0}
        self._recent.extend(norm for sum_, norm in norms.items() if sum_ not in absurd)
        if self._recent:
            self._usual = max(self._usual, median_low(self._recent))
        return absurd
