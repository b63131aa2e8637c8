"""Placed clients: in each round the server gives every client to a slot (Pollen, 3.1 and 4).

The results do not depend, by a bit, on where clients train: they keep nothing between rounds, and
sums do not depend on which process adds up what.
"""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.server.hosts import Hosts, Strikes
from mdgan.engine.stages.contract import ServerPath
from mdgan.engine.stages.screen import Screening
from mdgan.families.federated import messages
from mdgan.families.federated.messages import ClientReport, HostReport, RoundPlan
from mdgan.families.federated.placement import (
    Placement,
    Prediction,
    Slot,
    Strategy,
    TrainingTimes,
    place,
)
from mdgan.families.federated.server import Cohort
from mdgan.families.federated.settings import PULL, FederatedSettings
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Message

_ROUNDS_WITHOUT_A_FIT = 2
"""The first rounds, which `lb` places as `rr` does: for round t it has times up to round t − 2."""
_DECIMALS = 4


@dataclass
class _HostOrder:
    """What the server ordered a host to train, by slot, and what the host has sent since."""

    lists: list[list[int]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    report: HostReport | None = None
    models: dict[int, Tensor] = field(default_factory=dict)

    @property
    def clients(self) -> list[int]:
        return [client for clients in self.lists for client in clients]


@dataclass
class _PlacedRound:
    """A round under way."""

    plan: RoundPlan
    engine: Engine
    strategy: str
    prediction: Prediction
    answers: Answers = field(default_factory=Answers)
    failed: set[int] = field(default_factory=set)  # hosts
    slots: dict[tuple[int, int], tuple[str, list[ClientReport]]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)


class PlacedCohort(Cohort):
    """Clients that have no home: each trains in any slot."""

    def __init__(
        self, class_counts: Mapping[int, list[int]], form: AnswerForm, settings: FederatedSettings
    ) -> None:
        super().__init__(ServerPath(form))
        self._counts = dict(class_counts)
        self._settings = settings
        self._sees_all = not settings.adds_up
        self._times = TrainingTimes()
        self._asked: dict[int, _HostOrder] = {}
        self._conduct = Strikes(settings.faults.strikes)
        self._screening = Screening(form, self._conduct)
        self._num_useless = 0  # rounds in a row without models that can be used

    def handlers(self) -> Mapping[str, ServerHandler]:
        return {
            messages.TRAINED: self._hear,
            **({messages.MODELS: self._hear_models} if self._sees_all else {}),
        }

    def class_counts(self, _engine: Engine) -> dict[int, list[int]]:
        return self._counts

    @override
    def available_clients(self, _hosts: Hosts, _engine: Engine) -> tuple[Sequence[int], int]:
        clients = [client for client in self._counts if not self._conduct.is_out(client)]
        if not clients or self._num_useless >= self._settings.faults.strikes:
            raise AllWorkersLost(
                "no client's models could be used after training, "
                f"{self._settings.faults.strikes} times in a row; try smaller learning rates"
            )
        return clients, len(clients)

    @override
    def train(self, plan: RoundPlan, _hosts: Hosts, engine: Engine) -> Answers | None:
        # If a host dies, the server places its clients again within the round.
        strategy = self._settings.placing.placement
        if strategy == "lb" and plan.number < _ROUNDS_WITHOUT_A_FIT:
            strategy = "rr"
        placed = _PlacedRound(plan, engine, strategy, prediction=self._times.prediction)
        done = self._pull if strategy == PULL else self._push
        if not done(placed):
            return None
        for client, reason in self._screening.look_back().items():
            self._leave_out(client, reason, placed)
        is_useless = bool(plan.tasks) and not placed.answers.losses
        self._num_useless = self._num_useless + 1 if is_useless else 0
        fields = _recorded(placed, names_clients=self._settings.privacy.names_clients)
        engine.event("placement", plan.iteration, **fields)
        return placed.answers

    def _push(self, placed: _PlacedRound) -> bool:
        """Sends each slot a list; each host sends one sum (figure 6b). False if no host is left."""
        plan, engine = placed.plan, placed.engine
        unplaced = list(plan.tasks)
        batches = {client: task.load.iterations for client, task in plan.tasks.items()}
        strategy: Strategy = placed.strategy  # type: ignore[assignment] # not `pull`
        while unplaced:
            slots = self._slots(placed)
            if not slots:
                return False
            placement = place(strategy, unplaced, batches, slots, placed.prediction.seconds)
            asked = self._ask(plan, placement, engine)
            if len(unplaced) == len(batches):  # fits for the next round, while hosts train
                self._times.fit(plan.number - 1)
            answers = engine.collector.collect(plan.iteration, asked, self._weights(asked, plan))
            unplaced = self._take_in(asked, answers, placed)
        return True

    def _pull(self, placed: _PlacedRound) -> bool:
        """Gives each host that is done the next client (figure 6a); False if no host is left."""
        plan, engine = placed.plan, placed.engine
        busy = dict[int, list[int]]()
        queue = deque(plan.tasks)
        while queue or busy:
            first = {slot.host: slot for slot in self._slots(placed) if slot.number == 0}
            free = [slot for host, slot in first.items() if host not in busy]
            if not (free or busy):
                return False
            placement = {slot: [queue.popleft()] for slot in free[: len(queue)]}
            busy |= self._ask(plan, placement, engine)
            answers = engine.collector.next_answer(plan.iteration, self._weights(busy, plan))
            owing = engine.peers.busy()
            done = {host: ranks for host, ranks in busy.items() if host not in owing}
            queue.extendleft(self._take_in(done, answers, placed))
            busy = {host: ranks for host, ranks in busy.items() if host in owing}
        return True

    def _slots(self, placed: _PlacedRound) -> list[Slot]:
        """The slots of free hosts: those that have not failed in this round, if there are any."""
        engine = placed.engine
        hellos, slots = engine.peers.told(), list[Slot]()
        for host, ranks in engine.peers.free().items():
            offer = messages.read_offer(hellos[host])
            if not offer or ranks != [host]:
                engine.peers.drop(host, "it offers no slots for placed clients")
                engine.handle_losses()
                continue
            slots += [Slot(host, number, kind) for number, kind in enumerate(offer)]
        return [slot for slot in slots if slot.host not in placed.failed] or slots

    def _ask(self, plan: RoundPlan, placement: Placement, engine: Engine) -> dict[int, list[int]]:
        """Orders hosts to train the clients placed on them; returns them, each with its rank."""
        asked: dict[int, _HostOrder] = {}
        for slot in sorted(placement):
            of_host = asked.setdefault(slot.host, _HostOrder())
            of_host.lists.append(placement[slot])
            of_host.kinds.append(slot.kind)
        asked = {host: of_host for host, of_host in asked.items() if of_host.clients}
        self._asked |= asked
        hosts = {host: [host] for host in asked}

        def message(host: int) -> Message:
            lists = [[plan.tasks[n] for n in clients] for clients in asked[host].lists]
            return messages.order(plan.iteration, plan.models, lists)

        engine.ask(plan.iteration, hosts, message)
        return hosts

    def _weights(self, hosts: Hosts, plan: RoundPlan) -> dict[int, float]:
        """The weight of each host's sum; a host has one rank, its number."""
        return {h: sum(plan.tasks[n].weight for n in self._asked[h].clients) for h in hosts}

    def _hear(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in a host's TRAINED, which comes just before its sum."""
        report, asked = messages.read_report(message), self._asked.get(host, _HostOrder())
        clients = sorted(trained.client for trained in report.trained)
        slots_are_known = all(trained.slot < len(asked.lists) for trained in report.trained)
        if clients != sorted(asked.clients) or not (clients and slots_are_known):
            raise ValueError("it does not tell of the clients that were asked for")
        usable = {trained.client for trained in report.trained if trained.usable}
        if self._sees_all and asked.models.keys() != usable:
            raise ValueError("it has not sent the models of all its clients")
        if (member := engine.peers.member(host)) is not None:
            member.told = {"offer": message.fields["offer"]}
            asked.report = report

    def _hear_models(self, _engine: Engine, host: int, message: Message) -> None:
        """Takes in a host's MODELS of one client, which come before its TRAINED."""
        client, models = message.fields["client"], message.tensors["models"]
        asked = self._asked[host]
        if client not in asked.clients or client in asked.models:
            raise ValueError("it was not asked for this client, or has sent its models before")
        if models.shape != self.path.form.shape or models.dtype != torch.float32:
            raise ValueError(f"models of shape {list(models.shape)}, {models.dtype}")
        if not models.isfinite().all():
            raise ValueError(f"models of client {client} have NaN or Inf")
        asked.models[client] = models

    def _take_in(self, hosts: Hosts, answers: Answers, placed: _PlacedRound) -> list[int]:
        """Adds the models of hosts; returns the clients of hosts that failed, and are not late."""
        again, engine = list[int](), placed.engine
        totals = {part.workers: part.total for part in answers.sums}
        for host in hosts:
            asked, total = self._asked[host], totals.get((host,))
            if asked.report is not None and total is not None:
                self._add(host, asked.report, total, placed)
                continue
            member = engine.peers.member(host)
            if member is None or not member.owes:
                again += asked.clients
                placed.failed.add(host)
        if again:
            engine.note(f"{len(again)} client(s) are placed again")
        return again

    def _add(self, host: int, report: HostReport, total: Tensor, placed: _PlacedRound) -> None:
        plan, asked = placed.plan, self._asked[host]
        losses = {r.client: torch.tensor(r.losses) for r in report.trained if r.usable}
        placed.answers.losses.update(losses)
        if losses and not self._sees_all:
            placed.answers.sums.append(PartialSum(tuple(losses), total))
        for client, models in asked.models.items():
            placed.answers.singles[client] = models.to(plan.models.device)
            if reason := self._screening.refuse(client, models):
                self._leave_out(client, reason, placed)
        asked.models = {}
        for number, kind in enumerate(asked.kinds):
            placed.slots.setdefault((host, number), (kind, []))
        for trained in report.trained:
            placed.slots[host, trained.slot][1].append(trained)
            x = plan.tasks[trained.client].load.iterations
            self._times.observe(plan.number, asked.kinds[trained.slot], x, seconds=trained.seconds)
            if not trained.usable:
                self._conduct.refuse(trained.client)
                self._leave_out(trained.client, "NaN or Inf", placed)

    def _leave_out(self, client: int, reason: str, placed: _PlacedRound) -> None:
        """Drops a client's models, and logs why."""
        placed.answers.drop(client)
        strikes = self._conduct.strikes_of(client)
        placed.engine.note(f"models of client {client} refused: {reason} (strike {strikes})")


def _recorded(placed: _PlacedRound, *, names_clients: bool) -> dict[str, Any]:
    """The fields of the `placement` event: the seconds of slots; in some rounds also clients."""
    plan, foretells = placed.plan, placed.strategy == "lb"
    is_shown = names_clients and not str(plan.number)[1:].strip("0")

    def iterations(report: ClientReport) -> int:
        return plan.tasks[report.client].load.iterations

    def details(kind: str, trained: Sequence[ClientReport]) -> dict[str, Any]:
        seconds = placed.prediction.seconds if foretells and placed.prediction.curves else None
        batches = [iterations(report) for report in trained]
        return {
            "clients": [report.client for report in trained],
            "batches": batches,
            "begin": [round(report.begin, _DECIMALS) for report in trained],
            "seconds": [round(report.seconds, _DECIMALS) for report in trained],
            "predicted": [round(seconds(kind, x), _DECIMALS) for x in batches] if seconds else [],
        }

    return {
        "number": plan.number,
        "strategy": placed.strategy,
        "makespan": round(time.monotonic() - placed.began, _DECIMALS),
        "slots": [
            {
                "host": host,
                "slot": number,
                "kind": kind,
                "work": sum(map(iterations, trained)) if names_clients else 0,
                "busy": round(sum(report.seconds for report in trained), _DECIMALS),
                **(details(kind, trained) if is_shown else {}),
            }
            for (host, number), (kind, trained) in sorted(placed.slots.items())
        ],
        "num_slots": Counter(str(host) for host, _ in placed.slots),
        "fits": {
            kind: list(curve)
            for kind, curve in placed.prediction.curves.items()
            if foretells and is_shown
        },
    }
