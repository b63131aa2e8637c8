"""Who hosts are: which ranks are theirs, and what they have done, whatever rank they come with."""

import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, field
from itertools import filterfalse
from math import inf
from typing import Any, NamedTuple

from mdgan.engine.hello import Owner

_EVERY = -1  # stands for all ranks of a certificate
_OUT = 1 << 20  # the strikes of a host that was shut out
_AWAY_SECONDS = 60.0
"""How long a host at most stays away that did not answer; then twice as long each time."""
_FORGIVEN_AFTER = 20  # a host has made up for not answering once it took part 20 times as long
_MOST_REMEMBERED = 4096
"""Addresses that have strikes; beyond them the first is forgotten. Certificates never are."""
_NOBODY = Owner("", "")


class _GivenUp(NamedTuple):
    """A host did not answer so many times, and may not come in until then."""

    times: int = 0
    until: float = -inf


@dataclass
class Standing:
    """The rights, strikes and absences of hosts, each known by `Owner.who`.

    A rank is for the certificates that name it; else for the one that had it last, unless that was
    shut out or revoked. Strikes count by rank: of a host's workers only the broken one goes. To a
    rank that a host did not have it brings the strikes of its worst one: another rank is no way
    around them. What a host has said counts for all ranks of its certificate.
    """

    owners: Callable[[], dict[int, Owner]]  # gives the hosts that have ranks, or had them last
    revoked: Container[int] = ()  # the numbers of certificates that count no more
    # By rank, the certificates that have come and name it.
    named: dict[int, set[str]] = field(default_factory=dict)
    strikes: dict[str, dict[int, int]] = field(default_factory=dict)  # by `Owner.who` and rank
    _given_up: dict[str, _GivenUp] = field(default_factory=dict)

    def _owner(self, rank: int) -> Owner:
        return self.owners().get(rank, _NOBODY)

    # Whose a rank is.

    def why_anothers(self, rank: int, owner: Owner, named: Collection[int]) -> str:
        """Why a rank is another certificate's; empty if it is not. `named`: by the host's own."""
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
        """Whether the host that has a rank, there or lost, gives way to another one.

        It does if it was shut out, and to a certificate that names the rank, which its own does
        not. Hosts of this machine stay.
        """
        holder = self._owner(rank)
        is_named = rank in named and holder.certificate not in self.named.get(rank, ())
        return self.is_out(rank) or (is_named and bool(holder.who))

    def take(self, owner: Owner, workers: Iterable[int], live: Collection[int], most: int) -> None:
        """A host gets ranks.

        Args:
            most: ranks are kept for a certificate, beyond those that it names and the `live` ones:
                no owner has all ranks kept by coming with one after the other.
        """
        owners = self.owners()
        strikes = self.strikes.get(owner.who, {})
        most_strikes = max((n for rank, n in strikes.items() if rank != _EVERY), default=0)
        for worker in workers:
            if owner.who and most_strikes and self._owner(worker).who != owner.who:
                strikes[worker] = most_strikes
            owners[worker] = owner
        own = [n for n, other in owners.items() if other.who == owner.who]
        absent = [n for n in own if n not in live and n not in workers and n not in self.named]
        for rank in absent[: max(0, len(own) - most)] if owner.certificate else ():
            del owners[rank]

    # Strikes, each for the host that has a worker.

    def strikes_of(self, worker: int) -> int:
        """How many strikes the host with a worker has for it."""
        own = self.strikes.get(self._owner(worker).who, {})
        return (own.get(worker, 0) + own.get(_EVERY, 0)) % _OUT

    def strike(self, worker: int, rank: int | None = None, count: int = 1) -> None:
        """A strike for a worker's answer, or for another rank of its host."""
        who, place = self._owner(worker).who, worker if rank is None else rank
        _make_room(self.strikes, who)
        own = self.strikes.setdefault(who, {})
        own[place] = own.get(place, 0) + count

    def blame(self, workers: Collection[int], limit: int) -> None:
        """A strike for what one host has said; with so many, its certificate is out."""
        of_all = bool(workers) and bool(self._owner(min(workers)).certificate)
        for worker in [min(workers)] if of_all else workers:
            self.strike(worker, _EVERY if of_all else worker)
            if of_all and self.strikes_of(worker) >= limit:
                self.strike(worker, _EVERY, _OUT)

    def shut_out(self, worker: int) -> None:
        """The host with a rank may not have it any more, nor any that it did not have."""
        self.strike(worker, worker, _OUT)

    def is_out(self, worker: int) -> bool:
        """Whether the host that has a rank, or had it last, was shut out with it."""
        own = self.strikes.get(self._owner(worker).who, {})
        return max(own.get(worker, 0), own.get(_EVERY, 0)) >= _OUT

    def why_out(self, owner: Owner, rank: int = _EVERY) -> str:
        """Why a host may not have a rank, or any that it did not have; empty if it may."""
        had = self._owner(rank).who == owner.who
        own = dict(self.strikes.get(owner.who, {}))
        if rank != _EVERY and max(own.get(rank, 0), had * own.get(_EVERY, 0)) >= _OUT:
            return f"rank {rank} was shut out"
        if had or not owner.who or max(own.values(), default=0) < _OUT:
            return ""
        return f"{owner.who:.24} was shut out; it gets no rank that it did not have"

    # Who did not answer.

    def give_up(
        self, workers: Iterable[int], waited_seconds: float, took_part_seconds: float, was_cut: bool
    ) -> int:
        """The host of some workers has not answered for too long: it may come in only later.

        One whose connection was cut comes back at once the first time.

        Returns:
            How often in a row; it begins anew for a host that took part for long enough since.
        """
        now = time.monotonic()
        keys = {key for worker in workers for key in _away_as(self._owner(worker), [worker])}
        before = max((self._given_up.get(key, _GivenUp()) for key in keys), default=_GivenUp())
        if took_part_seconds > _FORGIVEN_AFTER * waited_seconds:
            before = _GivenUp()
        # Several hosts with one certificate may stand still for the same reason.
        times = max(1, before.times + (before.until <= now))
        away = min(_AWAY_SECONDS, waited_seconds) * (2.0 ** min(times - 1, 10) - was_cut)
        for key in keys:
            _make_room(self._given_up, key)
            self._given_up[key] = _GivenUp(times, now + away)
        return times

    def away_seconds(self, owner: Owner, workers: Iterable[int]) -> float:
        """How long a host stays away that did not answer; 0 or less if it may come in."""
        known = (self._given_up.get(key, _GivenUp()) for key in _away_as(owner, workers))
        return max(each.until for each in known) - time.monotonic()


def _away_as(owner: Owner, workers: Iterable[int]) -> set[str]:
    """What a host that did not answer is known by when it comes again."""
    return {owner.who if owner.certificate else f"{owner.who} {worker}" for worker in workers}


def _make_room(known: dict[str, Any], who: str) -> None:
    if who not in known and len(known) >= _MOST_REMEMBERED:
        known.pop(next(filterfalse(Owner.is_certificate, known), ""), None)
