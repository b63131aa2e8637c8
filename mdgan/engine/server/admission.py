"""Which hosts may come in, and with which ranks: decided in the transport's threads."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

from mdgan.credentials.identity import Identity
from mdgan.engine.hello import MOST_CLASSES, MOST_RANKS, HostHello, Owner, read_hello
from mdgan.engine.host_keys import run_digest
from mdgan.engine.server.standing import Standing
from mdgan.errors import one_line
from mdgan.records.values import in_words
from mdgan.storage.manifest import Manifest
from mdgan.transport.base import DECLINE, Later

_PROMISE_SECONDS = 60.0  # until a worker that asked has read its data and joins
_MOST_PROMISES = 8
"""At a time, for an address. For a certificate it is one, or each rank that it names."""
_ALLOW_MORE = "rank 0 allows more with --set max_world_size=N"
_MALFORMED = "its hello is malformed; use the same version of mdgan everywhere"


class _Promise(NamedTuple):
    """A rank is promised to a caller, known by `Owner.who`."""

    caller: str
    until: float


_OVER = _Promise("", 0.0)


@dataclass
class Admission:
    """Lets hosts in. Only `admit` is called by the transport's threads, the rest by `Peers`.

    Attributes:
        owners, revoked: see `Standing`.
    """

    workers: InitVar[Iterable[int]]
    # What must be equal on every rank: version, dataset file, shared settings.
    identity: Mapping[str, Any]
    # What every newcomer is told besides: the server's generation, the run's name.
    welcome: Mapping[str, Any]
    return_seconds: float  # how long the rank of a lost worker is kept for the host that had it
    iteration: int = 0  # the one that the server works on, or the last that is done
    most_ranks: int = MOST_RANKS
    # What a newcomer needs to find its workers' files; None in a new run.
    checkpoint: Mapping[str, Any] | None = None
    # Which certificates sign the keys of hosts; None without certificates.
    trusts: Identity | None = None
    owners: dict[int, Owner] = field(default_factory=dict)
    on_their_way: Collection[int] = ()  # the ranks whose hosts come without asking for them
    most_classes: int = MOST_CLASSES  # of which a host may say how many samples it holds
    revoked: Container[int] = ()

    def __post_init__(self, workers: Iterable[int]) -> None:
        # Stands for the run and this server of it; see `run_digest`.
        self.run = run_digest(self.welcome, self.identity)
        self.expected = frozenset(workers)
        self.standing = Standing(lambda: self.owners, self.revoked)
        self.shut_out: set[int] = set()  # ranks that are not waited for, unless others bring them
        # Before training, by rank: why its host cannot join. The server does not wait for it.
        self.cannot_join: dict[int, str] = {}
        self.to_yield: set[int] = set()  # ranks that certificates wait for which name them
        self.has_begun = False
        self._waits_for: Callable[[int], bool] = lambda _rank: False
        self._has_successor = False
        self._linked: dict[int, list[int]] = {}  # host → its workers, while it has a link
        self._carried: dict[int, list[int]] = {}  # the same, and of hosts that were here before
        self._present: set[int] = set()  # the hosts that take part
        self._lost_at: dict[int, float] = {}
        self._promised: dict[int, _Promise] = {}  # by rank; the last is the newest
        self._samples: dict[int, int] = {}
        self._classes: dict[int, list[int]] = {}
        self._lock = threading.Lock()

    def admit(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """Decides whether a newcomer may come in: what it is told, or why not, for its user.

        Args:
            hello: `purpose` is `join` (see `make_hello`), `ask`, `decline` (with `workers`, and
                `why` they cannot come) or `watch`. The transport adds `certificate` and `address`
                (see `HostHello`), and `ranks`: those that the certificate names, if any.
        """
        purpose = hello.get("purpose")
        if purpose == "watch":
            return dict(self.welcome)
        if purpose == "join":
            return self._admit_host(hello)
        caller = Owner("", *(str(hello.get(name) or "") for name in ("certificate", "address")))
        if purpose == DECLINE:
            return self._take_back(hello, caller)
        if purpose != "ask":
            return _MALFORMED
        promised = self._promise_rank(caller, [int(rank) for rank in hello.get("ranks") or ()])
        if isinstance(promised, str):
            return promised
        return {**self.welcome, "identity": dict(self.identity), "rank": promised}

    def _promise_rank(self, caller: Owner, named: Sequence[int]) -> int | str:
        """A rank for a worker that comes later, which no worker has or may return to; or why none.

        Who asks again, since it could not join, gets the rank that its certificate was promised.
        What others have or were promised is no obstacle to a certificate that names the rank. Who
        had ranks before gets those first, by its certificate or else its address.
        """
        now, standing = time.monotonic(), self.standing
        certificate, who = caller.certificate, caller.who
        with self._lock:
            self._note_named(certificate, named)
            had = [rank for rank in sorted(self.owners) if self.owners[rank].who == who]
            taken = self._taken() - {rank for rank in named if standing.yields(rank, named)}
            known = {*self.owners, *standing.named}
            taken |= {rank for rank in known if standing.why_anothers(rank, caller, named)}
            taken |= {rank for rank in had if standing.why_out(caller, rank)}
            if not self.has_begun and not named:
                taken |= set(self.on_their_way).difference(had if certificate else ())
            lately = {rank for rank, at in self._lost_at.items() if now - at < self.return_seconds}
            kept = {rank for rank in lately if not standing.yields(rank, named)}
            kept -= set(had if certificate else ())
            awaited = [rank for rank in sorted(self._lost_at) if self._waits_for(rank)]
            taken |= kept.difference(awaited)
            promised = {n: each.caller for n, each in self._promised.items() if each.until > now}
            own = [n for n, other in promised.items() if other == who and n not in taken]
            if caller.address and not certificate and len(own) >= _MOST_PROMISES:
                several = f"{len(own)} ranks are promised to {caller.address}"
                return Later(f"{several}; let them join first")
            why_out = standing.why_out(caller)
            ranks = named or chain(awaited, had, range(1, self.most_ranks + 1))
            ranks = had if why_out else ranks
            free = (rank for rank in ranks if rank <= self.most_ranks and rank not in taken)
            rank = next((rank for rank in free if rank not in (own if named else promised)), None)
            if certificate and own and (rank is None or not named):
                rank = own[0]
            if why_out and rank not in had:
                return why_out
            if rank is None and named:
                return "every rank that its certificate names is taken; wait, or issue another"
            if rank is None:
                return f"all of the {self.most_ranks} ranks are taken; {_ALLOW_MORE}"
            self._promised.pop(rank, None)
            self._promised[rank] = _Promise(who, now + _PROMISE_SECONDS)
            self.cannot_join.pop(rank, None)
        return rank

    def _take_back(self, given: Mapping[str, Any], caller: Owner) -> Mapping[str, Any] | str:
        """Notes why a host does not take ranks that it was promised, or could have."""
        ranks, why = list(given["workers"]), one_line(given["why"])
        known = {name: given[name] for name in ("certificate", "address", "serial", "ranks")}
        asks = HostHello(ranks[0], ranks, {}, {}, {}, generation=0, key="", **known)
        with self._lock:
            mine = {n for n, promise in self._promised.items() if promise.caller == caller.who}
            own = mine & {*ranks}
            for rank in own:
                del self._promised[rank]
            if any(self._promised.get(n, _OVER).until > time.monotonic() for n in ranks):
                return "another host was promised what it gives back"
            if not why or (not self.has_begun and self.cannot_join.keys() >= {*ranks}):
                return self.welcome
            if own < set(ranks) and (refusal := self._why_not(asks)):
                return refusal
            said = f"rank {in_words(ranks)} cannot join: {why}"
            if not self.has_begun:
                self.cannot_join.update(dict.fromkeys(ranks, said))
        return {**self.welcome, "noted": said}

    def _taken(self) -> set[int]:
        return {rank for ranks in self._linked.values() for rank in ranks}

    def _note_named(self, certificate: str, named: Iterable[int]) -> None:
        for rank in named:
            if rank <= self.most_ranks:
                self.standing.named.setdefault(rank, set()).add(certificate)

    def _admit_host(self, given: Mapping[str, Any]) -> Mapping[str, Any] | str:
        hello = read_hello(given)
        if hello is None:
            return _MALFORMED
        if refusal := hello.why_another_run(self.identity):
            with self._lock:
                if not (self.has_begun or self._why_not(hello)):
                    self.cannot_join.update(dict.fromkeys(hello.workers, refusal))
            return refusal
        if len(set(hello.workers)) < len(hello.workers):
            return f"ranks {hello.workers}: one is given twice"
        most = max(map(len, hello.class_counts.values()))
        if most > self.most_classes:
            return (
                f"rank {hello.workers[0]} tells of {most} classes, the run has at most "
                f"{self.most_classes}; say NUM_CLASSES in the dataset file, the same everywhere"
            )
        if hello.generation > self.welcome["generation"]:
            self._has_successor = True
            return f"a server of generation {hello.generation} has taken over"
        with self._lock:
            if refusal := self._why_not(hello):
                return refusal
            host = hello.workers[0]
            if (left := self._away_seconds(hello)) > 0:
                return Later(f"rank {host} did not answer; it may come back in {ceil(left)} s")
            self._linked[host] = self._carried[host] = hello.workers
            self.cannot_join = {n: w for n, w in self.cannot_join.items() if n not in hello.workers}
            most_kept = max(1, len(self.expected))
            self.standing.take(hello.owner, hello.workers, self._taken(), most=most_kept)
            self.shut_out -= {n for n in hello.workers if not self.standing.is_out(n)}
            kept = [n for n in hello.workers if n in self._promised]
            self._promised.update(dict.fromkeys(kept, _OVER))
            self._samples.update(hello.num_samples)
            self._classes.update(hello.class_counts)
            standing = {"iteration": self.iteration, "checkpoint": self.checkpoint}
        return {**self.welcome, **standing}

    def _why_not(self, hello: HostHello) -> str:
        """Why a host may not have its ranks now; empty if it may."""
        host, owner, standing = hello.workers[0], hello.owner, self.standing
        self._note_named(owner.certificate, hello.ranks)
        why_out = {n: why for n in hello.workers if (why := standing.why_out(owner, n))}
        is_the_same = owner.has_key_of(self.owners.get(host))
        returns = is_the_same and self._linked.get(host) == hello.workers
        taken = self._taken()
        named = taken.intersection(hello.workers, hello.ranks)
        yielding = {n for n in named if standing.yields(n, hello.ranks)}
        # A run that has begun takes new ranks. It may have begun here, under the last server of the
        # host, or before the checkpoint that this server goes on from.
        welcome = self.has_begun or hello.generation > 0 or self.checkpoint is not None
        for worker in hello.workers:
            expected = welcome or worker in self.expected or worker in self._promised
            if worker < 1 or not expected:
                return f"rank {worker} is outside 1..{max(self.expected, default=0)}"
            if worker > self.most_ranks:
                return f"rank {worker} is outside 1..{self.most_ranks}; {_ALLOW_MORE}"
            if worker in why_out and not (is_the_same and len(why_out) < len(hello.workers)):
                return why_out[worker]
            # What runs on this machine is its user's choice.
            if owner.who and (refusal := standing.why_anothers(worker, owner, hello.ranks)):
                return refusal
            is_new = worker not in self.owners and worker not in hello.ranks
            if owner.who and is_new and not self.has_begun and worker in self.on_their_way:
                return f"rank {worker} is about to come from rank 0's machine; use mdgan join"
            if worker in yielding:
                self.to_yield |= yielding
                return Later(f"rank {worker} is freed for the certificate that names it; try again")
            if worker in taken and not returns:
                return (
                    f"rank {worker} has joined already; start every rank once (if its machine has "
                    "just died, try again in a moment)"
                )
            promised = self._promised.get(worker, _OVER)
            is_anothers = Owner.is_certificate(promised.caller) and promised.caller != owner.who
            may_come = worker in hello.ranks or owner.is_same(self.owners.get(worker))
            if is_anothers and promised.until > time.monotonic() and not may_come:
                return Later(f"rank {worker} is promised to another certificate; use mdgan join")
            if (left := self._kept_seconds(worker, hello)) > 0:
                return (
                    f"rank {worker} is kept for the host that was lost with it, for another "
                    f"{ceil(left)} s; try again then, or take a free rank with mdgan join"
                )
        return ""

    def _kept_seconds(self, worker: int, hello: HostHello) -> float:
        """How long a rank is still kept for another host, which was lost with it; else 0."""
        known = self.owners.get(worker)
        is_free = not self.has_begun or worker not in self._lost_at or self._waits_for(worker)
        # While no host is left, training waits for any.
        is_free = is_free or self.standing.yields(worker, hello.ranks)
        if is_free or not self._present or known is None or hello.owner.is_same(known):
            return 0.0
        return self._lost_at[worker] + self.return_seconds - time.monotonic()

    def _away_seconds(self, hello: HostHello) -> float:
        """How long a host stays away that did not answer; 0 while training waits for its ranks."""
        awaited = not self._present or any(map(self._waits_for, hello.workers))
        if awaited or not self.has_begun:
            return 0.0
        return self.standing.away_seconds(hello.owner, hello.workers)

    # The server's thread.

    def give_up(
        self, host: int, waited_seconds: float, took_part_seconds: float, *, was_cut: bool = False
    ) -> int:
        """Counts that the server has given up on a host; see `Standing.give_up`."""
        with self._lock:
            workers = self._linked.get(host, [])
            return self.standing.give_up(
                workers, waited_seconds, took_part_seconds, was_cut=was_cut
            )

    def heard_of_successor(self) -> bool:
        """Whether a host has said, since this was asked last, that a later server took over."""
        heard, self._has_successor = self._has_successor, False
        return heard

    def joined(self, host: int, workers: list[int]) -> None:
        """A host's link is open."""
        with self._lock:
            self._linked[host] = workers  # again: its last link may have been lost after `admit`
            for worker in workers:
                self._lost_at.pop(worker, None)

    def take_part(self, host: int) -> None:
        """A host has what it needs to train."""
        with self._lock:
            self._present.add(host)

    def lost(self, host: int) -> None:
        """A host's link has ended."""
        with self._lock:
            workers = self._linked.pop(host, [])
            self._present.discard(host)
            self._lost_at.update(dict.fromkeys(workers, time.monotonic()))

    def free_ranks(self, workers: Iterable[int]) -> None:
        """Workers went of their own accord; their ranks are free at once."""
        with self._lock:
            for worker in workers:
                self._lost_at.pop(worker, None)

    def keep_out(self, worker: int, *, in_order: bool = False) -> None:
        """A worker's host may not take part with it any more, unless that ended in order."""
        with self._lock:
            self.shut_out.add(worker)
            if not in_order:
                self.standing.shut_out(worker)

    def restore(self, manifest: Manifest, *, takes_over: bool) -> None:
        """Goes on from a checkpoint; with `--resume` users start hosts anew: certificates stay."""
        standing = self.standing
        known = manifest.strikes.items()
        kept = {who: dict(own) for who, own in known if takes_over or Owner.is_certificate(who)}
        standing.strikes.update(kept)
        standing.named.update({rank: set(names) for rank, names in manifest.named.items()})
        self.shut_out.update(n for n in manifest.shut_out if takes_over or standing.is_out(n))

    def begin(self, missing: Iterable[int]) -> None:
        """Training begins, some workers of before being lost; from here on any host may join."""
        with self._lock:
            self.has_begun = True
            if self.checkpoint is not None:
                self._lost_at.update(dict.fromkeys(missing, time.monotonic()))
            self.checkpoint = None

    @contextlib.contextmanager
    def awaiting(
        self, checkpoint: Mapping[str, Any] | None, waits_for: Callable[[int], bool]
    ) -> Iterator[None]:
        """Training waits for workers meanwhile.

        Args:
            checkpoint: what they need to find their files.
            waits_for: whether training could go on with a rank. Newcomers get such ranks first, and
                none is kept for the worker that is lost.
        """
        self.checkpoint, self._waits_for = checkpoint, waits_for
        try:
            yield
        finally:
            self.checkpoint, self._waits_for = None, lambda _rank: False

    def carried(self, host: int) -> Collection[int]:
        """The ranks that a host has, shut out or not, or had when it was here last."""
        return self._carried.get(host, ())

    def known_by(self, worker: int) -> tuple[str, str]:
        """The fingerprint of the certificate and the address of the host that has a rank."""
        owner = self.owners.get(worker)
        return (owner.certificate, owner.address) if owner else ("", "")

    def holding(self, worker: int) -> dict[str, Any]:
        """How many samples a worker holds, and how many of each class."""
        return {"samples": self._samples.get(worker, 0), "classes": self._classes.get(worker, [])}
