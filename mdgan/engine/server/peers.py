"""The hosts and workers that take part: who is there, owes what, is late, lost, or shut out.

Only the server's own thread calls any of this; `admission.py` decides which hosts may come in.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from torch import nn

from mdgan import messages
from mdgan.engine.host_keys import SignedKey, check_key, num_sharers
from mdgan.engine.server.admission import Admission
from mdgan.engine.server.hosts import Hosts, Member, Strikes, workers_of
from mdgan.engine.settings import RunSettings
from mdgan.gan.model_state import digest_of
from mdgan.messages import Kind, Message
from mdgan.observe.attendance import Attendance
from mdgan.observe.run_observer import RunObserver
from mdgan.privacy.attestation import Attestation, Statement
from mdgan.records.values import in_words
from mdgan.transport.server_end import ServerTransport


@dataclass(eq=False)
class Peers:
    """The hosts and workers that take part, and what became of those that do not.

    Whatever removes some of them (a lost link, a strike too many, a farewell) says so in
    `losses_to_handle`; the engine then tells those that may wait for them.

    Attributes:
        mean_shard_size: m, in samples; known once training begins.
        learnt: the digest of what all sites have counted; see `Statement`.
        carried: see `Admission`; owner: gives the host that has a rank, or had it last.
        answered, late, back, cut, tell_of_absent, tell_counts: see `Attendance`.
    """

    admission: Admission
    transport: ServerTransport
    observer: RunObserver
    settings: RunSettings
    are_ours: bool = False  # whether all hosts that are expected were started with the server

    def __post_init__(self) -> None:
        self.strikes = Strikes(self.settings.faults.strikes, self.admission.standing)
        self.observer.known = self.admission.known_by
        self.mean_shard_size = 0.0
        self.learnt = ""
        # Where noise hides each client as a whole, none is named.
        privacy = self.settings.privacy
        self.attendance = Attendance(
            self.observer,
            lambda: self.iteration,
            counts_answers=not (privacy.hides_clients and privacy.keeps_ledger),
        )
        self._members: dict[int, Member] = {}
        self.signing: set[int] = set()  # hosts that went home, and may still say what they sign
        self._any_lost = False

    @property
    def iteration(self) -> int:
        """The iteration that the server works on."""
        return self.admission.iteration

    def at(self, iteration: int) -> None:
        """From here on the server works on this iteration."""
        self.admission.iteration = self.observer.tracer.iteration = iteration

    # Who is there.

    def joined(self, host: int, hello: Mapping[str, Any]) -> None:
        """A host's link is open; its workers take part once they have `arrived`."""
        workers = [int(worker) for worker in hello["workers"]]
        self.admission.joined(host, workers)
        self.observer.audit("join", "let in", self.iteration, ranks=workers)
        believed = sorted(set(workers) - self.admission.shut_out)
        self._members[host] = Member(believed, hello.get("listens"))

    def arrived(self, host: int) -> None:
        """Every worker of a live host has what it needs to go on."""
        member = self._members[host]
        member.arriving, member.since = False, time.monotonic()
        self.admission.take_part(host)
        if self.has_begun:
            left = len(self.workers())
            self.observer.note(f"rank(s) {in_words(member.workers)} joined; {left} now")
            about = {"workers": member.workers, "holdings": self.holdings(member.workers)}
            self.observer.event("joined", self.iteration, **about)

    def begin(self) -> None:
        """Training begins; from here on any host may join, and m is known."""
        self.admission.begin(self.missing())
        sizes = [self.admission.holding(worker)["samples"] for worker in self.workers()]
        self.mean_shard_size = sum(sizes) / max(1, len(sizes))

    @property
    def has_begun(self) -> bool:
        """Whether training has."""
        return self.admission.has_begun

    def missing(self) -> list[int]:
        """The expected ranks that have no link."""
        return sorted(self.admission.expected - self.admission.shut_out - set(self.workers()))

    def absent(self) -> list[int]:
        """The expected ranks that are not ready to take part."""
        ready = set(workers_of(self.taking_part()))
        return sorted(self.admission.expected - self.admission.shut_out - ready)

    def member(self, host: int) -> Member | None:
        """A live host, or None."""
        return self._members.get(host)

    def workers(self) -> list[int]:
        """The live workers in increasing order."""
        return workers_of(self.hosts())

    def hosts(self) -> dict[int, list[int]]:
        """The live hosts, each with its workers in increasing order."""
        return {host: member.workers for host, member in sorted(self._members.items())}

    def taking_part(self) -> dict[int, list[int]]:
        """The hosts that are ready to train, busy or not."""
        hosts = self.hosts().items()
        return {host: own for host, own in hosts if own and not self._members[host].arriving}

    def free(self, besides: int | None = None) -> dict[int, list[int]]:
        """The hosts that are ready to train and owe nothing, besides an answer to one iteration."""
        hosts = self.taking_part().items()
        return {host: own for host, own in hosts if self._members[host].owes.keys() <= {besides}}

    def host_of(self) -> dict[int, int]:
        """The host of every live worker."""
        return {worker: host for host, member in self._members.items() for worker in member.workers}

    def addresses(self) -> dict[int, str | None]:
        """Where every live host hands out discriminators."""
        return {host: member.address for host, member in self._members.items()}

    def told(self) -> dict[int, Mapping[str, Any]]:
        """By live host, what it said of its workers, for the algorithm."""
        return {host: member.told for host, member in self._members.items()}

    def holdings(self, workers: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """How many samples workers, by default all that live, hold, and how many of each class."""
        chosen = self.workers() if workers is None else workers
        return {str(worker): self.admission.holding(worker) for worker in chosen}

    def identity(self, host: int) -> str:
        """What a host counts as where hosts are counted: its certificate, if that is its own."""
        member, (certificate, _) = self._members.get(host), self.admission.known_by(host)
        return (member.fingerprint if member else "") or certificate or f"host {host}"

    def num_sharers(self, hosts: Iterable[int]) -> int:
        """How many different certificates some hosts have that told a key; hosts without any."""
        told = (member.key for host in hosts if (member := self._members.get(host)) is not None)
        keys = [msgspec.convert(key, SignedKey) for key in told if key]
        return num_sharers(keys, certified=self.admission.trusts is not None)

    def statement(self, iteration: int, generator: nn.Module | None = None) -> str:
        """What hosts with certificates sign as they leave; empty without certificates.

        Args:
            generator: that training came to, once it is over.
        """
        admission = self.admission
        if admission.trusts is None:
            return ""
        digest = "" if generator is None else digest_of(generator.state_dict())
        about = str(admission.welcome.get("run_id", "")), dict(admission.identity), iteration
        return Statement(*about, digest, self.learnt).text()

    def attested(self, host: int, message: Message) -> None:
        """A host that leaves has signed what the server said, or says why not.

        Raises:
            ValueError: it speaks of others, or makes no sense.
        """
        answer = msgspec.convert(dict(message.fields), Attestation, str_keys=True)
        self.signing.discard(host)
        if not set(answer.workers) <= set(self.admission.carried(host)):
            raise ValueError("it speaks of workers of others")
        if answer.refusal:
            about = f"have not signed what is said of the run: {answer.refusal}"
            self.observer.note(f"rank(s) {in_words(answer.workers)} {about}")
        self.observer.event("attested", self.iteration, **msgspec.to_builtins(answer))

    # The keys of hosts for each other; see `host_keys.py`.

    def take_key(self, host: int, told: object) -> str:
        """Keeps a live host's key for others; says why the host cannot take part, empty if it can.

        Raises:
            ValueError: the key is not signed as it must be, or another live host has it.
        """
        try:
            signed = msgspec.convert(told, SignedKey)
        except msgspec.ValidationError as error:
            raise ValueError(f"a malformed key ({error!s:.99})") from error
        if signed.workers != list(self.admission.carried(host)):
            raise ValueError("the key of other ranks")
        member = self._members[host]
        member.fingerprint = check_key(signed, self.admission.run, self.admission.trusts)
        for other, known in self._members.items():
            if other != host and known.key.get("key") == signed.key:
                raise ValueError("the key of another host")
            if other != host and known.key and self.identity(other) == self.identity(host):
                return (
                    f"rank(s) {in_words(signed.workers)} and {in_words(known.workers)} are two "
                    "hosts with one certificate, which can have one part of a secure sum; carry "
                    "them in one host (--workers-per-host), or issue a certificate for each"
                )
        member.key = msgspec.to_builtins(signed)
        return ""

    def tell_keys(self, hosts: Iterable[int]) -> None:
        """Tells each of some hosts the keys of the others that it does not know yet."""
        live = {host: self._members[host] for host in hosts if host in self._members}
        known = {host: str(member.key["key"]) for host, member in live.items() if member.key}
        for host in known:
            member = live[host]
            if new := known.items() - member.knows.items() - {(host, known[host])}:
                member.knows.update(new)
                keys = [live[other].key for other, _ in sorted(new)]
                self.transport.send(host, Message(Kind.KEYS, self.iteration, {"keys": keys}))

    # Who owes an answer.

    def owe(self, hosts: Hosts, iteration: int) -> None:
        """Workers of some hosts were asked for something."""
        for host, workers in hosts.items():
            self._members[host].owe(iteration, workers)

    def num_owed(self, host: int, iteration: int) -> int:
        """How many questions of an iteration a host has not answered."""
        member = self._members.get(host)
        return 0 if member is None else len(member.owes.get(iteration, ()))

    def paid(self, host: int, iteration: int) -> list[int] | None:
        """A host has answered; its workers that were asked and may take part, None if none was."""
        member = self._members.get(host)
        if member is None or iteration not in member.owes:
            return None
        return [worker for worker in member.paid(iteration) if worker in member.workers]

    def overdue(self) -> set[int]:
        """The hosts that owe an answer to an earlier iteration."""
        owes = {host: member.owes for host, member in self._members.items()}
        return {host for host, owed in owes.items() if owed and min(owed) < self.iteration}

    def busy(self) -> dict[int, list[int]]:
        """The live hosts that owe an answer, each with the workers that do, in increasing order."""
        owing: dict[int, list[int]] = {}
        for host, workers in self.hosts().items():
            owes = self._members[host].owes.values()
            if asked := {worker for questions in owes for each in questions for worker in each}:
                owing[host] = sorted(asked.intersection(workers))
        return owing

    # Who is gone.

    def losses_to_handle(self) -> bool:
        """Whether hosts or workers are gone since this was asked last."""
        if not self._any_lost:
            return False
        self._any_lost = False
        self.attendance.only(set(self.workers()))
        return True

    def lose(self, host: int, reason: str) -> None:
        """A host's link is gone."""
        if workers := self._remove(host):
            self.attendance.lost(workers, reason, len(self.workers()))

    def cut_off(self, host: int, reason: str) -> None:
        """A host's link has ended by itself; one that is waited for each time comes back later."""
        self.signing.discard(host)
        member = self._members.get(host)
        if member is not None and member.owes:
            since = member.awaited_since
            waited_seconds = time.monotonic() - since
            self.admission.give_up(host, waited_seconds, since - member.since, was_cut=True)
        self.lose(host, reason)

    def drop(self, host: int, reason: str) -> None:
        """Ends the link to a host."""
        self.transport.drop(host)
        self.lose(host, reason)

    def dismiss(self, host: int, reason: str) -> None:
        """Ends the link to a host, and tells it to end; its workers are not shut out."""
        self.transport.send(host, messages.stop(self.iteration, reason, shut_out=True))
        self.drop(host, reason)

    def make_room(self) -> None:
        """Lets go of hosts with ranks that certificates name which have come; that is no strike."""
        while self.admission.to_yield:
            rank = self.admission.to_yield.pop()
            for host in [host for host in self._members if rank in self.admission.carried(host)]:
                self.dismiss(host, f"a certificate names rank {rank}; take another with mdgan join")

    def leave(self, host: int) -> None:
        """A host went of its own accord."""
        workers = self._remove(host)
        self.admission.free_ranks(workers)
        if workers:
            self.observer.note(f"rank(s) {in_words(workers)} left; {len(self.workers())} left")
            self.observer.event("left", self.iteration, workers=workers)

    def shut_out(self, worker: int, reason: str) -> None:
        """A worker may not take part any more; its host is told to stop if it carries no other."""
        self.observer.note(f"rank {worker} is shut out: {reason}")
        self.observer.event("shut out", self.iteration, workers=[worker], reason=reason)
        self._keep_out(worker, f"rank {worker} is shut out: {reason}")

    def retire(self, worker: int, reason: str) -> None:
        """A worker ends in order, and so does its host if it carries no other."""
        self._keep_out(worker, "")
        self.observer.note(f"rank {worker} {reason}; {len(self.workers())} left")
        self.observer.event("left", self.iteration, workers=[worker], reason=reason)

    def dismiss_all(self, stop: Message) -> set[int]:
        """Tells every host to stop, now that training ends; returns the hosts."""
        hosts = set(self._members)
        for host in hosts:
            self.transport.send(host, stop)
            self._remove(host)
        return hosts

    def blame(self, host: int, reason: str) -> None:
        """A host has said what no host of the run would: its link ends, which is a strike."""
        workers = list(self.hosts().get(host, ()))
        self.strikes.blame(workers)
        struck = [n for n in self.workers() if n in workers or self.admission.standing.is_out(n)]
        self._strike(host, reason, {n: self.strikes.strikes_of(n) for n in struck})

    def give_up_on(self, host: int, waited_seconds: float) -> None:
        """A host has owed an answer for too long: its link ends, and it may come back later.

        That is a strike of another kind, of which as many put it out. They are forgiven once it
        has taken part for long enough: the host may be honest, and its machine busy.
        """
        member = self._members[host]
        took_part = time.monotonic() - member.since - waited_seconds
        times = self.admission.give_up(host, waited_seconds, took_part)
        reason = f"no answer in {waited_seconds:.3g} s"
        self._strike(host, reason, dict.fromkeys(member.workers, times))

    def _strike(self, host: int, reason: str, strikes: Mapping[int, int]) -> None:
        """Ends the link to a host; its workers with too many strikes are shut out."""
        for worker, times in strikes.items():
            if times >= self.strikes.limit or self.admission.standing.is_out(worker):
                self.shut_out(worker, f"strike {times}: {reason}")
        self.drop(host, f"{reason}; strike {max(strikes.values(), default=0)}")

    def _keep_out(self, worker: int, why: str) -> None:
        """Goes on without a worker; a host that carries no other is told to stop."""
        self.admission.keep_out(worker, in_order=not why)
        self._any_lost = True
        host = self.host_of().get(worker)
        if host is None:
            return
        self._members[host].workers.remove(worker)
        if not self._members[host].workers:
            said = "" if why else self.statement(self.iteration)
            stop = messages.stop(self.iteration, why, shut_out=bool(why), said=said)
            self.transport.send(host, stop)
            self._remove(host)
            if said:
                self.signing.add(host)

    def _remove(self, host: int) -> list[int]:
        member = self._members.pop(host, None)
        self.admission.lost(host)
        self._any_lost = True
        return [] if member is None else member.workers

    def refused(self, worker: int, reason: str) -> None:
        """A worker's answer could not be used."""
        strikes = self.strikes.strikes_of(worker)
        self.attendance.refused(worker, reason, strikes)
        if self.strikes.is_out(worker):
            self.shut_out(worker, f"{strikes} unusable answers, the last: {reason}")
