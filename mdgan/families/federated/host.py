"""A host of FL-GAN and FeGAN: it trains its own clients, or placed clients in slots (Pollen, 6b).

A client trains by `Client.train` of `round.py`. With `--vectorize` clients with equal loads train
at once, unless their networks rule that out.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from math import exp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdgan.engine.host.loop import HostFailed
from mdgan.engine.host.protocol import ARRIVED, OutOfTurn, Per, Turn, sensible
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.families.contract import HostNeeds, NothingKept
from mdgan.families.federated import messages
from mdgan.families.federated.concurrency import SlotCount
from mdgan.families.federated.messages import LEAST_PART, ClientTask, Load, check_weights
from mdgan.families.federated.poisson_rounds import CHARGE, update
from mdgan.families.federated.round import Client, divergence_score
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.slots import Slots, SlotsDied
from mdgan.families.federated.training_load import capabilities
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.stacked_learners import StackedGANs
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport

_log = logging.getLogger(__name__)

LEAST_AT_ONCE = 8
"""Fewer clients are faster one by one (`python -m benchmarks.vectorized --algorithm fl-gan`)."""
MOST_AT_ONCE = 32  # clients of a group: more need memory, and are hardly faster


@dataclass
class LocalTraining:
    """Trains clients one by one or in groups, in the host's process or in a slot.

    `begin` makes a client, from its number, its place in the group, and the round's last iteration.
    """

    settings: FederatedSettings
    device: torch.device
    begin: Callable[[int, int, int], Client]
    num_samples: Callable[[int], int]
    span: Callable[[int], AbstractContextManager[object]] = lambda _client: nullcontext()

    def __post_init__(self) -> None:
        self._most = MOST_AT_ONCE if self.settings.vectorize else 1
        self._worked = False
        if self.settings.vectorize and (why := _why_not_at_once(self.settings)):
            self._train_singly(why)

    def train(
        self, tasks: Sequence[ClientTask], sent: Tensor, iteration: int
    ) -> Iterator[list[tuple[ClientTask, Tensor, Tensor]]]:
        """Trains clients, group by group, from the models that the server has sent.

        Yields:
            After each group, for each client: its task; what it sends, float32
            `ModelVector.shape`; and J_disc and J_gen, float32 [2].
        """
        sent = sent.to(self.device)
        for group in self.groups(tasks):
            with ExitStack() as spans:
                for task in group:
                    spans.enter_context(self.span(task.client))
                clients = [self.begin(task.client, n, iteration) for n, task in enumerate(group)]
                trained = self._train_group(clients, sent, group[0].load, last=iteration)
            vector = clients[0].vector
            yield [
                (task, *sent_by(self.settings, vector, sent, *models_and_losses))
                for task, models_and_losses in zip(group, trained, strict=True)
            ]

    def groups(self, tasks: Sequence[ClientTask]) -> list[list[ClientTask]]:
        """Groups of clients with equal iterations and batch sizes; too few of them train singly."""
        if self._most == 1:
            return [[task] for task in tasks]
        alike: dict[tuple[int, int], list[ClientTask]] = {}
        for task in tasks:
            batch_size = min(task.load.batch_size, self.num_samples(task.client))
            alike.setdefault((task.load.iterations, batch_size), []).append(task)
        groups = []
        for equal in alike.values():  # into few groups, whose sizes differ by one at most
            most = self._most if len(equal) >= LEAST_AT_ONCE else 1
            parts = np.array_split(range(len(equal)), -(-len(equal) // most))
            groups += [[equal[n] for n in part] for part in parts]
        return groups

    def _train_group(
        self, clients: Sequence[Client], models: Tensor, load: Load, last: int
    ) -> list[tuple[Tensor, Tensor]]:
        if len(clients) > 1 and self._most > 1:
            try:
                results = train_at_once(clients, models, load, last, rehearses=not self._worked)
            except CannotStack as reason:
                self._train_singly(str(reason))
            else:
                self._worked = True
                return results
        return [each.train(models, load.iterations, load.batch_size, last) for each in clients]

    def _train_singly(self, why: str) -> None:
        _log.warning("clients train one after another: %s", why)
        self._most = 1


def train_at_once(
    clients: Sequence[Client], models: Tensor, load: Load, last: int, *, rehearses: bool
) -> list[tuple[Tensor, Tensor]]:
    """`Client.train` of several clients at once; `StackedGANs` says what differs.

    The clients keep nothing of earlier rounds, and clip no gradients. `rehearses`: tries it first.

    Raises:
        CannotStack: these clients must train one after another.
    """
    for client in clients:
        client.begin(models, load.batch_size)
    gans = [client.gan for client in clients]
    stack, losses = StackedGANs(gans), []
    if rehearses:
        stack.rehearse()
    stack.adopt()
    for i in range(max(0, last - load.iterations) + 1, max(load.iterations, last) + 1):
        for gan in gans:
            gan.at(i)
        losses.append(stack.step())
    means = torch.stack(losses).mean(0)
    return [(client.vector.read(), mean) for client, mean in zip(clients, means, strict=True)]


def sent_by(
    settings: FederatedSettings, vector: ModelVector, begun: Tensor, trained: Tensor, losses: Tensor
) -> tuple[Tensor, Tensor]:
    """What a client sends: models, or their change since it began; under privacy, cut to C."""
    if settings.rounds.sampling == "poisson":
        losses = losses if settings.privacy.discloses_losses else torch.zeros_like(losses)
        clip = settings.privacy.update_clip
        return update(begun, trained, vector.num_weight_blocks, clip), losses
    return (trained if str(settings.wire.models) == "fp32" else trained - begun), losses


def _why_not_at_once(settings: FederatedSettings) -> str:
    """Why clients cannot train at once with these settings; empty if they can."""
    if settings.training.arithmetic.compile:
        return "compiled models are called one by one"
    policies = map(settings.training.policy, ("generator", "discriminator"))
    if any(policy.clip_norm is not None for policy in policies):
        return "gradients are clipped one client at a time"
    return ""


@dataclass(eq=False)
class FederatedHost(HostPart):
    """A host whose clients live on it: the devices of Guerraoui et al. 2020, section 3.2."""

    needs: HostNeeds[FederatedSettings]
    clients: Mapping[int, Client]
    path: HostPath = field()
    training: LocalTraining
    # By client, the samples of each class; empty unless clients weigh their models in secret.
    classes: Mapping[int, Sequence[int]] = field(default_factory=dict)
    begins = messages.ROUND

    def __post_init__(self) -> None:
        # The server repeats a round that it has aborted, or whose sum it could not open.
        many = 1000 if self.needs.settings.rounds.on_deadline == "abort" else 100
        self.rules = {messages.ROUND: Turn(most=many, above={messages.ROUND: 0})}
        if self.classes:  # two sums over different hosts would show what one host holds
            self.rules[messages.ASKCLASSES] = Turn(ARRIVED, 1, Per.PROCESS)
        self.learners = self.clients
        self._last = 0, b""
        self._total: list[int] | None = None
        self._spending = Spending(self.needs.budgets)

    def handlers(self) -> Mapping[str, HostHandler]:
        counting = {messages.ASKCLASSES: self._tell_classes} if self.classes else {}
        return {messages.ROUND: self._train, CHARGE: self._charge, **counting}

    def tell(self) -> dict[str, Any]:
        needs, account = self.needs, self.needs.account
        able = capabilities(self.clients, needs.settings, needs.models, needs.num_workers_here)
        return {**able, **({} if account is None else account.tell())}

    def close(self) -> None:
        """Closes the privacy account of the clients' samples."""
        if self.needs.account is not None:
            self.needs.account.close()

    def _tell_classes(self, question: Message, transport: HostTransport) -> None:
        """Answers ASKCLASSES: how many samples of each class the clients hold, in a secure sum."""
        form = messages.CLASSES_FORM
        counts = {n: torch.zeros(form.shape).double() for n in self.classes}
        for n, held in self.classes.items():
            counts[n][: len(held)] = torch.tensor(held).double()
        about = sha256(b"classes").digest()
        transport.send(self.path.pack(Leaving.in_one_sum(question, counts, about, form=form)))

    def _charge(self, about: Message, _transport: HostTransport) -> None:
        if self.needs.account is not None:
            self.needs.account.begin_round(about.fields)

    def _check_again(self, iteration: int, models: Tensor) -> None:
        """Refuses a repeated round with other models: its clients train on the same batches."""
        before, self._last = self._last, (iteration, sha256(models.numpy().tobytes()).digest())
        if before[0] == iteration and before != self._last:
            raise OutOfTurn(f"it orders the round of iteration {iteration} with other models")

    def _train(self, order: Message, transport: HostTransport) -> None:
        with sensible(messages.ROUND):
            shape = next(iter(self.clients.values())).vector.shape
            begun_with, lists = messages.read_order(order, shape)
            total = messages.read_classes(order) if self.classes else []
        if self._total not in (None, total):  # two totals would show a client's classes
            raise OutOfTurn("it tells of other classes of all clients than before")
        self._total = total
        if self.needs.settings.begins_anew:
            self._check_again(order.iteration, begun_with)
        asked = [task for tasks_of_slot in lists for task in tasks_of_slot]
        tasks = dict[int, ClientTask]()
        for task in asked:
            if task.client in self.clients and self._spending.lets(task.client):
                most = self._spending.most(task.client, task.load.iterations)
                tasks[task.client] = task._replace(load=replace(task.load, iterations=most))
        if not tasks:  # the server asked before it knew that budgets are spent
            return
        ending = self._spending.ending({n: task.load.iterations for n, task in tasks.items()})
        groups = self.training.train(list(tasks.values()), begun_with, order.iteration)
        sent_by_client = {task.client: both for group in groups for task, *both in group}
        trained, losses = ({rank: sent_by_client[rank][n] for rank in tasks} for n in (0, 1))
        weights = {task.client: task.weight for task in asked}
        settings, account = self.needs.settings, self.needs.account
        if settings.shares_noise:
            assert account is not None, "clients that hide have an account"
            clip, sharers = settings.privacy.clip, self.path.num_sharers(order)
            trained = account.with_part_of_noise(trained, clip, sharers)
        uniform = settings.rounds.weighting == "uniform"
        part = 1.0
        secret = dict[int, float]()
        if self.classes:
            part = LEAST_PART
            trained = {n: messages.with_weight(x) for n, x in trained.items()}
            secret = {n: own_weight(tasks[n].weight, self.classes[n], total) for n in trained}
        leaving = Leaving(
            order,
            trained,
            losses,
            groups=dict.fromkeys(trained, 0),  # the host adds up three or more
            weights={**weights, **secret},
            about=lambda: {0: messages.digest_of(order)},
            check=partial(check_weights, weights=weights, uniform=uniform, least_part=part),
        )
        with self.needs.tracer.span("send") as span:
            answer = self.path.pack(leaving)
            ending.tell(order.iteration, transport.send)
            span.num_bytes = transport.send(answer)


