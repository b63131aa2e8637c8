"""Finds the hosts that spoil masked sums, by asking for sums of other hosts in later questions.

A spoiled sum shows that one of its hosts has masked wrongly or answered absurdly, but not which
one. So the server divides the hosts of the next questions at random into smaller sums: the more
sums are spoiled, the smaller. It prefers divisions in which no sum contains all hosts of an earlier
spoiled sum. Once sums make sense again they grow, more slowly if many were spoiled.

A host is guilty if at least three spoiled sums contain it, if each other host of the last spoiled
sum is in fewer, and if no other host is in all sums that contain it. So a single liar cannot
incriminate another host: the liar is in every spoiled sum itself. Several liars that work together
can, but each of their spoiled sums also counts against one of them.

No answer is in two sums: the sums of a question share no host, and each question is answered anew.
"""

import random
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from statistics import median_low
from typing import TypeVar

ABSURD_SUM_FACTOR = 30.0
"""A sum is refused if its norm by worker is more than this many times the usual one. A liar among n
workers must answer n · 30 times the usual norm to be refused. Usual norms follow training: on
digits they grew tenfold in 400 iterations, and in one iteration no sum had more than twice the norm
of another."""

_Key = TypeVar("_Key")
_LEAST_SPOILED = 3
_REMEMBERED_SUMS = 64
_NUM_DRAWS = 16
_RECENT = 5


class SpoilerSearch:
    """Remembers which sums were spoiled, and divides hosts accordingly.

    It remembers a host by its identity (`Peers.identity`), here called its owner.

    Args:
        divides: whether a question may have several sums; else it has one, of some hosts.
    """

    def __init__(self, *, divides: bool) -> None:
        self._divides = divides
        self._spoiled: deque[frozenset[str]] = deque(maxlen=_REMEMBERED_SUMS)
        self._size = 0
        self._num_calm = 0

    @property
    def is_on(self) -> bool:
        """Whether the next sums are smaller than all hosts together."""
        return self._size > 0

    def begin(self, least: int) -> None:
        """Makes the next sums as small as allowed: `least` hosts."""
        self._num_calm, self._size = 0, least

    def pause(self) -> None:
        """Makes the next sum one of all hosts."""
        self._size = 0

    def sums_of(self, owners: Mapping[int, str], least: int) -> list[list[int]]:
        """Divides hosts into the sums to ask for: the hosts of each sum, in increasing order.

        Args:
            owners: the owner of each host.
            least: the least number of hosts in a sum.
        """
        number = min(ceil(len(owners) / self._size), len(owners) // least)

        def drawn() -> list[list[int]]:
            hosts = random.sample(sorted(owners), len(owners))  # hosts cannot foresee the order
            if number > 1 and self._divides:
                return [sorted(hosts[first::number]) for first in range(number)]
            return [sorted(hosts[: max(least, self._size)])]

        def num_tried(sums: Sequence[Collection[int]]) -> int:
            owners_by_sum = [{owners[host] for host in hosts} for hosts in sums]
            return sum(any(bad <= members for bad in self._spoiled) for members in owners_by_sum)

        return min((drawn() for _ in range(_NUM_DRAWS)), key=num_tried)

    def guilty(self, owners: Collection[str]) -> str | None:
        """Remembers that the sum of these owners was spoiled; returns the guilty one, if any."""
        self._spoiled.append(frozenset(owners))
        counts = Counter(owner for spoiled in self._spoiled for owner in spoiled)
        (suspect, count), *others = sorted(((o, counts[o]) for o in owners), key=lambda oc: -oc[1])
        if count < _LEAST_SPOILED or any(other == count for _, other in others):
            return None
        with_suspect = [spoiled for spoiled in self._spoiled if suspect in spoiled]
        return suspect if frozenset.intersection(*with_suspect) == {suspect} else None

    def forget(self, owner: str) -> None:
        """Forgets the spoiled sums of a host that was sent away, since it explains them."""
        kept = [spoiled for spoiled in self._spoiled if owner not in spoiled]
        self._spoiled = deque(kept, maxlen=_REMEMBERED_SUMS)

    def note(self, num_hosts: int, least: int, *, any_spoiled: bool) -> None:
        """Adapts the size of sums once all sums of a question to `num_hosts` hosts have arrived."""
        if any_spoiled:
            self._num_calm, self._size = 0, max(least, min(self._size or num_hosts, num_hosts) // 2)
            return
        self._num_calm += 1
        if self.is_on and self._num_calm >= len(self._spoiled):
            self._num_calm, self._size = 0, self._size + 1
        if self._size >= num_hosts:
            self._size = 0


class UsualSums:
    """Finds sums with absurdly large norms, divided by the weight of their workers.

    The usual norm is the largest median that recent sums have ever had, since gradients may vanish
    and come back, but at least the smallest norm of the sums of the present question.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual = 0.0

    def absurd(self, norms: Mapping[_Key, float]) -> set[_Key]:
        """The sums of a question whose norms are absurd."""
        usual = self._usual
        if norms and (len(norms) > 1 or not self._recent):
            usual = max(usual, min(norms.values()))
        absurd = {sum_ for sum_, norm in norms.items() if norm > ABSURD_SUM_FACTOR * usual > 0}
        self._recent.extend(norm for sum_, norm in norms.items() if sum_ not in absurd)
        if self._recent:
            self._usual = max(self._usual, median_low(self._recent))
        return absurd
