"""A host in a ring: its replica has optimizers, and takes the same steps as the server's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from mdgan.engine.parts import HostHandler
from mdgan.families.data_parallel.host import LocalGradients, StarEnd
from mdgan.families.data_parallel.messages import TrainQuestion
from mdgan.families.data_parallel.reference_replica import ReferenceReplica
from mdgan.families.data_parallel.replica import ALL, Replica
from mdgan.families.data_parallel.ring_messages import (
    PLACES,
    RING,
    SUM,
    behind,
    done,
    member,
    norms,
)
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.optimizer_settings import Policy
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.collective import Collective
from mdgan.transport.host_end import HostTransport


class RingMember(StarEnd):
    """A host's part in the ring; its first replica's networks step, and the others follow them."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        policies: Mapping[str, Policy],
        sums: Sums,
        tracer: Tracer,
    ) -> None:
        first, *self._others = replicas
        self._replica = ReferenceReplica(first.models, policies)
        self._sums = sums
        self._tracer = tracer
        self._collective: Collective | None = None
        self._num_threads = 1
        self._question: TrainQuestion | None = None
        self._local: LocalGradients = {}
        self._has_missed = False
        """Whether the last sum did not come, so that nothing changed."""

    def handlers(self) -> Mapping[str, HostHandler]:
        """See `StarEnd`."""
        return {RING: self._join, PLACES: self._connect, SUM: self._add_up}

    def refusal(self, iteration: int, question: TrainQuestion) -> Message | None:
        """BEHIND if the server believes that this host has stepped, and it has not.

        If a question comes again, the server has not stepped either.
        """
        comes_whole = question.tensors.keys() >= set(ALL)
        self._has_missed &= not (question.is_again or comes_whole)
        return behind(iteration) if self._has_missed else None

    def known(self, question: TrainQuestion) -> LocalGradients | None:
        """See `StarEnd`."""
        has_all = question.shares.keys() <= self._local.keys()
        return self._local if question.is_again and has_all else None

    def answer(self, iteration: int, question: TrainQuestion, local: LocalGradients) -> Message:
        """See `StarEnd`; keeps what was found until the server says what becomes of it."""
        self._local = local
        if question.rates is None:
            return super().answer(iteration, question, local)
        self._question = question
        for name, moments in question.moments.items():
            self._replica.load_moments(name, moments)
        gradients = {rank: local[rank][0] for rank in question.shares}
        losses = {rank: local[rank][1] for rank in question.shares}
        return norms(iteration, question.reduction, gradients, losses)

    def _join(self, message: Message, transport: HostTransport) -> None:
        rank, size = int(message.fields["rank"]), int(message.fields["size"])
        self._num_threads = int(message.fields["threads"])
        if self._collective is not None:
            self._collective.close()
        self._collective = Collective(rank, size, transport.own_address)
        transport.send(member(message.iteration, place=self._collective.place.hex()))
        transport.send(done(message.iteration))

    def _connect(self, message: Message, transport: HostTransport) -> None:
        by_rank = [bytes.fromhex(place) for place in message.fields["places"]]
        connected = self._collective is not None and self._collective.connect(by_rank)
        transport.send(member(message.iteration, connected=connected))
        transport.send(done(message.iteration))

    def _add_up(self, message: Message, transport: HostTransport) -> None:
        weights = {int(n): float(weight) for n, weight in message.fields["weights"].items()}
        self._has_missed = not self._step(message.iteration, weights)
        if message.fields["digest"]:
            report = {} if self._has_missed else {"digest": self._replica.digest()}
            transport.send(member(message.iteration, **report))
            transport.send(done(message.iteration))

    def _step(self, iteration: int, weights: Mapping[int, float]) -> bool:
        """Adds up and steps; False if the sum did not come, and nothing changed."""
        question = self._question
        if self._collective is None or question is None or question.rates is None:
            return False
        reduction = question.reduction
        vectors = {n: self._local[n][0] for n in question.shares if n in weights}
        with self._tracer.span("reduce"):
            sums = self._sums.addends(self._replica.vector(reduction), vectors, weights)
            mean = self._sums.mean(sums, weights) if self._collective.add_up(*sums) else None
        if mean is None:
            return False
        with self._tracer.span("step"), _threads(self._num_threads):
            self._replica.at(iteration, question.rates)
            self._replica.put(reduction, *mean)
            self._replica.step(reduction)
        changed = {name: self._replica.weights(name) for name in reduction.changed if self._others}
        for replica in self._others:
            replica.take_over(changed)
        return True


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Computes with a number of threads."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