def own_weight(sent: float, held: Sequence[int], total: Sequence[int]) -> float:
    """v_k: the weight that the server has sent, times e^(−s_k) (FeGAN, 3.2 and 3.3).

    A client that has joined since the start may hold more of a class than `total` says.
    """
    at_least = [max(counts) for counts in zip_longest(held, total, fillvalue=0)]
    return sent * exp(-divergence_score(held, at_least))


@dataclass(eq=False)
class PlacedHost(HostPart):
    """A host that trains lists of placed clients in its slots, and sends the sum of models."""

    rank: int
    slots: Slots
    count: SlotCount
    num_clients: int
    tracer: Tracer
    begins = messages.ROUND

    def __post_init__(self) -> None:
        self.learners = {self.rank: NothingKept()}

    def handlers(self) -> Mapping[str, HostHandler]:
        return {messages.ROUND: self._train}

    def tell(self) -> dict[str, Any]:
        return {"offer": self.count.offer()}

    def memory_bytes(self) -> int:
        return self.slots.memory_bytes()

    def close(self) -> None:
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
        if all(lists):  # with an idle slot the round does not show what one more slot is worth
            self.count.note(amount, time.monotonic() - begin, self.slots.bytes_each)
        report = messages.HostReport(work.trained, self.count.offer())
        with self.tracer.span("send") as span:
            i = order.iteration
            for client, x in work.models.items():
                fields = {"client": client}
                message = Message(messages.MODELS, i, fields, tensors={"models": x})
                span.num_bytes += transport.send(message)
            span.num_bytes += transport.send(messages.report_message(i, report))
            update = messages.sum_message(i, self.rank, work.total, reports=work.trained)
            span.num_bytes += transport.send(update)
