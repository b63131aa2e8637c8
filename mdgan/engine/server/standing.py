"""The reputation of hosts: their ranks, their strikes, and how long they must stay away."""

import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, field
from itertools import filterfalse
from math import inf
from typing import Any, NamedTuple

from mdgan.engine.hello import Owner

_EVERY = -1  # in place of a rank: strikes that count for all ranks of a certificate
_OUT = 1 << 20  # the number of strikes of a host that was shut out
_AWAY_SECONDS = 60.0
"""A host that did not answer stays away at most this long, then twice as long each further time."""
_FORGIVEN_AFTER = 20  # an absence is forgiven once the host took part 20 times as long as it
_MOST_REMEMBERED = 4096
"""Most addresses whose strikes are kept; beyond them the oldest is dropped, certificates never."""
_NOBODY = Owner("", "")


class _GivenUp(NamedTuple):
    """The absences of a host that did not answer."""

    times: int = 0  # how many there were in a row
    until: float = -inf  # when the host may come back, by the monotonic clock


@dataclass
class Standing:
    """The rights, strikes and absences of hosts, under the name `Owner.who`.

    A rank belongs to the certificates that name it. If none does, it belongs to the certificate
    that had it last, unless that was shut out or revoked. Unusable answers are strikes of one rank:
    of a host's workers only the broken one is shut out. A host that takes a new rank brings the
    strikes of its worst rank along. Malformed messages are strikes of all ranks of a certificate.
    """

    owners: Callable[[], dict[int, Owner]]  # gives by rank the host that has it, or had it last
    revoked: Container[int] = ()  # serial numbers of certificates that are no longer valid
    # By rank, the certificates that name it, of hosts that have come.
    named: dict[int, set[str]] = field(default_factory=dict)
    strikes: dict[str, dict[int, int]] = field(default_factory=dict)  # by `Owner.who` and rank
    _given_up: dict[str, _GivenUp] = field(default_factory=dict)

    def _owner(self, rank: int) -> Owner:
        return self.owners().get(rank, _NOBODY)

    # To whom a rank belongs.

    def why_anothers(self, rank: int, owner: Owner, named: Collection[int]) -> str:
        """Why a rank is another certificate's; "" if not. `named`: ranks in the host's own one."""
        holder = self._owner(rank)
        if rank in named:
            return ""
        if rank in self.named:
            return f"another certificate names rank {rank}; take a free rank with mdgan join"
        is_free = not holder.certificate or holder.is_same(owner) or self.is_out(rank)
        if is_free or int(holder.serial or "0", 16) in self.revoked:
            return ""
        return (
            f"rank {rank} is kept for another certificate, which had it; take a free rank with "
            "mdgan join, or show a certificate that names it"
        )

    def yields(self, rank: int, named: Collection[int]) -> bool:
        """Whether the host that has a rank, or was lost with it, must give it up.

        It must if it was shut out, or if the newcomer's certificate names the rank (`named`) and
        its own does not. Hosts on the server's machine need not.
        """
        holder = self._owner(rank)
        is_named = rank in named and holder.certificate not in self.named.get(rank, ())
        return self.is_out(rank) or (is_named and bool(holder.who))

    def take(self, owner: Owner, workers: Iterable[int], live: Collection[int], most: int) -> None:
        """Gives ranks to a host.

        Args:
            most: how many ranks without a live host are kept for one certificate, not counting
                those that it names. So no certificate can occupy all ranks one after the other.
        """
        owners = self.owners()
        strikes = self.strikes.get(owner.who, {})
        most_strikes = max((n for rank, n in strikes.items() if rank != _EVERY), default=0)
        for worker in workers:
            if owner.who and most_strikes and self._owner(worker).who != owner.who:
                strikes[worker] = most_strikes
            owners[worker] = owner
        ranks_of_owner = [n for n, other in owners.items() if other.who == owner.who]
        absent = [
            n for n in ranks_of_owner if n not in live and n not in workers and n not in self.named
        ]
        for rank in absent[: max(0, len(ranks_of_owner) - most)] if owner.certificate else ():
            del owners[rank]

    # Strikes, counted for the host that has a worker.

    def strikes_of(self, worker: int) -> int:
        """How many strikes the host of a worker has for this worker."""
        counts = self.strikes.get(self._owner(worker).who, {})
        return (counts.get(worker, 0) + counts.get(_EVERY, 0)) % _OUT

    def strike(self, worker: int, rank: int | None = None, count: int = 1) -> None:
        """Adds strikes to the host of a worker: for this worker's rank, or for another `rank`."""
        who, place = self._owner(worker).who, worker if rank is None else rank
        _make_room(self.strikes, who)
        counts = self.strikes.setdefault(who, {})
        counts[place] = counts.get(place, 0) + count

    def blame(self, workers: Collection[int], limit: int) -> None:
        """Adds a strike for a message of one host; at the limit, shuts its certificate out."""
        of_all = bool(workers) and bool(self._owner(min(workers)).certificate)
        for worker in [min(workers)] if of_all else workers:
            self.strike(worker, _EVERY if of_all else worker)
            if of_all and self.strikes_of(worker) >= limit:
                self.strike(worker, _EVERY, _OUT)

    def shut_out(self, worker: int) -> None:
        """Forbids the host of a worker this rank, and all ranks that the host did not have."""
        self.strike(worker, worker, _OUT)

    def is_out(self, worker: int) -> bool:
        """Whether the host that has a rank, or had it last, was shut out from this rank."""
        counts = self.strikes.get(self._owner(worker).who, {})
        return max(counts.get(worker, 0), counts.get(_EVERY, 0)) >= _OUT

    def why_out(self, owner: Owner, rank: int = _EVERY) -> str:
        """Why a host may not have a rank (by default, any new rank); empty if it may."""
        has_rank = self._owner(rank).who == owner.who
        counts = dict(self.strikes.get(owner.who, {}))
        if rank != _EVERY and max(counts.get(rank, 0), has_rank * counts.get(_EVERY, 0)) >= _OUT:
            return f"rank {rank} was shut out"
        if has_rank or not owner.who or max(counts.values(), default=0) < _OUT:
            return ""
        return f"{owner.who:.24} was shut out; it gets no rank that it did not have"

    # Hosts that did not answer.

    def give_up(
        self, workers: Iterable[int], waited_seconds: float, took_part_seconds: float, was_cut: bool
    ) -> int:
        """Keeps a host out for a while because it has not answered for too long.

        The first time, a host whose connection was cut (`was_cut`) may come back at once.

        Returns:
            How often in a row; the count begins anew once the host took part for long enough.
        """
        now = time.monotonic()
        keys = {key for worker in workers for key in _absence_keys(self._owner(worker), [worker])}
        last = max((self._given_up.get(key, _GivenUp()) for key in keys), default=_GivenUp())
        if took_part_seconds > _FORGIVEN_AFTER * waited_seconds:
            last = _GivenUp()
        # While one host of a certificate is kept out, others that stop too count as the same time.
        times = max(1, last.times + (last.until <= now))
        away = min(_AWAY_SECONDS, waited_seconds) * (2.0 ** min(times - 1, 10) - was_cut)
        for key in keys:
            _make_room(self._given_up, key)
            self._given_up[key] = _GivenUp(times, now + away)
        return times

    def away_seconds(self, owner: Owner, workers: Iterable[int]) -> float:
        """How many seconds a host must still stay away; 0 or less if it may come in."""
        absences = (self._given_up.get(key, _GivenUp()) for key in _absence_keys(owner, workers))
        return max(absence.until for absence in absences) - time.monotonic()


def _absence_keys(owner: Owner, workers: Iterable[int]) -> set[str]:
    """The keys of a host's absences: its certificate, or its address with each of its ranks."""
    return {owner.who if owner.certificate else f"{owner.who} {worker}" for worker in workers}


def _make_room(counts_by_owner: dict[str, Any], who: str) -> None:
    if who not in counts_by_owner and len(counts_by_owner) >= _MOST_REMEMBERED:
        counts_by_owner.pop(next(filterfalse(Owner.is_certificate, counts_by_owner), ""), None)
