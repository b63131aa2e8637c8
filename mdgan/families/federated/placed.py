"""Placed clients: each round the server says which slot trains which of them (Pollen, 3.1 and 4).

Where clients train changes no bit of what they find: they keep nothing between rounds, and sums
do not depend on who adds up what.
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
"""The first rounds, which `lb` places as `rr` does: the fit for round t knows those up to t − 2."""
_DECIMALS = 4


@dataclass
class _HostOrder:
    """The clients of each slot of a host, the slots' kinds, and what the host has told since."""

    lists: list[list[int]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    report: HostReport | None = None
    models: dict[int, Tensor] = field(default_factory=dict)

    @property
    def clients(self) -> list[int]:
        return [client for own in self.lists for client in own]


@dataclass
class _PlacedRound:
    """A round as far as it has got."""

    plan: RoundPlan
    engine: Engine
    strategy: str
    prediction: Prediction
    found: Answers = field(default_factory=Answers)
    failed: set[int] = field(default_factory=set)
    slots: dict[tuple[int, int], tuple[str, list[ClientReport]]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)


class PlacedCohort(Cohort):
    """Clients that train wherever there is room."""

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
        self._in_vain = 0

    def handlers(self) -> Mapping[str, ServerHandler]:
        return {
            messages.TRAINED: self._hear,
            **({messages.MODELS: self._hear_models} if self._sees_all else {}),
        }

    def class_counts(self, _engine: Engine) -> dict[int, list[int]]:
        return self._counts

    @override
    def able(self, _hosts: Hosts, _engine: Engine) -> tuple[Sequence[int], int]:
        able = [client for client in self._counts if not self._conduct.is_out(client)]
        if not able or self._in_vain >= self._settings.faults.strikes:
            raise AllWorkersLost(
                "no client's models could be used after training, "
                f"{self._settings.faults.strikes} times in a row; try smaller learning rates"
            )
        return able, len(able)

    @override
    def train(self, plan: RoundPlan, _hosts: Hosts, engine: Engine) -> Answers | None:
        # Clients of a host that dies are placed again within the round.
        strategy = self._settings.placing.placement
        if strategy == "lb" and plan.number < _ROUNDS_WITHOUT_A_FIT:
            strategy = "rr"
        placed = _PlacedRound(plan, engine, strategy, prediction=self._times.prediction)
        done = self._pull if strategy == PULL else self._push
        if not done(placed):
            return None
        for client, reason in self._screening.look_back().items():
            self._leave_out(client, reason, placed)
        self._in_vain = self._in_vain + 1 if plan.tasks and not placed.found.losses else 0
        fields = _recorded(placed, names_clients=self._settings.privacy.names_clients)
        engine.event("placement", plan.iteration, **fields)
        return placed.found

    def _push(self, placed: _PlacedRound) -> bool:
        """One list a slot, one sum back a host (figure 6b); False if no host is left."""
        plan, engine = placed.plan, placed.engine
        left = list(plan.tasks)
        batches = {client: task.load.iterations for client, task in plan.tasks.items()}
        strategy: Strategy = placed.strategy  # type: ignore[assignment] # not `pull`
        while left:
            slots = self._slots(placed)
            if not slots:
                return False
            placement = place(strategy, left, batches, slots, placed.prediction.seconds)
            asked = self._ask(plan, placement, engine)
            if len(left) == len(batches):  # while hosts train: for the round after this one
                self._times.fit(plan.number - 1)
            answers = engine.collector.collect(plan.iteration, asked, self._weights(asked, plan))
            left = self._take_in(asked, answers, placed)
        return True

    def _pull(self, placed: _PlacedRound) -> bool:
        """A host that is done gets the next client (figure 6a); False if no host is left."""
        plan = placed.plan
        engine = placed.engine
        busy = dict[int, list[int]]()
        queue = deque(plan.tasks)
        while queue or busy:
            first = {slot.host: slot for slot in self._slots(placed) if slot.number == 0}
            free = [slot for host, slot in first.items() if host not in busy]
            if not (free or busy):
                return False
            given = {slot: [queue.popleft()] for slot in free[: len(queue)]}
            busy |= self._ask(plan, given, engine)
            answers = engine.collector.next_answer(plan.iteration, self._weights(busy, plan))
            owing = engine.peers.busy()
            done = {host: own for host, own in busy.items() if host not in owing}
            queue.extendleft(self._take_in(done, answers, placed))
            busy = {host: own for host, own in busy.items() if host in owing}
        return True

    def _slots(self, placed: _PlacedRound) -> list[Slot]:
        """What free hosts offer now: those that have not failed in this round, if there are any."""
        engine = placed.engine
        told, slots = engine.peers.told(), list[Slot]()
        for host, ranks in engine.peers.free().items():
            offer = messages.read_offer(told[host])
            if not offer or ranks != [host]:
                engine.peers.drop(host, "it offers no slots for placed clients")
                engine.handle_losses()
                continue
            slots += [Slot(host, number, kind) for number, kind in enumerate(offer)]
        return [slot for slot in slots if slot.host not in placed.failed] or slots

    def _ask(self, plan: RoundPlan, placement: Placement, engine: Engine) -> dict[int, list[int]]:
        """Asks hosts for what is placed on them; returns them, each with its only rank."""
        asked: dict[int, _HostOrder] = {}
        for slot in sorted(placement):
            of_host = asked.setdefault(slot.host, _HostOrder())
            of_host.lists.append(placement[slot])
            of_host.kinds.append(slot.kind)
        asked = {host: of_host for host, of_host in asked.items() if of_host.clients}
        self._asked |= asked
        hosts = {host: [host] for host in asked}

        def message(host: int) -> Message:
            lists = [[plan.tasks[client] for client in own] for own in asked[host].lists]
            return messages.order(plan.iteration, plan.models, lists)

        engine.ask(plan.iteration, hosts, message)
        return hosts

    def _weights(self, hosts: Hosts, plan: RoundPlan) -> dict[int, float]:
        """What the sum of each host weighs; a host has one rank, its number."""
        clients = {host: self._asked[host].clients for host in hosts}
        return {host: sum(plan.tasks[n].weight for n in own) for host, own in clients.items()}

    def _hear(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in what a host tells of its round, just before its sum."""
        report, asked = messages.read_report(message), self._asked.get(host, _HostOrder())
        clients = sorted(each.client for each in report.trained)
        slots_are_known = all(each.slot < len(asked.lists) for each in report.trained)
        if clients != sorted(asked.clients) or not (clients and slots_are_known):
            raise ValueError("it does not tell of the clients that were asked for")
        usable = {each.client for each in report.trained if each.usable}
        if self._sees_all and asked.models.keys() != usable:
            raise ValueError("it has not sent the models of all its clients")
        if (member := engine.peers.member(host)) is not None:
            member.told = {"offer": message.fields["offer"]}
            asked.report = report

    def _hear_models(self, _engine: Engine, host: int, message: Message) -> None:
        """Takes in a client's models, which come before the report."""
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
        """Adds what hosts found; returns the clients of hosts that failed (a host may be late)."""
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
        losses = {each.client: torch.tensor(each.losses) for each in report.trained if each.usable}
        placed.found.losses.update(losses)
        if losses and not self._sees_all:
            placed.found.sums.append(PartialSum(tuple(losses), total))
        for client, models in asked.models.items():
            placed.found.singles[client] = models.to(plan.models.device)
            if reason := self._screening.refuse(client, models):
                self._leave_out(client, reason, placed)
        asked.models = {}
        for number, kind in enumerate(asked.kinds):
            placed.slots.setdefault((host, number), (kind, []))
        for each in report.trained:
            placed.slots[host, each.slot][1].append(each)
            x = plan.tasks[each.client].load.iterations
            self._times.observe(plan.number, asked.kinds[each.slot], x, seconds=each.seconds)
            if not each.usable:
                self._conduct.refuse(each.client)
                self._leave_out(each.client, "NaN or Inf", placed)

    def _leave_out(self, client: int, reason: str, placed: _PlacedRound) -> None:
        """A client's models cannot be used; it has one strike more."""
        placed.found.drop(client)
        strikes = self._conduct.strikes_of(client)
        placed.engine.note(f"models of client {client} refused: {reason} (strike {strikes})")


def _recorded(placed: _PlacedRound, *, names_clients: bool) -> dict[str, Any]:
    """The fields of the event: how long slots were busy, and in some rounds also with whom."""
    plan, foretells = placed.plan, placed.strategy == "lb"
    is_shown = names_clients and not str(plan.number)[1:].strip("0")

    def iterations(each: ClientReport) -> int:
        return plan.tasks[each.client].load.iterations

    def with_whom(kind: str, trained: Sequence[ClientReport]) -> dict[str, Any]:
        seconds = placed.prediction.seconds if foretells and placed.prediction.curves else None
        batches = [iterations(each) for each in trained]
        return {
            "clients": [each.client for each in trained],
            "batches": batches,
            "begin": [round(each.begin, _DECIMALS) for each in trained],
            "seconds": [round(each.seconds, _DECIMALS) for each in trained],
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
                "busy": round(sum(each.seconds for each in trained), _DECIMALS),
                **(with_whom(kind, trained) if is_shown else {}),
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
