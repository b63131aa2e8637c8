"""A host that adds up gradients with others: it has optimizers, and takes the server's steps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from mdgan.engine.parts import HostHandler
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.collective import Collective
from mdgan.families.data_parallel.messages import ADD_UP, CONNECT, JOIN, STEP, arithmetic, done
from mdgan.families.data_parallel.replica import ReferenceReplica, Replica
from mdgan.families.data_parallel.step import Reduction
from mdgan.gan.optimizer_settings import Policy
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


@dataclass(eq=False)
class DirectHost:
    """A host as a member of the group.

    The networks of its first worker have optimizers, and the other workers follow them.
    """

    replicas: Mapping[int, Replica]  # by worker, at least one
    policies: Mapping[str, Policy]  # how each network is optimized
    device: torch.device
    tracer: Tracer

    def __post_init__(self) -> None:
        first, *self._others = self.replicas.values()
        self._own = ReferenceReplica(first.models, self.policies)
        self._collective: Collective | None = None
        self._reduction: Reduction | None = None
        self._mean: Tensor | None = None
        self.found: Mapping[int, Tensor] = {}  # these gradients, until they have been used
        # With the gradients that were found last, by worker, float32 [2].
        self.losses: Mapping[int, Tensor] = {}

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {JOIN: self._join, CONNECT: self._connect, ADD_UP: self._add_up, STEP: self._step}

    def begin(self, question: messages.TrainQuestion) -> None:
        """Takes over what the optimizers keep, if it comes with a question."""
        for name, moments in question.moments.items():
            self._own.load_moments(name, moments)

    def keep(
        self, reduction: Reduction, found: Mapping[int, Tensor], losses: Mapping[int, Tensor]
    ) -> None:
        """Keeps what the host's workers have found, until the server says what becomes of it."""
        self._reduction, self.found, self.losses, self._mean = reduction, found, losses, None

    def close(self) -> None:
        """Leaves the group."""
        if self._collective is not None:
            self._collective.close()

    def _join(self, message: Message, transport: HostTransport) -> None:
        rank, size = int(message.fields["rank"]), int(message.fields["size"])
        self.close()
        self._collective = Collective(rank, size, transport.own_address)
        place = self._collective.place
        steps = arithmetic(self.device)
        transport.send(messages.member(message.iteration, place, steps))
        transport.send(done(message.iteration, list(self.replicas), well=bool(place)))

    def _connect(self, message: Message, transport: HostTransport) -> None:
        places = [bytes.fromhex(place) for place in message.fields["places"]]
        well = self._collective is not None and self._collective.connect(places)
        transport.send(done(message.iteration, list(self.replicas), well=well))

    def _add_up(self, message: Message, transport: HostTransport) -> None:
        if self._collective is not None and self._reduction is not None:
            with self.tracer.span("aggregate"):
                like = self._own.vector(self._reduction)
                counted = messages.read_add_up(message)
                self._mean = self._collective.mean(like, counted, self.found)
        well = self._mean is not None
        transport.send(done(message.iteration, list(self.replicas), well=well))

    def _step(self, message: Message, _transport: HostTransport) -> None:
        reduction, mean = self._reduction, self._mean
        if reduction is None or mean is None:
            raise ValueError("told to step without a mean")
        self.found, self._mean = {}, None
        rates = {name: float(rate) for name, rate in message.fields["rates"].items()}
        with self.tracer.span("step"), _threads(int(message.fields["threads"])):
            self._own.at(message.iteration, rates)
            self._own.step(reduction, mean)
        changed = {name: self._own.weights(name) for name in reduction.changed if self._others}
        for replica in self._others:
            replica.take_over(changed)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
