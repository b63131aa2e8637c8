"""The workers' share of MD-GAN: they train discriminators, answer with feedback, and swap."""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from mdgan import messages as engine_messages
from mdgan.engine.host.protocol import ARRIVED, Per, Rule, sensible
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.messages import BATCHES, COPIED, DISCRIMINATORS, OUTPUTS, SWAP
from mdgan.families.mdgan.worker import OneByOne, Worker
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import digest_of, part_of
from mdgan.messages import Kind, Message, of_workers
from mdgan.observe.tracer import Tracer
from mdgan.privacy.spending import Spending
from mdgan.transport.base import Lost, Tickets
from mdgan.transport.host_end import HostTransport


def rules_for(
    workers: int = 1, *, by_arrival: bool = False, masks: bool = False
) -> dict[str, Rule]:
    """An iteration is asked for once, and its swap follows it, in a run of so many workers."""
    many, batches = max(100, 5 * workers), Rule(most=1, above={BATCHES: 1, SWAP: 1})
    if masks:  # again until a sum can be opened
        batches = Rule(most=many, above={BATCHES: 0, SWAP: 1})
    if by_arrival:  # fast workers do the share of slow ones, some already in the next iteration
        batches = Rule(most=many, above={BATCHES: -1, SWAP: 1})
    swap, copy = Rule(above={BATCHES: 0, SWAP: 1}), Rule(ARRIVED, many, Per.TEN_MINUTES)
    return {BATCHES: batches, SWAP: swap, Kind.COPY: copy}


class MDGANHost(HostPart):
    """The workers' side of Algorithm 1 (Hardy et al. 2019), for all workers of one host."""

    begins = BATCHES
    learners: Mapping[int, Worker] = {}

    def __init__(
        self,
        workers: Mapping[int, Worker],
        group: OneByOne,
        path: HostPath,
        tracer: Tracer,
        images: Codec = FP32,
        spending: Spending | None = None,
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        self.learners = workers
        self.rules = rules or rules_for()
        self._group = group
        self.path = path
        self._tracer = tracer
        self._images = images
        self._spending = spending or Spending({})
        self._learns_ahead = False
        discriminator = next(iter(workers.values())).discriminator
        self._device = discriminator.device
        self._num_classes = num_classes_of(discriminator.model)

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {BATCHES: self._answer, SWAP: self._swap, Kind.COPY: self._hand_over_copy}

    def arrived(self, holds: Sequence[int]) -> None:
        """Learns real halves, if all workers can go on as they are."""
        if len(holds) == len(self.learners):
            self._group.learn_real_halves()

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """See `HostPart`; with a copy of a live worker's weights the optimizer begins anew."""
        worker = self.learners[rank]
        if all(name.startswith(COPIED) for name in state):
            worker.load_discriminator(part_of(state, "discriminator."))
        else:
            worker.load_state(state)

    def adopted(self) -> None:
        """Learns real halves."""
        self._group.learn_real_halves()

    def _answer(self, question: Message, transport: HostTransport) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        with sensible(question.kind):
            generated, assignment = messages.read_batches(
                question, self._images, self.path.form.shape, self._num_classes
            )
            numbers = question.fields.get("groups", question.fields["judge"])
            groups = {worker: int(numbers[str(worker)]) for worker in assignment}
            is_followed = bool(question.fields["swap_follows"] or question.fields["last"])
            for worker in assignment:
                self.learners[worker].discriminator.at(question.iteration)
        assignment = {n: own for n, own in assignment.items() if self._spending.lets(n)}
        if not assignment:  # asked before the server knew
            return
        ending = self._spending.ending(dict.fromkeys(assignment, 1))
        answers = self._group.answer(generated.to(self._device), assignment)
        with self._tracer.span("send") as span:
            answer = self.path.pack(
                Leaving(
                    question,
                    answers.feedbacks,
                    answers.losses,
                    groups,
                    {OUTPUTS: answers.outputs},
                    about=partial(
                        messages.asked_by_sum,
                        generated,
                        assignment,
                        groups,
                        train_on_all=self._group.train_on_all,
                    ),
                )
            )
            ending.tell(question.iteration, transport.send)
            span.num_bytes = transport.send(answer)
        self._group.catch_up()
        # Before a swap the discriminator that comes must learn the next real half.
        self._learns_ahead = not is_followed
        self.path.when_free(self._learn_ahead)

    def _learn_ahead(self) -> None:
        """Learns the next real halves, while the server learns."""
        learns, self._learns_ahead = self._learns_ahead, False
        if learns:
            self._group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport) -> None:
        with self._tracer.span("swap") as span:
            before = _swap_bytes(transport)
            given, taken = carry_out(order, self.learners, transport.exchange, self.path)
            self._tracer.reach("swapped")
            transport.send(messages.swapped(order.iteration, given, taken, transport.slow_givers))
            span.num_bytes = _swap_bytes(transport) - before
        self._group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank, taker = int(order.fields["worker"]), int(order.fields["taker"])
        state = self.learners[rank].state()
        copy = {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}
        answer = engine_messages.state(order.iteration, {rank: copy}, "copy", taker)
        if (parcel := self.path.parcel(taker, answer)) is not None:
            transport.send(parcel)


