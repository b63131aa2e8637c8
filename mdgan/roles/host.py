"""A host: the process that carries one or more workers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan import messages
from mdgan.algorithms.mdgan import Worker
from mdgan.errors import BadInput, Interrupted
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.roles.describer import Describer
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Asked, HostTransport, Lost, Received

_LOOK_SECONDS = 1.0


class ServerLost(RuntimeError):
    """The server is gone."""


class HostFailed(RuntimeError):
    """A host cannot go on, for a reason of its own; the others can."""


class Host:
    """The workers' side of Algorithm 1 (Hardy et al. 2019), for all workers of one process.

    Args:
        workers: by rank.
        transport: this host's end.
        timeouts: all time limits.
        device: where the workers' models live.
        describer: tells of the real data, if the server wants scores.
        tracer: records what this host does when.
    """

    def __init__(
        self,
        workers: Mapping[int, Worker],
        transport: HostTransport,
        timeouts: Timeouts,
        device: torch.device,
        describer: Describer,
        tracer: Tracer,
    ) -> None:
        self._describer = describer
        self._tracer = tracer
        self._workers = workers
        self._transport = transport
        self._timeouts = timeouts
        self._device = device

    def run(self) -> None:
        """Answers the server until it says stop.

        Raises:
            Interrupted: this process, or the server, was asked to stop before the last iteration.
            ServerLost: the server is gone.
            HostFailed: a sample could not be read.
        """
        try:
            self._work()
        except BadInput as error:
            raise HostFailed(str(error)) from error
        finally:
            self._transport.close()

    def _work(self) -> None:
        self._learn_real_halves()
        while True:
            message = self._next_message()
            if message.kind is Kind.BATCHES:
                self._answer(message)
            elif message.kind is Kind.SWAP:
                with self._tracer.span("swap") as span:
                    before = self._swap_bytes()
                    self._swap(message)
                    span.num_bytes = self._swap_bytes() - before
                self._learn_real_halves()
            elif message.kind is Kind.EXTRACTOR:
                self._describer.begin(message)
            elif message.kind is Kind.STOP:
                self._tell_spans()
                if message.fields["reason"]:
                    raise Interrupted(message.fields["reason"])
                return

    def _next_message(self) -> Message:
        """Waits for the next message, and meanwhile describes the real data if asked to."""
        while True:
            with self._tracer.span("receive") as span:
                event = self._transport.receive(0.0 if self._describer.busy else _LOOK_SECONDS)
                if isinstance(event, Received):
                    span.num_bytes = event.num_bytes
                    if event.message.kind is Kind.BATCHES:
                        self._tracer.iteration = event.message.iteration
                    return event.message
            if isinstance(event, Lost):
                raise ServerLost(f"the server is gone: {event.reason}")
            if isinstance(event, Asked):
                raise Interrupted
            if self._tracer.due():  # in a stall, too, people want to see who waits for whom
                self._tell_spans()
            if self._describer.busy:
                with self._tracer.span("evaluate"):
                    answer = self._describer.step(self._tracer.iteration)
                if answer is not None:
                    self._transport.send(answer)

    def _answer(self, message: Message) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        generated = message.tensors["batches"].to(self._device)
        feedbacks: dict[int, Tensor] = {}
        discriminator_losses, generator_losses = [], []
        for rank, worker in self._workers.items():
            stage = self._tracer.of_worker(rank)
            fake = generated[message.fields["train"][str(rank)]]
            discriminator_losses.append(worker.learn(fake, stage))
            with stage("feedback"):
                judged = generated[message.fields["judge"][str(rank)]]
                feedbacks[rank], generator_loss = worker.feedback(judged)
            generator_losses.append(generator_loss)
        with self._tracer.span("send") as span:
            answer = messages.feedback(
                message.iteration, feedbacks, discriminator_losses, generator_losses
            )
            span.num_bytes = self._transport.send(answer)
        if self._tracer.due():
            self._tell_spans()
        # The next real half belongs to whoever holds the discriminator then.
        if not message.fields["swap_follows"] and not message.fields["last"]:
            self._learn_real_halves()

    def _swap(self, message: Message) -> None:
        """Gives and takes discriminators; who gets nothing keeps its own, complete."""
        moves = [row for row in message.fields["moves"] if row[0] in self._workers]
        given = {giver: self._workers[giver].discriminator.state() for giver, *_ in moves}
        digests = {giver: self._workers[giver].discriminator.digest() for giver in given}

        here: dict[int, Mapping[str, Tensor]] = {}
        away: dict[int, dict[int, Mapping[str, Tensor]]] = {}
        for giver, _, taker, takers_host in moves:
            place = here if taker in self._workers else away.setdefault(takers_host, {})
            place[taker] = given[giver]
        incoming = {
            givers_host
            for giver, givers_host, _, _ in message.fields["moves"]
            if giver not in self._workers
        }
        outgoing = {
            host: messages.discriminators(message.iteration, states)
            for host, states in away.items()
        }
        arrived = self._transport.exchange(message.iteration, outgoing, incoming)

        for parcel in arrived.values():
            if isinstance(parcel, Message):
                here.update(_by_taker(parcel))
        for taker, state in here.items():
            self._workers[taker].discriminator.load_state(state)
        taken = {taker: self._workers[taker].discriminator.digest() for taker in here}
        self._transport.send(messages.swapped(message.iteration, digests, taken))

    def _learn_real_halves(self) -> None:
        for rank, worker in self._workers.items():
            with self._tracer.span("real half", rank):
                worker.learn_real_half()

    def _swap_bytes(self) -> int:
        traffic, kind = self._transport.traffic, Kind.DISCRIMINATORS.name
        return traffic.sent[kind] + traffic.received[kind]

    def _tell_spans(self) -> None:
        traffic, iteration = self._transport.traffic, self._tracer.iteration
        rows = self._tracer.take()
        self._transport.send(messages.spans(iteration, rows, traffic.sent, traffic.received))


def _by_taker(parcel: Message) -> dict[int, dict[str, Tensor]]:
    """The states in a DISCRIMINATORS message, by the worker each is for."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parcel.tensors.items():
        taker, _, key = name.partition("/")
        states.setdefault(int(taker), {})[key] = tensor
    return states
