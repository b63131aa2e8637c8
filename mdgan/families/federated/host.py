"""The hosts' share: each trains its own clients, or placed ones in slots (Pollen, 6b)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

from torch import Tensor

from mdgan.engine.host.loop import HostFailed
from mdgan.engine.host.protocol import OutOfTurn, Turn, sensible
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.families.contract import HostNeeds, NothingKept
from mdgan.families.federated import messages
from mdgan.families.federated.averaging import check_weights
from mdgan.families.federated.concurrency import SlotCount
from mdgan.families.federated.fl_gan import Client, LocalTraining
from mdgan.families.federated.poisson_rounds import CHARGE
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.slots import Slots, SlotsDied
from mdgan.families.federated.training_load import capabilities
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport


@dataclass(eq=False)
class FederatedHost(HostPart):
    """The devices of FL-GAN and FeGAN (Guerraoui et al. 2020, section 3.2) on one host."""

    needs: HostNeeds[FederatedSettings]
    clients: Mapping[int, Client]
    path: HostPath = field()
    training: LocalTraining
    begins = messages.ROUND

    def __post_init__(self) -> None:
        # A round that was aborted, or of which no sum could be opened, comes again.
        many = 1000 if self.needs.settings.rounds.on_deadline == "abort" else 100
        self.rules = {messages.ROUND: Turn(most=many, above={messages.ROUND: 0})}
        self._last = 0, b""
        self._spending = Spending(self.needs.budgets)

    @property
    def learners(self) -> Mapping[int, Client]:
        """By rank."""
        return self.clients

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {messages.ROUND: self._train, CHARGE: self._charge}

    def tell(self) -> dict[str, Any]:
        """What the server wants to know of these clients."""
        needs, account = self.needs, self.needs.account
        able = capabilities(self.clients, needs.settings, needs.models, needs.num_workers_here)
        return {**able, **({} if account is None else account.tell())}

    def close(self) -> None:
        """The account of the clients' samples is exact."""
        if self.needs.account is not None:
            self.needs.account.close()

    def _charge(self, about: Message, _transport: HostTransport) -> None:
        if self.needs.account is None:
            return
        self.needs.account.begin_round(about.fields)

    def _check_again(self, iteration: int, models: Tensor) -> None:
        """Clients that begin anew train on the same batches again; so the models are the same."""
        before, self._last = self._last, (iteration, sha256(models.numpy().tobytes()).digest())
        if before[0] == iteration and before != self._last:
            raise OutOfTurn(f"it orders the round of iteration {iteration} with other models")

    def _train(self, order: Message, transport: HostTransport) -> None:
        with sensible(messages.ROUND):
            begun_with, lists = messages.read_order(order, self.path.form.shape)
        if self.needs.settings.begins_anew:
            self._check_again(order.iteration, begun_with)
        asked = [task for own in lists for task in own]
        tasks = {
            task.client: task._replace(
                load=replace(
                    task.load, iterations=self._spending.most(task.client, task.load.iterations)
                )
            )
            for task in asked
            if task.client in self.clients and self._spending.lets(task.client)
        }
        if not tasks:  # asked before the server knew
            return
        ending = self._spending.ending({n: task.load.iterations for n, task in tasks.items()})
        groups = self.training.train(list(tasks.values()), begun_with, order.iteration)
        found = {task.client: (sent, losses) for group in groups for task, sent, losses in group}
        trained, losses = ({rank: found[rank][n] for rank in tasks} for n in (0, 1))
        weights = {task.client: task.weight for task in asked}
        settings, account = self.needs.settings, self.needs.account
        if settings.shares_noise:
            assert account is not None, "clients that hide have an account"
            clip, sharers = settings.privacy.clip, self.path.num_sharers(order)
            trained = account.with_part_of_noise(trained, clip, sharers)
        uniform = settings.rounds.weighting == "uniform"
        with self.needs.tracer.span("send") as span:
            answer = self.path.pack(
                Leaving(
                    order,
                    trained,
                    losses,
                    dict.fromkeys(trained, 0),  # three or more are added up
                    weights=weights,
                    about=lambda: {0: messages.digest_of(order)},
                    check=partial(check_weights, weights=weights, uniform=uniform),
                )
            )
            ending.tell(order.iteration, transport.send)
            span.num_bytes = transport.send(answer)


@dataclass(eq=False)
class PlacedHost(HostPart):
    """Trains lists of any clients in its slots, and sends their sum."""

    rank: int
    slots: Slots
    count: SlotCount
    num_clients: int
    tracer: Tracer
    begins = messages.ROUND

    @property
    def learners(self) -> Mapping[int, NothingKept]:
        """By rank."""
        return {self.rank: NothingKept()}

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {messages.ROUND: self._train}

    def tell(self) -> dict[str, Any]:
        """The slots that it offers for the next round."""
        return {"offer": self.count.offer()}

    def memory_bytes(self) -> int:
        """What its slots hold."""
        return self.slots.memory_bytes()

    def close(self) -> None:
        """Ends its slots."""
        self.slots.close()

    def _train(self, order: Message, transport: HostTransport) -> None:
        with sensible(messages.ROUND):
            models, lists = messages.read_order(order, self.slots.shape, self.num_clients)
        begin = time.monotonic()
        with self.tracer.span("train"):
            try:
                work = self.slots.train(lists, models, order.iteration)
            except SlotsDied as error:
                raise HostFailed(f"rank {self.rank}: {error}") from error
        amount = sum(task.load.iterations for tasks in lists for task in tasks)
        if all(lists):  # an idle slot says nothing of what one more is worth
            self.count.note(amount, time.monotonic() - begin, self.slots.bytes_each)
        report = messages.HostReport(work.trained, self.count.offer())
        with self.tracer.span("send") as span:
            i = order.iteration
            for client, found in work.models.items():
                span.num_bytes += transport.send(messages.models_message(i, client, found))
            span.num_bytes += transport.send(messages.report_message(i, report))
            update = messages.sum_message(i, self.rank, work.total, work.trained)
            span.num_bytes += transport.send(update)