def _swap_bytes(transport: HostTransport) -> int:
    traffic = transport.traffic
    return traffic.sent[DISCRIMINATORS] + traffic.received[DISCRIMINATORS]


_log = logging.getLogger(__name__)

Exchange = Callable[
    [int, Mapping[int, Message], Collection[int], Mapping[int, Any], Tickets],
    Mapping[int, Message | Lost],
]
"""`HostTransport.exchange`."""


def carry_out(
    order: Message, workers: Mapping[int, Worker], exchange: Exchange, path: HostPath
) -> tuple[dict[int, str], dict[int, str]]:
    """Gives and takes discriminators; a worker that gets none that it can use keeps its own.

    Among the workers of this host nothing is copied, where that leaves no worker without one.
    If the order asks for means, a worker that gives goes on with that of its own and of what it
    got. Returns SHA-256 of what each worker here gave, and of what each got.
    """
    rows: list[list[int]] = order.fields["moves"]
    moves = {giver: taker for giver, _, taker, _ in rows if giver in workers}
    for giver in moves:  # what a host that has just come back has learnt early stays here
        workers[giver].undo_real_half()
    given = {giver: workers[giver].discriminator.digest() for giver in moves}
    means = order.fields["means"]
    inside = _closed(
        {g: t for g, t in moves.items() if t in workers and workers[g].discriminator.is_finite()}
    )
    taken = {taker: given[giver] for giver, taker in inside.items()}
    owned = {giver: workers[giver].discriminator for giver in inside}

    others = {n: worker for n, worker in workers.items() if n not in inside}
    arrived = _copies(order, others, exchange, path)
    for giver, taker in inside.items():
        if not means:
            workers[taker].take(owned[giver])
        elif giver < taker:  # the server draws pairs
            workers[giver].average_in_place(workers[taker])
    for taker, state in arrived.items():
        with contextlib.suppress(KeyError, RuntimeError):  # broken, or not of this architecture
            if means and taker in moves:
                workers[taker].average_with(state)
                taken[taker] = digest_of(state)
            else:
                workers[taker].load_discriminator(state)
                taken[taker] = workers[taker].discriminator.digest()
    return given, taken


def _closed(moves: Mapping[int, int]) -> dict[int, int]:
    """The moves that form cycles: every giver among them also takes."""
    closed = dict(moves)
    while open_ends := closed.keys() ^ set(closed.values()):
        closed = {g: t for g, t in closed.items() if not open_ends & {g, t}}
    return closed


def _copies(
    order: Message, workers: Mapping[int, Worker], exchange: Exchange, path: HostPath
) -> dict[int, Mapping[str, Tensor]]:
    """The copies of discriminators that these workers get, from here and from other hosts."""
    copies: dict[int, Mapping[str, Tensor]] = {}
    away: dict[int, dict[int, Mapping[str, Tensor]]] = {}
    from_hosts: dict[int, int] = {}
    for giver, givers_host, taker, takers_host in order.fields["moves"]:
        if giver in workers:
            place = copies if taker in workers else away.setdefault(takers_host, {})
            place[taker] = workers[giver].discriminator.state()
        elif taker in workers:
            from_hosts[taker] = givers_host
    outgoing = {}
    for host, states in away.items():
        message = Message(DISCRIMINATORS, order.iteration, {}, of_workers(states))
        if (parcel := path.parcel(host, message)) is not None:
            outgoing[host] = parcel
    addresses, gives, takes = (
        {int(host): told for host, told in order.fields[name].items()}
        for name in ("addresses", "gives", "takes")
    )
    tickets, givers = Tickets(gives, takes), set(from_hosts.values())
    incoming = exchange(order.iteration, outgoing, givers, addresses, tickets)
    opened = {
        host: _opened(host, order.iteration, parcel, path)
        for host, parcel in incoming.items()
        if isinstance(parcel, Message)
    }
    for taker, host in from_hosts.items():
        if host in opened:
            copies[taker] = part_of(opened[host], f"{taker}/")
    return copies


def _opened(host: int, iteration: int, parcel: Message, path: HostPath) -> Mapping[str, Tensor]:
    """What another host has given; nothing if it was changed on the way."""
    try:
        return path.opened(host, DISCRIMINATORS, iteration, parcel)
    except ValueError as error:
        _log.warning("a discriminator in the swap of iteration %d is refused: %s", iteration, error)
        return {}
