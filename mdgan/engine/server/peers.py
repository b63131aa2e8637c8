"""Which hosts and workers take part, which owe an answer, and which were lost or shut out.

Only the server's main thread calls these methods. `admission.py` decides which hosts may join.
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
from mdgan.errors import printable
from mdgan.gan.model_state import digest_of
from mdgan.messages import Kind, Message
from mdgan.observe.attendance import Attendance
from mdgan.observe.run_observer import RunObserver
from mdgan.privacy.attestation import Attestation, Statement, answer_in
from mdgan.records.values import in_words
from mdgan.transport.server_end import ServerTransport


@dataclass(eq=False)
class Peers:
    """The hosts and workers that take part, and every way in which one of them stops doing so.

    Every method that removes a host or a worker (its link is lost, it has too many strikes, it
    leaves) makes `losses_to_handle` true. The engine then tells all components that may wait.

    Attributes:
        mean_shard_size: m, the mean number of samples of a worker; set when training begins.
        learnt: the digest of the counts of all sites; see `Statement`.
        attendance: records which workers answered, were late, or had an answer refused.
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
        # Where noise hides each client as a whole, no record names a client.
        privacy = self.settings.privacy
        self.attendance = Attendance(
            self.observer,
            lambda: self.iteration,
            counts_answers=not (privacy.hides_clients and privacy.keeps_ledger),
        )
        self._members: dict[int, Member] = {}
        self.signing: dict[int, str] = {}  # what hosts that end were asked to sign, and may yet
        self._any_lost = False

    @property
    def iteration(self) -> int:
        """The iteration that the server works on."""
        return self.admission.iteration

    def at(self, iteration: int) -> None:
        """The server begins to work on an iteration."""
        self.admission.iteration = self.observer.tracer.iteration = iteration

    # Hosts that take part.

    def joined(self, host: int, hello: Mapping[str, Any]) -> None:
        """A host has opened its link. Its workers take part once the host has `arrived`."""
        workers = [int(worker) for worker in hello["workers"]]
        self.admission.joined(host, workers)
        self.observer.audit("join", "let in", self.iteration, ranks=workers)
        admitted_workers = sorted(set(workers) - self.admission.shut_out)
        self._members[host] = Member(admitted_workers, hello.get("listens"))

    def arrived(self, host: int) -> None:
        """Every worker of a live host has the state that it needs, so the host takes part."""
        member = self._members[host]
        member.arriving, member.since = False, time.monotonic()
        self.admission.take_part(host)
        if self.has_begun:
            num_live = len(self.workers())
            self.observer.note(f"rank(s) {in_words(member.workers)} joined; {num_live} now")
            about = {"workers": member.workers, "holdings": self.holdings(member.workers)}
            self.observer.event("joined", self.iteration, **about)

    def begin(self) -> None:
        """Training begins: computes m, and from now on any host may join."""
        self.admission.begin(self.missing())
        sizes = [self.admission.holding(worker)["samples"] for worker in self.workers()]
        self.mean_shard_size = sum(sizes) / max(1, len(sizes))

    @property
    def has_begun(self) -> bool:
        """Whether training has begun."""
        return self.admission.has_begun

    def missing(self) -> list[int]:
        """The expected ranks whose host has no link."""
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
        members = self._members
        return {host: ranks for host, ranks in hosts if ranks and not members[host].arriving}

    def free(self, besides: int | None = None) -> dict[int, list[int]]:
        """The hosts ready to train that owe no answer, or one to the iteration `besides` alone."""
        hosts, members = self.taking_part().items(), self._members
        return {host: ranks for host, ranks in hosts if members[host].owes.keys() <= {besides}}

    def host_of(self) -> dict[int, int]:
        """The host of every live worker."""
        return {worker: host for host, member in self._members.items() for worker in member.workers}

    def addresses(self) -> dict[int, str | None]:
        """The address at which each live host hands out discriminators; None if it has none."""
        return {host: member.address for host, member in self._members.items()}

    def told(self) -> dict[int, Mapping[str, Any]]:
        """For each live host, what its READY message says of its workers for the algorithm."""
        return {host: member.told for host, member in self._members.items()}

    def holdings(self, workers: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
        """How many samples each worker, by default each live one, holds, in all and by class."""
        chosen = self.workers() if workers is None else workers
        return {str(worker): self.admission.holding(worker) for worker in chosen}

    def identity(self, host: int) -> str:
        """The name under which a host is counted: its own certificate, or else its number."""
        member, (certificate, _) = self._members.get(host), self.admission.known_by(host)
        return (member.fingerprint if member else "") or certificate or f"host {host}"

    def num_sharers(self, hosts: Iterable[int]) -> int:
        """How many of some hosts share noise: different certificates, or keys if there are none."""
        members = (member for host in hosts if (member := self._members.get(host)) is not None)
        keys = [msgspec.convert(member.key, SignedKey) for member in members if member.key]
        return num_sharers(keys, certified=self.admission.trusts is not None)

    def statement(self, iteration: int, generator: nn.Module | None = None) -> str:
        """The statement that hosts with certificates sign as they leave; empty without these.

        Args:
            generator: the trained one, once training is over.
        """
        admission = self.admission
        if admission.trusts is None:
            return ""
        digest = "" if generator is None else digest_of(generator.state_dict())
        about = str(admission.welcome.get("run_id", "")), dict(admission.identity), iteration
        return Statement(*about, digest, self.learnt).text()

    def attested(self, host: int, message: Message) -> None:
        """Records the answer of a host that leaves: its signature, or why none of it counts.

        Raises:
            ValueError: the host was not asked, signs something else, or not with its certificate.
        """
        trusts, asked = self.admission.trusts, self.signing.pop(host, None)
        if trusts is None or asked is None:
            raise ValueError("it is not about what the server has stated")
        ranks, rejected = sorted(self.admission.carried(host)), None
        try:
            answer = answer_in(message.fields, asked, ranks, trusts.authorities)
        except ValueError as error:
            rejected, why = error, printable(f"the server rejects its signature: {error}", 500)
            answer = Attestation(workers=ranks, statement=asked, refusal=why)
        if answer.refusal:
            about = f"have not signed what is said of the run: {answer.refusal}"
            self.observer.note(f"rank(s) {in_words(answer.workers)} {about}")
        self.observer.event("attested", self.iteration, **msgspec.to_builtins(answer))
        if rejected is not None:
            raise rejected

    # Keys by which hosts recognise each other; see `host_keys.py`.

    def take_key(self, host: int, raw_key: object) -> str:
        """Keeps a live host's key for other hosts; returns why the host cannot take part, or "".

        Raises:
            ValueError: the key is not signed as it must be, or another live host has it.
        """
        try:
            signed = msgspec.convert(raw_key, SignedKey)
        except msgspec.ValidationError as error:
            raise ValueError(f"a malformed key ({error!s:.99})") from error
        if signed.workers != list(self.admission.carried(host)):
            raise ValueError("the key of other ranks")
        member = self._members[host]
        member.fingerprint = check_key(signed, self.admission.run, self.admission.trusts)
        for other, peer in self._members.items():
            if other != host and peer.key.get("key") == signed.key:
                raise ValueError("the key of another host")
            if other != host and peer.key and self.identity(other) == self.identity(host):
                return (
                    f"rank(s) {in_words(signed.workers)} and {in_words(peer.workers)} are two "
                    "hosts with one certificate, which can have one part of a secure sum; carry "
                    "them in one host (--workers-per-host), or issue a certificate for each"
                )
        member.key = msgspec.to_builtins(signed)
        return ""

    def tell_keys(self, hosts: Iterable[int]) -> None:
        """Sends each of some hosts the keys of the others that it has not received yet."""
        live = {host: self._members[host] for host in hosts if host in self._members}
        known_keys = {host: str(member.key["key"]) for host, member in live.items() if member.key}
        for host in known_keys:
            member = live[host]
            if unsent := known_keys.items() - member.knows.items() - {(host, known_keys[host])}:
                member.knows.update(unsent)
                keys = [live[other].key for other, _ in sorted(unsent)]
                self.transport.send(host, Message(Kind.KEYS, self.iteration, {"keys": keys}))

    # Hosts that owe an answer.

    def owe(self, hosts: Hosts, iteration: int) -> None:
        """The server has asked workers of some hosts a question; they owe an answer."""
        for host, workers in hosts.items():
            self._members[host].owe(iteration, workers)

    def num_owed(self, host: int, iteration: int) -> int:
        """How many questions of an iteration a host has not answered."""
        member = self._members.get(host)
        return 0 if member is None else len(member.owes.get(iteration, ()))

    def paid(self, host: int, iteration: int) -> list[int] | None:
        """Takes an answer off a host's debt: the asked workers, or None if it owed no answer."""
        member = self._members.get(host)
        if member is None or iteration not in member.owes:
            return None
        return [worker for worker in member.paid(iteration) if worker in member.workers]

    def overdue(self) -> set[int]:
        """The hosts that owe an answer to an earlier iteration."""
        owes = {host: member.owes for host, member in self._members.items()}
        return {host for host, owed in owes.items() if owed and min(owed) < self.iteration}

    def busy(self) -> dict[int, list[int]]:
        """The live hosts that owe an answer, each with the workers that owe it, in order."""
        owing: dict[int, list[int]] = {}
        for host, workers in self.hosts().items():
            by_iteration = self._members[host].owes.values()
            questions = [question for several in by_iteration for question in several]
            if asked_workers := set[int]().union(*questions):
                owing[host] = sorted(asked_workers.intersection(workers))
        return owing

    # Hosts and workers that stop taking part.

    def losses_to_handle(self) -> bool:
        """Whether a host or a worker was removed since the last call."""
        if not self._any_lost:
            return False
        self._any_lost = False
        self.attendance.only(set(self.workers()))
        return True

    def lose(self, host: int, reason: str) -> None:
        """Removes a host whose link has ended."""
        if workers := self._remove(host):
            self.attendance.lost(workers, reason, len(self.workers()))

    def cut_off(self, host: int, reason: str) -> None:
        """Removes a host whose link broke; if it owes an answer, that may delay its return."""
        self.signing.pop(host, None)
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
        """Tells a host to end and closes its link; its workers are not shut out."""
        self.transport.send(host, messages.stop(self.iteration, reason, shut_out=True))
        self.drop(host, reason)

    def make_room(self) -> None:
        """Dismisses hosts whose rank is for a newcomer's certificate that names it; no strike."""
        while self.admission.to_yield:
            rank = self.admission.to_yield.pop()
            for host in [host for host in self._members if rank in self.admission.carried(host)]:
                self.dismiss(host, f"a certificate names rank {rank}; take another with mdgan join")

    def leave(self, host: int) -> None:
        """Removes a host that left of its own accord, and frees its ranks."""
        workers = self._remove(host)
        self.admission.free_ranks(workers)
        if workers:
            self.observer.note(f"rank(s) {in_words(workers)} left; {len(self.workers())} left")
            self.observer.event("left", self.iteration, workers=workers)

    def shut_out(self, worker: int, reason: str) -> None:
        """Shuts a worker out; if its host carries no other worker, tells the host to stop."""
        self.observer.note(f"rank {worker} is shut out: {reason}")
        self.observer.event("shut out", self.iteration, workers=[worker], reason=reason)
        self._keep_out(worker, f"rank {worker} is shut out: {reason}")

    def retire(self, worker: int, reason: str) -> None:
        """Ends a worker in order, and its host too if the host carries no other worker."""
        self._keep_out(worker, "")
        self.observer.note(f"rank {worker} {reason}; {len(self.workers())} left")
        self.observer.event("left", self.iteration, workers=[worker], reason=reason)

    def stop(self, host: int, stop: Message) -> None:
        """Tells a host to stop, and perhaps asks for its signature."""
        if said := stop.fields["said"]:
            self.signing[host] = said
        self.transport.send(host, stop)

    def dismiss_all(self, stop: Message) -> set[int]:
        """Tells every host to stop, now that training ends; returns those that may still speak."""
        hosts = set(self._members)
        for host in hosts:
            self.stop(host, stop)
            self._remove(host)
        return hosts | self.signing.keys()

    def blame(self, host: int, reason: str) -> None:
        """Gives a host that sent what no honest host sends a strike, and ends its link."""
        workers = list(self.hosts().get(host, ()))
        self.strikes.blame(workers)
        struck = [n for n in self.workers() if n in workers or self.admission.standing.is_out(n)]
        self._strike(host, reason, {n: self.strikes.strikes_of(n) for n in struck})

    def give_up_on(self, host: int, waited_seconds: float) -> None:
        """Ends the link to a host that has owed an answer for too long; it may come back later.

        Such absences count apart from strikes; as many shut a host out. The server forgives them
        once the host has taken part for long enough: its machine may only have been busy.
        """
        member = self._members[host]
        took_part = time.monotonic() - member.since - waited_seconds
        times = self.admission.give_up(host, waited_seconds, took_part)
        reason = f"no answer in {waited_seconds:.3g} s"
        self._strike(host, reason, dict.fromkeys(member.workers, times))

    def _strike(self, host: int, reason: str, strikes: Mapping[int, int]) -> None:
        """Ends the link to a host, and shuts out its workers with too many strikes."""
        for worker, times in strikes.items():
            if times >= self.strikes.limit or self.admission.standing.is_out(worker):
                self.shut_out(worker, f"strike {times}: {reason}")
        self.drop(host, f"{reason}; strike {max(strikes.values(), default=0)}")

    def _keep_out(self, worker: int, why: str) -> None:
        """Removes a worker; tells its host to stop if the host carries no other worker."""
        self.admission.keep_out(worker, in_order=not why)
        self._any_lost = True
        host = self.host_of().get(worker)
        if host is None:
            return
        self._members[host].workers.remove(worker)
        if not self._members[host].workers:
            statement = "" if why else self.statement(self.iteration)
            stop = messages.stop(self.iteration, why, shut_out=bool(why), said=statement)
            self.stop(host, stop)
            self._remove(host)

    def _remove(self, host: int) -> list[int]:
        member = self._members.pop(host, None)
        self.admission.lost(host)
        self._any_lost = True
        return [] if member is None else member.workers

    def refused(self, worker: int, reason: str) -> None:
        """Records that a worker's answer could not be used; shuts it out at its last strike."""
        strikes = self.strikes.strikes_of(worker)
        self.attendance.refused(worker, reason, strikes)
        if self.strikes.is_out(worker):
            self.shut_out(worker, f"{strikes} unusable answers, the last: {reason}")
