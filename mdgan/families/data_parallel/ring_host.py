"""A host in a ring: its replica has optimizers, and takes the same steps as the server's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from mdgan.engine.parts import HostHandler
from mdgan.families.data_parallel.messages import ForRing, is_again, read_weights
from mdgan.families.data_parallel.reference_replica import ReferenceReplica
from mdgan.families.data_parallel.replica import ALL, Reduction, Replica
from mdgan.families.data_parallel.ring_messages import PLACES, RING, SUM, done, member
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.optimizer_settings import Policy
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.collective import Collective
from mdgan.transport.host_end import HostTransport


class RingMember:
    """A host's part in the ring.

    Args:
        own: steps; its networks are those of one of the workers.
        others: the replicas of the host's other workers, which follow it.
        sums: what is added up.
        tracer: records what the host does when.

    Attributes:
        has_missed: whether the last sum did not come, so that nothing changed.
    """

    def __init__(
        self, own: ReferenceReplica, others: Sequence[Replica], sums: Sums, tracer: Tracer
    ) -> None:
        self._own = own
        self._others = others
        self._sums = sums
        self._tracer = tracer
        self._collective: Collective | None = None
        self._num_threads = 1
        self._rates: Mapping[str, float] = {}
        self._reduction: Reduction | None = None
        self.has_missed = False
        self._found: Mapping[int, Tensor] = {}

    @classmethod
    def of(
        cls,
        replicas: Sequence[Replica],
        policies: Mapping[str, Policy],
        sums: Sums,
        tracer: Tracer,
    ) -> "RingMember":
        """The part of a host whose workers have these replicas; the first one's networks step.

        Args:
            replicas: at least one.
            policies: how each network is optimized.
            sums: what is added up.
            tracer: records what the host does when.
        """
        first, *others = replicas
        return cls(ReferenceReplica(first.models, policies), others, sums, tracer)

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {RING: self._join, PLACES: self._connect, SUM: self._add_up}

    def keep(self, given: ForRing, reduction: Reduction, found: Mapping[int, Tensor]) -> None:
        """Keeps what the host's workers have found, until the server says what becomes of it.

        Args:
            given: with the question; weights that came with it are in place.
            reduction: which gradients.
            found: by worker.
        """
        self._rates, self._reduction, self._found = given.rates, reduction, found
        for name, moments in given.moments.items():
            self._own.load_moments(name, moments)

    def lacks(self, question: Message) -> bool:
        """Whether the server believes that this host has stepped, and it has not.

        Args:
            question: TRAIN. If it comes again, the server has not stepped either.
        """
        comes_whole = read_weights(question).keys() >= set(ALL)
        self.has_missed &= not (is_again(question) or comes_whole)
        return self.has_missed

    def _join(self, message: Message, transport: HostTransport) -> None:
        rank, size = int(message.fields["rank"]), int(message.fields["size"])
        self._num_threads = int(message.fields["threads"])
        if self._collective is not None:
            self._collective.close()
        self._collective = Collective(rank, size, transport.own_address)
        transport.send(member(message.iteration, place=self._collective.place.hex()))
        transport.send(done(message.iteration))

    def _connect(self, message: Message, transport: HostTransport) -> None:
        found = [bytes.fromhex(place) for place in message.fields["places"]]
        connected = self._collective is not None and self._collective.connect(found)
        transport.send(member(message.iteration, connected=connected))
        transport.send(done(message.iteration))

    def _add_up(self, message: Message, transport: HostTransport) -> None:
        weights = {int(n): float(weight) for n, weight in message.fields["weights"].items()}
        self.has_missed = not self._step(message.iteration, weights)
        if message.fields["digest"]:
            told = {} if self.has_missed else {"digest": self._own.digest()}
            transport.send(member(message.iteration, **told))
            transport.send(done(message.iteration))

    def _step(self, iteration: int, weights: Mapping[int, float]) -> bool:
        """Adds up and steps; False if the sum did not come, and nothing changed."""
        reduction = self._reduction
        if self._collective is None or reduction is None:
            return False
        own = {n: vector for n, vector in self._found.items() if n in weights}
        with self._tracer.span("reduce"):
            sums = self._sums.addends(self._own.vector(reduction), own, weights)
            mean = self._sums.mean(sums, weights) if self._collective.add_up(*sums) else None
        if mean is None:
            return False
        with self._tracer.span("step"), _threads(self._num_threads):
            self._own.at(iteration, self._rates)
            self._own.put(reduction, *mean)
            self._own.step(reduction)
        changed = {name: self._own.weights(name) for name in reduction.changed if self._others}
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
