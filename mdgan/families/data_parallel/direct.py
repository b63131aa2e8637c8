"""`--all-reduce direct`: hosts average gradients among themselves; the server is a member, too.

Hosts first send the norms of their gradients. By these the server refuses gradients that no mean
can use, and knows that all hosts are ready, so that none waits within the sum. As soon as all
members have the mean, the server tells hosts to step, and steps itself. It keeps both networks, so
the loss of a host loses no weights. If the group breaks, the server asks hosts for the gradients
that they have kept, and averages these itself: the bits are the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.parts import HostHandler, ServerHandler
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.collective import Collective, Counted
from mdgan.families.data_parallel.messages import TrainQuestion
from mdgan.families.data_parallel.replica import ReferenceReplica, Replica
from mdgan.families.data_parallel.step import Reduction
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR
from mdgan.gan.optimizer_settings import Policy
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport

_LEAST_HOSTS = 2  # a single host has nothing to exchange


class DirectServer:
    """The server's member of the group; the server builds a new group when hosts come or go."""

    forms = (*messages.NORMS.values(), messages.DONE)  # of the hosts' answers

    def __init__(self, replica: ReferenceReplica) -> None:
        self._replica = replica
        self._collective: Collective | None = None
        self._members: dict[int, list[int]] = {}
        self._is_new = False
        self._cannot: frozenset[int] = frozenset()
        self._member_of: dict[int, tuple[bytes, str]] = {}  # by host, its place and `arithmetic`

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, its handler."""
        return {messages.MEMBER: self._hear}

    def stands(self, hosts: Hosts) -> bool:
        """Whether these hosts, and no others, are members, and none has been lost."""
        size = 0 if self._collective is None else self._collective.size
        return len(self._members) == size - 1 and self._members.keys() == hosts.keys()

    def begin(self, i: int, hosts: Hosts, engine: Engine) -> None:
        """Builds a group of these hosts, unless they have one, or could not connect before."""
        members = frozenset(hosts)
        if self.stands(hosts) or members == self._cannot or len(members) < _LEAST_HOSTS:
            return
        self.drop()
        if why_not := self._build(i, hosts, engine):
            self.drop()
            if members <= engine.peers.hosts().keys():
                self._cannot = members
                engine.note(f"{why_not}: gradients go through the server, with the same result")

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """The optimizers' states by network, for the hosts of a new group; empty for an old one."""
        if not self._is_new:
            return {}
        return {name: self._replica.moments(name) for name in (DISCRIMINATOR, GENERATOR)}

    def mean(
        self,
        i: int,
        question: TrainQuestion,
        answers: Answers,
        rates: Mapping[str, float],
        engine: Engine,
    ) -> Tensor | None:
        """The mean of the gradients that hosts have kept; the hosts step with it, too.

        Args:
            question: the question to which hosts have computed these gradients.
            answers: their norms.
            rates: the factor of each network's learning rate.

        Returns:
            The argument of `MeanStep.step`; None if the server must ask for the gradients.
        """
        self._is_new = False
        free = engine.peers.free()
        hosts = {host: workers for host, workers in free.items() if host in self._members}
        if self._collective is None or not self.stands(hosts):
            return None
        weights = {n: question.weights[n] for n in sorted(answers.losses)}
        carried = ([n for n in workers if n in weights] for workers in self._members.values())
        counted, collective = Counted([[], *carried], weights), self._collective
        fields = msgspec.to_builtins(counted, str_keys=True)
        message = Message(messages.ADD_UP, i, fields)
        like, mean = self._replica.vector(question.reduction), None

        def own_part() -> bool:
            nonlocal mean
            with engine.span("aggregate"):
                mean = collective.mean(like, counted, {})
            return mean is not None

        if not self._ask(i, hosts, lambda _: message, engine, own_part):
            self.drop()
            engine.note("the hosts' group broke: the server adds up what they have found")
            return None
        fields = {"rates": dict(rates), "threads": torch.get_num_threads()}
        message = Message(messages.STEP, i, fields)
        for host in self._members:
            engine.tell(host, message)
        return mean

    def on_lost(self, engine: Engine) -> None:
        """Removes lost hosts from the members; one that comes back needs a new group."""
        live = engine.peers.hosts()
        self._members = {h: workers for h, workers in self._members.items() if h in live}

    def drop(self) -> None:
        """Leaves the group."""
        if self._collective is not None:
            self._collective.close()
        self._collective = None
        self._members = {}

    def _build(self, i: int, hosts: Hosts, engine: Engine) -> str:
        size = len(hosts) + 1
        collective = self._collective = Collective(0, size, engine.transport.own_address)
        ranks = {host: rank for rank, host in enumerate(sorted(hosts), start=1)}
        self._member_of = {}

        def join(host: int) -> Message:
            return Message(messages.JOIN, i, {"rank": ranks[host], "size": size})

        if not self._ask(i, hosts, join, engine):
            return "not all hosts can listen for others"
        steps = messages.arithmetic(self._replica.device)
        if others := sorted({other for _, other in self._member_of.values()} - {steps}):
            return f"hosts would step otherwise than the server ({steps}): {others[0]:.99}"
        members = [self._member_of[host] for host in ranks if host in self._member_of]
        places = [collective.place, *(place for place, _ in members)]
        message = Message(messages.CONNECT, i, {"places": [place.hex() for place in places]})
        if not self._ask(i, hosts, lambda _: message, engine, lambda: collective.connect(places)):
            return "not all hosts can connect with each other"
        self._is_new = True
        self._members = {host: list(hosts[host]) for host in ranks}
        return ""

    def _ask(
        self,
        i: int,
        hosts: Hosts,
        question: Callable[[int], Message],
        engine: Engine,
        meanwhile: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Asks hosts, and calls `meanwhile`; whether this and all live hosts have succeeded."""
        engine.ask(i, hosts, question)
        well = meanwhile()
        answers = engine.collector.collect(i, hosts, form=messages.DONE, again=True)
        return well and all(float(done) == 1.0 for done in answers.singles.values())

    def _hear(self, _engine: Engine, host: int, message: Message) -> None:
        place, steps = message.fields["place"], message.fields["steps"]
        self._member_of[host] = bytes.fromhex(str(place)), str(steps)


def kept(question: TrainQuestion, workers: Sequence[int]) -> TrainQuestion:
    """The question that has some workers send the gradients that they have kept."""
    shares = {n: question.shares[n] for n in workers}
    return replace(question, shares=shares, is_direct=False, is_again=True)


@dataclass(eq=False)
class DirectHost:
    """The host's member of the group.

    The networks of its first worker have optimizers; its other workers copy their weights.
    """

    replicas: Mapping[int, Replica]  # by worker, at least one
    policies: Mapping[str, Policy]  # how each network is optimized
    device: torch.device
    tracer: Tracer

    def __post_init__(self) -> None:
        first, *self._others = self.replicas.values()
        self._first = ReferenceReplica(first.models, self.policies)
        self._collective: Collective | None = None
        self._reduction: Reduction | None = None
        self._mean: Tensor | None = None
        self.found: Mapping[int, Tensor] = {}  # by worker, gradients that await a sum or a question
        self.losses: Mapping[int, Tensor] = {}  # by worker, J_disc and J_gen beside these, [2]

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, its handler."""
        return {
            messages.JOIN: self._join,
            messages.CONNECT: self._connect,
            messages.ADD_UP: self._add_up,
            messages.STEP: self._step,
        }

    def begin(self, question: TrainQuestion) -> None:
        """Takes over the optimizers' states, if the question has them."""
        for name, moments in question.moments.items():
            self._first.load_moments(name, moments)

    def keep(
        self, reduction: Reduction, gradients: Mapping[int, Tensor], losses: Mapping[int, Tensor]
    ) -> None:
        """Keeps the gradients of the host's workers until the server has them added up, or asks."""
        self._reduction, self.found, self.losses, self._mean = reduction, gradients, losses, None

    def close(self) -> None:
        """Leaves the group."""
        if self._collective is not None:
            self._collective.close()

    def _join(self, message: Message, transport: HostTransport) -> None:
        rank, size = int(message.fields["rank"]), int(message.fields["size"])
        self.close()
        self._collective = Collective(rank, size, transport.own_address)
        place = self._collective.place
        transport.send(messages.member(message.iteration, place, messages.arithmetic(self.device)))
        transport.send(messages.done(message.iteration, list(self.replicas), well=bool(place)))

    def _connect(self, message: Message, transport: HostTransport) -> None:
        places = [bytes.fromhex(place) for place in message.fields["places"]]
        well = self._collective is not None and self._collective.connect(places)
        transport.send(messages.done(message.iteration, list(self.replicas), well=well))

    def _add_up(self, message: Message, transport: HostTransport) -> None:
        if self._collective is not None and self._reduction is not None:
            with self.tracer.span("aggregate"):
                like = self._first.vector(self._reduction)
                counted = msgspec.convert(message.fields, Counted, str_keys=True)
                self._mean = self._collective.mean(like, counted, self.found)
        well = self._mean is not None
        transport.send(messages.done(message.iteration, list(self.replicas), well=well))

    def _step(self, message: Message, _transport: HostTransport) -> None:
        reduction, mean = self._reduction, self._mean
        if reduction is None or mean is None:
            raise ValueError("it orders a step, and this host has no mean")
        self.found, self._mean = {}, None
        rates = {name: float(rate) for name, rate in message.fields["rates"].items()}
        with self.tracer.span("step"), _threads(int(message.fields["threads"])):
            self._first.at(message.iteration, rates)
            self._first.step(reduction, mean)
        changed = {name: self._first.weights(name) for name in reduction.changed if self._others}
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
