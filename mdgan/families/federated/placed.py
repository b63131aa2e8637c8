"""The server's share of placement: it says which slot trains which clients, once a round.

Sani et al. 2024, "Pollen: High-throughput Federated Learning Simulation via Resource-Aware Client
Placement", sections 3.1 and 4. Where clients train changes no bit of what they find: they keep
nothing between rounds, and sums do not depend on who adds up what.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.barrier import Hosts
from mdgan.engine.server.conduct import Conduct
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.loop import AllWorkersLost
from mdgan.engine.server.screening import Screening
from mdgan.families.federated.cohort import Cohort, Round
from mdgan.families.federated.placed_messages import (
    MODELS,
    TRAINED,
    Account,
    Task,
    placed_order,
    read_offer,
    read_trained,
)
from mdgan.families.federated.placement import Placement, Slot, Strategy, place
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
        self._placement = settings.placing.placement
        self._sees_all = not settings.adds_up
        self._most_strikes = settings.faults.strikes
        self._names_clients = settings.privacy.names_clients
        self._times = TrainingTimes(settings.placing.time_window)
        self._asked: dict[int, _Asked] = {}
        self._accounts: dict[int, Account] = {}
        self._models: dict[int, dict[int, Tensor]] = {}
        self._conduct = Conduct(settings.faults.strikes)
        self._screening = Screening(form, self._conduct)
        self._in_vain = 0

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `Cohort`."""
        return {TRAINED: self._hear, **({MODELS: self._hear_models} if self._sees_all else {})}

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """See `Cohort`."""
        del engine
        return self._counts

    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """See `Cohort`; wherever there is a host, all but those whose models were often refused.

        Raises:
            AllWorkersLost: every client's models are refused.
        """
        del hosts, engine
        able = [client for client in self._counts if not self._conduct.is_out(client)]
        if not able or self._in_vain >= self._most_strikes:
            raise AllWorkersLost(
                "no client's models could be used after training, "
                f"{self._most_strikes} times in a row; try smaller learning rates"
            )
        return able, len(able)

    def mean_shard_size(self, engine: Engine) -> float:
        """See `Cohort`."""
        del engine
        return fmean(map(sum, self._counts.values()))

    def train(self, wanted: Round, hosts: Hosts, engine: Engine) -> Answers | None:
        """See `Cohort`; what hosts that die were asked for is placed again within the round."""
        del hosts  # some may die, others come
        strategy = self._strategy(wanted.number)
        trial = _Trial(
            wanted,
            PlacementRecord(
                wanted,
                strategy,
                self._times if strategy == "lb" else None,
                names_clients=self._names_clients,
            ),
            Answers(),
            set(),
        )
        if not (self._pull if strategy == PULL else self._push)(trial, engine):
            return None
        for client, reason in self._screening.look_back().items():
            self._leave_out(client, reason, trial, engine)
        self._in_vain = self._in_vain + 1 if wanted.loads and not trial.found.losses else 0
        engine.observer.event("placement", wanted.iteration, **trial.record.fields())
        return trial.found

    def _push(self, trial: "_Trial", engine: Engine) -> bool:
        """One list a slot, one sum back a host (figure 6b); False if no host is left."""
        wanted = trial.wanted
        left = list(wanted.loads)
        batches = {client: load.iterations for client, load in wanted.loads.items()}
        strategy: Strategy = self._strategy(wanted.number)  # type: ignore[assignment] # not `pull`
        while left:
            slots = self._slots(trial, engine)
            if not slots:
                return False
            asked = self._ask(
                wanted, place(strategy, left, batches, slots, self._times.seconds), engine
            )
            if len(left) == len(batches):  # while hosts train: for the round after this one
                self._times.fit(wanted.number - 1)
            answers = engine.barrier.collect(wanted.iteration, asked, self._weights(asked, wanted))
            left = self._take_in(asked, answers, trial, engine)
        return True

    def _pull(self, trial: "_Trial", engine: Engine) -> bool:
        """A host that is done gets the next client (figure 6a); False if no host is left."""
        wanted, busy = trial.wanted, dict[int, list[int]]()
        queue = deque(wanted.loads)
        while queue or busy:
            first = {slot.host: slot for slot in self._slots(trial, engine) if slot.number == 0}
            free = [slot for host, slot in first.items() if host not in busy]
            if not (free or busy):
                return False
            given = {slot: [queue.popleft()] for slot in free[: len(queue)]}
            busy |= self._ask(wanted, given, engine)
            answers = engine.arrivals.next(wanted.iteration, self._weights(busy, wanted))
            owing = engine.members.busy()
            done = {host: own for host, own in busy.items() if host not in owing}
            queue.extendleft(self._take_in(done, answers, trial, engine))
            busy = {host: own for host, own in busy.items() if host in owing}
        return True

    def _strategy(self, number: int) -> str:
        unfitted = self._placement == "lb" and number < _ROUNDS_WITHOUT_A_FIT
        return "rr" if unfitted else self._placement

    def _slots(self, trial: "_Trial", engine: Engine) -> list[Slot]:
        """What free hosts offer now: those that have not failed in this round, if there are any."""
        told, slots = engine.members.told(), list[Slot]()
        for host, ranks in engine.members.free().items():
            offer = read_offer(told[host])
            if offer is None or ranks != [host]:
                engine.desk.drop(host, "it offers no slots for clients without a home")
                continue
            slots += [Slot(host, number, kind) for number, kind in enumerate(offer.kinds)]
        return [slot for slot in slots if slot.host not in trial.failed] or slots

    def _ask(self, wanted: Round, placement: Placement, engine: Engine) -> dict[int, list[int]]:
        """Asks hosts for what is placed on them; returns them, each with its only rank."""
        asked: dict[int, _Asked] = {}
        for slot in sorted(placement):
            of_host = asked.setdefault(slot.host, _Asked([], []))
            of_host.lists.append(placement[slot])
            of_host.kinds.append(slot.kind)
        asked = {host: of_host for host, of_host in asked.items() if any(of_host.lists)}
        for host in asked:
            self._accounts.pop(host, None)
            self._models[host] = {}
        self._asked |= asked
        hosts = {host: [host] for host in asked}
        engine.ask(wanted.iteration, hosts, lambda host: _order(wanted, asked[host].lists))
        return hosts

    def _weights(self, hosts: Hosts, wanted: Round) -> dict[int, float]:
        """What the sum of each host weighs; a host has one rank, its number."""
        return {
            host: sum(wanted.weights[client] for client in self._asked[host].clients())
            for host in hosts
        }

    def _hear(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in what a host tells of its round, just before its sum.

        Raises:
            ValueError: it is malformed, or not of the clients that the host was asked for.
        """
        member, account = engine.members.member(host), read_trained(message)
        clients = sorted(trained.client for trained in account.trained)
        if host not in self._asked or clients != sorted(self._asked[host].clients()):
            raise ValueError("it does not tell of the clients that were asked for")
        usable = {each.client for each in account.trained if each.usable}
        if self._sees_all and self._models.get(host, {}).keys() != usable:
            raise ValueError("it has not sent the models of all its clients")
        if member is not None:
            member.told = {"offer": message.fields["offer"]}
            self._accounts[host] = account

    def _hear_models(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in a client's models, which come before the account.

        Raises:
            KeyError, ValueError: they are malformed, or of no client that the host was asked for.
        """
        del engine
        client, models = message.fields["client"], message.tensors["models"]
        if client not in self._asked[host].clients() or client in self._models[host]:
            raise ValueError("it was not asked for this client, or has sent its models before")
        if models.shape != self.form.shape or models.dtype != torch.float32:
            raise ValueError(f"models of shape {list(models.shape)}, {models.dtype}")
        if not models.isfinite().all():
            raise ValueError(f"models of client {client} have NaN or Inf")
        self._models[host][client] = models

    def _take_in(
        self, hosts: Hosts, answers: Answers, trial: "_Trial", engine: Engine
    ) -> list[int]:
        """Adds what hosts found; returns the clients of those that gave nothing that can be used.

        Clients of a host that is only late are not among them: the round goes on without.
        """
        again: list[int] = []
        totals = {part.workers: part.total for part in answers.sums}
        for host in hosts:
            account, total = self._accounts.get(host), totals.get((host,))
            if account is not None and total is not None:
                self._count(host, account, total, trial, engine)
                continue
            member = engine.members.member(host)
            if member is None or not member.owes:
                again += self._asked[host].clients()
                trial.failed.add(host)
        if again:
            engine.observer.note(f"{len(again)} client(s) are placed again")
        return again

    def _count(
        self, host: int, account: Account, total: Tensor, trial: "_Trial", engine: Engine
    ) -> None:
        """Adds what one host found."""
        wanted, kinds = trial.wanted, self._asked[host].kinds
        losses = {each.client: torch.tensor(each.losses) for each in account.trained if each.usable}
        trial.found.losses.update(losses)
        if losses and not self._sees_all:
            trial.found.sums.append(PartialSum(tuple(losses), total))
        for client, models in self._models.pop(host).items():
            trial.found.singles[client] = models.to(wanted.models.device)
            if reason := self._screening.refuse(client, models):
                self._leave_out(client, reason, trial, engine)
        trial.record.note(host, kinds, account.trained)
        for each in account.trained:
            kind = kinds[min(each.slot, len(kinds) - 1)]
            x = wanted.loads[each.client].iterations
            self._times.observe(wanted.number, kind, x, each.seconds)
            if not each.usable:
                self._conduct.refuse(each.client)
                self._leave_out(each.client, "NaN or Inf", trial, engine)

    def _leave_out(self, client: int, reason: str, trial: "_Trial", engine: Engine) -> None:
        """A client's models cannot be used; it has one strike more."""
        trial.found.drop(client)
        strikes = self._conduct.strikes_of(client)
        engine.observer.note(f"models of client {client} refused: {reason} (strike {strikes})")


class _Trial(NamedTuple):
    """A round as far as it has got.

    Attributes:
        wanted: what is to be trained.
        record: who trained what where.
        found: what was found.
        failed: the hosts that gave nothing for what they were asked.
    """

    wanted: Round
    record: PlacementRecord
    found: Answers
    failed: set[int]


class _Asked(NamedTuple):
    """What a host was asked for.

    Attributes:
        lists: of clients, for each slot that the host offered.
        kinds: of these slots.
    """

    lists: list[list[int]]
    kinds: list[str]

    def clients(self) -> list[int]:
        """All of them, in no order that matters."""
        return [client for own in self.lists for client in own]


def _order(wanted: Round, lists: Sequence[Sequence[int]]) -> Message:
    """What a host is asked: to train these clients in these slots."""
    tasks = [
        [Task(client, wanted.loads[client], wanted.weights[client]) for client in own]
        for own in lists
    ]
    return placed_order(wanted.iteration, wanted.models, tasks)
