"""Which host carries which workers, which hosts may come in, and which owe an answer."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import ceil
from typing import Any

from mdgan.engine.hello import MOST_RANKS, Hello, Owner, read_hello
from mdgan.engine.host_keys import run_digest

_PROMISE_SECONDS = 60.0  # until a worker that asked has read its data and joins
_ALLOW_MORE = "rank 0 allows more with --max-world-size"
_MALFORMED = "its hello is malformed; use the same version of mdgan everywhere"


@dataclass
class Member:
    """One host that takes part.

    Attributes:
        workers: the ranks it carries, in increasing order, those that were shut out left out.
        address: where other hosts fetch discriminators from it; None if they need not know.
        arriving: it has joined, but some worker still lacks a discriminator to go on with.
        told: what the host said of its workers when it arrived, for the algorithm.
        key: with which other hosts agree on secrets with it (`SignedKey`); empty if it has none.
        fingerprint: of the certificate that has signed it, if that tells it from other hosts.
        knows: by host, the key that it was told last.
        owes: the iterations of which it has not answered all questions, in order; for each of these
            questions, in order, the workers that were asked.
    """

    workers: list[int]
    address: str | None
    arriving: bool = True
    told: Mapping[str, Any] = field(default_factory=dict)
    key: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    knows: dict[int, str] = field(default_factory=dict)
    owes: dict[int, list[list[int]]] = field(default_factory=dict)


class Membership:
    """The server's list of hosts and workers.

    Hosts are admitted by the transport's threads; everything else is the server's alone.

    Args:
        expected: the ranks that are expected at the start.
        identity: what must be equal on every rank: version, dataset file, shared settings.
        told: what the server tells every newcomer besides: the server's generation, the run's name.
        return_seconds: how long the server keeps the rank of a lost worker for the host that had
            it.
        iteration: the last that is done.
        most_ranks: the highest rank that may ever take part.

    Attributes:
        iteration: the last that is done.
        mean_shard_size: m, in samples; known once training begins.
        run: stands for the run and this server of it; see `run_digest`.
        fenced_by: the generation of a later server, as a host has told; else 0.
        checkpoint: what a newcomer needs to find its workers' files; None while workers train.
        kept_out: the workers that may not take part any more.
        waits_for: whether training waits for a worker with some rank. Newcomers get such ranks
            first, and none is kept for the worker that is lost.
    """

    def __init__(
        self,
        expected: Iterable[int],
        identity: Mapping[str, Any],
        told: Mapping[str, Any],
        return_seconds: float,
        iteration: int = 0,
        most_ranks: int = MOST_RANKS,
    ) -> None:
        self.iteration = iteration
        self.checkpoint: Mapping[str, Any] | None = None
        self.mean_shard_size = 0.0
        self.run = run_digest(told, identity)
        self.fenced_by = 0
        self.kept_out: set[int] = set()
        self.waits_for: Callable[[int], bool] = lambda _rank: False
        self._expected = set(expected)
        self._identity = identity
        self._told = told
        self._return_seconds = return_seconds
        self._most_ranks = most_ranks
        self._members: dict[int, Member] = {}
        self._admitted: dict[int, list[int]] = {}
        self._carried: dict[int, list[int]] = {}
        self._owners: dict[int, Owner] = {}
        self._gone: dict[int, float] = {}
        self._arrived: set[int] = set()
        self._promised: dict[int, float] = {}
        self._samples: dict[int, int] = {}
        self._classes: dict[int, list[int]] = {}
        self._begun = False
        self._lock = threading.Lock()

    # Which hosts may come in: called from the transport's threads.

    def admit(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """Decides whether a newcomer may come in.

        Args:
            hello: `purpose` is `join` (see `make_hello`), `ask` or `watch`. Who asks may have
                `ranks`: those that its certificate names.

        Returns:
            What it is told; or why it may not come in, in words for the user who started it.
        """
        purpose = hello.get("purpose")
        if purpose == "watch":
            return dict(self._told)
        if purpose == "ask":
            ranks = hello.get("ranks")
            rank = self._promise_rank(None if ranks is None else [int(rank) for rank in ranks])
            if rank is None:
                if ranks is not None:
                    return "every rank that its certificate names is taken; wait, or issue another"
                return f"all of the {self._most_ranks} ranks are taken; {_ALLOW_MORE}"
            return {**self._told, "identity": dict(self._identity), "rank": rank}
        return self._admit_host(hello) if purpose == "join" else _MALFORMED

    def _promise_rank(self, among: Iterable[int] | None) -> int | None:
        """A rank for a worker that comes later: one that no worker has or may return to.

        Args:
            among: those that it may have; None: any.
        """
        now = time.monotonic()
        with self._lock:
            taken = {rank for ranks in self._admitted.values() for rank in ranks}
            taken |= {rank for rank, until in self._promised.items() if until > now}
            taken |= self.kept_out
            if self.checkpoint is not None and not self._begun:
                taken |= self._expected  # a run that goes on: its workers are on their way
            held = {rank for rank, at in self._gone.items() if now - at < self._return_seconds}
            awaited = [rank for rank in sorted(self._gone) if self.waits_for(rank)]
            taken |= held.difference(awaited)
            ranks = chain(awaited, range(1, self._most_ranks + 1)) if among is None else among
            allowed = (rank for rank in ranks if rank <= self._most_ranks)
            rank = next((rank for rank in allowed if rank not in taken), None)
            if rank is not None:
                self._promised[rank] = now + _PROMISE_SECONDS
        return rank

    def _admit_host(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        said = read_hello(hello)
        if said is None:
            return _MALFORMED
        host = said.workers[0]
        for name, ours in self._identity.items():
            theirs = said.identity.get(name)
            if theirs != ours:
                shown = f"{theirs!s:.99}" if not isinstance(theirs, list | dict) else "no value"
                if name == "version":
                    return (
                        f"rank {host} runs mdgan {shown}, rank 0 runs mdgan {ours}; install the "
                        "same version on every machine"
                    )
                return (
                    f"rank {host} has {name} = {shown}, rank 0 has {name} = {ours}; start every "
                    "rank with the same settings"
                )
        if len(set(said.workers)) < len(said.workers):
            return f"ranks {said.workers}: one is given twice"
        if said.generation > self._told["generation"]:
            self.fenced_by = max(self.fenced_by, said.generation)
            return f"a server of generation {said.generation} has taken over"
        with self._lock:
            refusal = self._why_not(said)
            if refusal is not None:
                return refusal
            self._admitted[host] = self._carried[host] = said.workers
            self._owners.update(dict.fromkeys(said.workers, said.owner))
            self._promised.update((n, 0.0) for n in said.workers if n in self._promised)
            self._samples.update(said.num_samples)
            self._classes.update(said.class_counts)
            told = {"iteration": self.iteration, "checkpoint": self.checkpoint}
        return {**self._told, **told}

    def _why_not(self, said: Hello) -> str | None:
        host, owner = said.workers[0], said.owner
        is_the_same = owner.has_key_of(self._owners.get(host))
        returns = is_the_same and self._admitted.get(host) == said.workers
        taken = {rank for ranks in self._admitted.values() for rank in ranks}
        # A run that has begun takes new ranks. It may have begun here, under the last server of the
        # host, or before the checkpoint that this server goes on from.
        welcome = self._begun or said.generation > 0 or self.checkpoint is not None
        for worker in said.workers:
            expected = welcome or worker in self._expected or worker in self._promised
            if worker < 1 or not expected:
                return f"rank {worker} is outside 1..{max(self._expected, default=0)}"
            if worker > self._most_ranks:
                return f"rank {worker} is outside 1..{self._most_ranks}; {_ALLOW_MORE}"
            if worker in self.kept_out and not (
                is_the_same and not self.kept_out.issuperset(said.workers)
            ):
                return f"rank {worker} was shut out"
            if worker in taken and not returns:
                return (
                    f"rank {worker} has joined already; start every rank once (if its machine has "
                    "just died, try again in a moment)"
                )
            if (left := self._kept_seconds(worker, owner)) > 0:
                return (
                    f"rank {worker} is kept for the host that was lost with it, for another "
                    f"{ceil(left)} s; try again then, or take a free rank with mdgan join"
                )
        return None

    def _kept_seconds(self, worker: int, owner: Owner) -> float:
        """How long a rank is still kept for another host, which was lost with it; else 0."""
        known = self._owners.get(worker)
        is_free = not self._begun or worker not in self._gone or self.waits_for(worker)
        # While no host is left, training waits for any.
        if is_free or not self._arrived or known is None or owner.is_same(known):
            return 0.0
        return self._gone[worker] + self._return_seconds - time.monotonic()

    # Which hosts are here: called by the server alone.

    def joined(self, host: int, hello: Mapping[str, Any]) -> None:
        """A host's link is open; its workers take part once they are `arrived`."""
        workers = [int(worker) for worker in hello["workers"]]
        with self._lock:
            self._admitted[host] = workers  # again: its last link may have been lost after `admit`
            for worker in workers:
                self._gone.pop(worker, None)
        believed = sorted(set(workers) - self.kept_out)
        self._members[host] = Member(believed, hello.get("listens"))

    def arrived(self, host: int) -> None:
        """Every worker of a host has what it needs to go on."""
        if host in self._members:
            self._members[host].arriving = False
            with self._lock:
                self._arrived.add(host)

    def carried(self, host: int) -> Collection[int]:
        """The ranks that a host has, shut out or not, or had when it was here last."""
        return self._carried.get(host, ())

    def told(self) -> dict[int, Mapping[str, Any]]:
        """By live host, what it said of its workers, for the algorithm."""
        return {host: member.told for host, member in self._members.items()}

    def begin(self) -> None:
        """Training begins; from here on any host may join, and m is known."""
        with self._lock:
            self._begun = True
            if self.checkpoint is not None:
                self._gone.update(dict.fromkeys(self.missing(), time.monotonic()))
        self.checkpoint = None
        live = [self._samples.get(worker, 0) for worker in self.workers()]
        self.mean_shard_size = sum(live) / max(1, len(live))

    def lose(self, host: int) -> list[int]:
        """A host is gone; returns the workers it carried."""
        member = self._members.pop(host, None)
        now = time.monotonic()
        with self._lock:
            carried = self._admitted.pop(host, [])
            self._arrived.discard(host)
            self._gone.update(dict.fromkeys(carried, now))
        return member.workers if member else []

    def left(self, workers: Iterable[int]) -> None:
        """Workers went of their own accord; their ranks are free at once."""
        with self._lock:
            for worker in workers:
                self._gone.pop(worker, None)

    def shut_out(self, worker: int) -> int | None:
        """A worker may not take part any more; returns its host, None if that is gone already."""
        with self._lock:
            self.kept_out.add(worker)
        host = self.host_of().get(worker)
        if host is not None:
            self._members[host].workers.remove(worker)
        return host

    def owner(self, worker: int) -> Owner | None:
        """The host that has a rank, or had it last."""
        return self._owners.get(worker)

    @property
    def has_begun(self) -> bool:
        """Whether training has begun."""
        return self._begun

    def missing(self) -> list[int]:
        """The expected ranks that have no link."""
        return sorted(self._expected - self.kept_out - set(self.workers()))

    def absent(self) -> list[int]:
        """The expected ranks that are not ready to take part."""
        ready = {
            n for member in self._members.values() if not member.arriving for n in member.workers
        }
        return sorted(self._expected - self.kept_out - ready)

    def member(self, host: int) -> Member | None:
        """A live host, or None."""
        return self._members.get(host)

    def owe(self, hosts: Mapping[int, Iterable[int]], iteration: int) -> None:
        """Workers of some hosts were asked for something."""
        for host, workers in hosts.items():
            self._members[host].owes.setdefault(iteration, []).append(list(workers))

    def num_owed(self, host: int, iteration: int) -> int:
        """How many questions of an iteration a host has not answered."""
        member = self._members.get(host)
        return 0 if member is None else len(member.owes.get(iteration, ()))

    def paid(self, host: int, iteration: int) -> list[int] | None:
        """A host has answered.

        Returns:
            Those of its workers that were asked and may take part; None if none was.
        """
        member = self._members.get(host)
        if member is None or iteration not in member.owes:
            return None
        asked = member.owes[iteration].pop(0)  # a host answers in the order of the questions
        if not member.owes[iteration]:
            del member.owes[iteration]
        return [worker for worker in asked if worker in member.workers]

    def late(self) -> set[int]:
        """The hosts that owe an answer to an earlier iteration."""
        owed = {host: member.owes for host, member in self._members.items()}
        return {host for host, i in owed.items() if i and min(i) < self.iteration}

    def busy(self) -> dict[int, list[int]]:
        """The live hosts that owe an answer, each with the workers that do, in increasing order."""
        owed = {
            host: {worker for asked in member.owes.values() for each in asked for worker in each}
            for host, member in sorted(self._members.items())
        }
        return {
            host: sorted(workers.intersection(self._members[host].workers))
            for host, workers in owed.items()
            if workers
        }

    def workers(self) -> list[int]:
        """The live workers in increasing order."""
        return sorted(worker for member in self._members.values() for worker in member.workers)

    def hosts(self) -> dict[int, list[int]]:
        """The live hosts, each with its workers in increasing order."""
        return {host: member.workers for host, member in sorted(self._members.items())}

    def taking_part(self) -> dict[int, list[int]]:
        """The hosts that are ready to train, busy or not."""
        return {
            host: member.workers
            for host, member in sorted(self._members.items())
            if not member.arriving and member.workers
        }

    def free(self, besides: int | None = None) -> dict[int, list[int]]:
        """The hosts that are ready to train and owe nothing.

        Args:
            besides: an iteration whose answer they may owe.
        """
        return {
            host: workers
            for host, workers in self.taking_part().items()
            if self._members[host].owes.keys() <= {besides}
        }

    def host_of(self) -> dict[int, int]:
        """The host of every live worker."""
        return {worker: host for host, member in self._members.items() for worker in member.workers}

    def addresses(self) -> dict[int, str | None]:
        """Where every live host hands out discriminators."""
        return {host: member.address for host, member in self._members.items()}

    def holdings(self, workers: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """How many samples workers hold, and how many of each class.

        Args:
            workers: by default all that live.
        """
        return {
            str(worker): {
                "samples": self._samples.get(worker, 0),
                "classes": self._classes.get(worker, []),
            }
            for worker in (self.workers() if workers is None else workers)
        }
