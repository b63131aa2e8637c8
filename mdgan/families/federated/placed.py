"""The server's share of placement: it says which slot trains which clients, once a round.

Sani et al. 2024, "Pollen: High-throughput Federated Learning Simulation via Resource-Aware Client
Placement", sections 3.1 and 4. Where clients train changes no bit of what they find: they keep
nothing between rounds, and sums do not depend on who adds up what.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import torch

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.barrier import Hosts
from mdgan.engine.server.desk import in_words
from mdgan.engine.server.engine import Engine
from mdgan.families.federated.cohort import Cohort, Round
from mdgan.families.federated.placed_messages import (
    TRAINED,
    Account,
    Offer,
    Task,
    placed_order,
    read_offer,
    read_trained,
)
from mdgan.families.federated.placement import Slot, Strategy, place
from mdgan.families.federated.placement_record import PlacementRecord
from mdgan.families.federated.settings import PULL, FederatedSettings
from mdgan.families.federated.training_time import TrainingTimes
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Message

_ROUNDS_WITHOUT_A_FIT = 2
"""The first rounds, which `lb` places as `rr` does: the fit for round t knows those up to t − 2."""


class Placed(Cohort):
    """Clients without a home.

    Args:
        class_counts: by client, the samples of each class that it holds.
        form: how hosts send their sums.
        settings: of the run.
    """

    def __init__(
        self,
        class_counts: Mapping[int, list[int]],
        form: AnswerForm,
        settings: FederatedSettings,
    ) -> None:
        self.form = form
        self._counts = dict(class_counts)
        self._placement = settings.placement
        self._times = TrainingTimes(settings.time_window)
        self._offers: dict[int, Offer] = {}
        self._asked: dict[int, _Asked] = {}
        self._accounts: dict[int, Account] = {}

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `Cohort`."""
        return {TRAINED: self._hear}

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """See `Cohort`."""
        del engine
        return self._counts

    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """See `Cohort`; all of them, wherever there is a host."""
        del hosts, engine
        return list(self._counts), len(self._counts)

    def mean_shard_size(self, engine: Engine) -> float:
        """See `Cohort`."""
        del engine
        return fmean(map(sum, self._counts.values()))

    def train(self, wanted: Round, hosts: Hosts, engine: Engine) -> Answers | None:
        """See `Cohort`; what hosts that die were asked for is placed again within the round."""
        strategy = self._strategy(wanted.number)
        record = PlacementRecord(wanted, strategy, self._times if strategy == "lb" else None)
        found, send = Answers(), self._pull if strategy == PULL else self._push
        if not send(wanted, hosts, engine, found, record):
            return None
        engine.observer.event("placement", wanted.iteration, **record.fields())
        return found

    def _push(
        self, wanted: Round, hosts: Hosts, engine: Engine, found: Answers, record: PlacementRecord
    ) -> bool:
        """One list a slot, one sum back a host (figure 6b); False if no host is left."""
        i, left = wanted.iteration, list(wanted.loads)
        batches = {client: load.iterations for client, load in wanted.loads.items()}
        strategy: Strategy = self._strategy(wanted.number)  # type: ignore[assignment] # not `pull`
        while left:
            slots = self._slots(hosts, engine)
            if not slots:
                return False
            placement = place(strategy, left, batches, slots, self._times.seconds)
            lists: dict[int, list[list[int]]] = {}
            for slot in sorted(placement):
                lists.setdefault(slot.host, []).append(placement[slot])
            asked = {host: hosts[host] for host in lists if any(lists[host])}
            self._ask(wanted, asked, lists, engine)
            if len(left) == len(batches):  # while hosts train: for the round after this one
                self._times.fit(wanted.number - 1)
            answers = engine.barrier.collect(i, asked, self._weights(asked, wanted))
            left = self._take_in(asked, answers, found, wanted, record, engine)
            if left:
                engine.observer.note(f"{len(left)} client(s) are placed again")
            hosts = engine.members.free()
        return True

    def _pull(
        self, wanted: Round, hosts: Hosts, engine: Engine, found: Answers, record: PlacementRecord
    ) -> bool:
        """A host that is done gets the next client (figure 6a); False if no host is left."""
        i, queue, busy = wanted.iteration, deque(wanted.loads), dict[int, Collection[int]]()
        while queue or busy:
            hosts = {host: own for host, own in engine.members.free().items() if host not in busy}
            self._slots(hosts, engine)
            if not (hosts or busy):
                return False
            now = {host: hosts[host] for host in list(hosts)[: len(queue)]}
            self._ask(wanted, now, {host: [[queue.popleft()]] for host in now}, engine)
            busy |= now
            answers = engine.arrivals.next(i, self._weights(busy, wanted))
            live = engine.members.hosts()
            done = {h: own for h, own in busy.items() if h in answers.hosts or h not in live}
            queue.extendleft(self._take_in(done, answers, found, wanted, record, engine))
            busy = {host: own for host, own in busy.items() if host not in done}
        return True

    def _strategy(self, number: int) -> str:
        unfitted = self._placement == "lb" and number < _ROUNDS_WITHOUT_A_FIT
        return "rr" if unfitted else self._placement

    def _slots(self, hosts: Hosts, engine: Engine) -> list[Slot]:
        """What hosts offer now."""
        told = engine.members.told()
        self._offers = {host: offer for host, offer in self._offers.items() if host in told}
        slots: list[Slot] = []
        for host in hosts:
            offer = self._offers.get(host) or read_offer(told.get(host, {}))
            if offer is None:
                engine.desk.drop(host, "it offers no slots")
                continue
            self._offers[host] = offer
            slots += [Slot(host, number, kind) for number, kind in enumerate(offer.kinds)]
        return slots

    def _ask(
        self,
        wanted: Round,
        hosts: Hosts,
        lists: Mapping[int, Sequence[Sequence[int]]],
        engine: Engine,
    ) -> None:
        for host in hosts:
            self._accounts.pop(host, None)
            clients = [client for own in lists[host] for client in own]
            self._asked[host] = _Asked(clients, self._offers[host].kinds)
        engine.ask(wanted.iteration, hosts, partial(_order, wanted, lists))

    def _weights(self, hosts: Hosts, wanted: Round) -> dict[int, float]:
        """What the sum of each host weighs; a host has one rank, its number."""
        return {
            host: sum(wanted.weights[client] for client in self._asked[host].clients)
            for host in hosts
        }

    def _hear(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in what a host tells of its round, just before its sum.

        Raises:
            ValueError: it is malformed, or not of the clients that the host was asked for.
        """
        account = read_trained(message)
        clients = sorted(trained.client for trained in account.trained)
        if host not in self._asked or clients != sorted(self._asked[host].clients):
            raise ValueError("it does not tell of the clients that were asked for")
        self._accounts[host], self._offers[host] = account, account.offer
        unusable = [trained.client for trained in account.trained if not trained.usable]
        if unusable:
            which = in_words(unusable)
            engine.observer.note(f"models of client(s) {which} are not finite; they do not count")

    def _take_in(
        self,
        hosts: Hosts,
        answers: Answers,
        found: Answers,
        wanted: Round,
        record: PlacementRecord,
        engine: Engine,
    ) -> list[int]:
        """Adds what hosts found; returns the clients of those that gave nothing that can be used.

        Clients of a host that is only late are not among them: the round goes on without.
        """
        again: list[int] = []
        for host in hosts:
            account, asked = self._accounts.get(host), self._asked[host]
            totals = [part.total for part in answers.sums if part.workers == (host,)]
            if account is None or not totals:
                member = engine.members.member(host)
                again += [] if member is not None and member.owes else asked.clients
                continue
            usable = [trained for trained in account.trained if trained.usable]
            if usable:
                found.sums.append(PartialSum(tuple(each.client for each in usable), totals[0]))
            found.losses.update((each.client, torch.tensor(each.losses)) for each in usable)
            record.note(host, asked.kinds, account.trained)
            for each in account.trained:
                kind = asked.kinds[min(each.slot, len(asked.kinds) - 1)]
                x = wanted.loads[each.client].iterations
                self._times.observe(wanted.number, kind, x, each.seconds)
        return again


class _Asked(NamedTuple):
    """What a host was asked for.

    Attributes:
        clients: in no order that matters.
        kinds: of the slots that it offered.
    """

    clients: list[int]
    kinds: list[str]


def _order(wanted: Round, lists: Mapping[int, Sequence[Sequence[int]]], host: int) -> Message:
    """What a host is asked: to train these clients in these slots."""
    tasks = [
        [Task(client, wanted.loads[client], wanted.weights[client]) for client in own]
        for own in lists[host]
    ]
    return placed_order(wanted.iteration, wanted.models, tasks)
