"""A host: the process that carries one or more workers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan import messages
from mdgan.algorithms.mdgan import Worker
from mdgan.config import Timeouts
from mdgan.errors import BadInput, Interrupted
from mdgan.messages import Kind, Message
from mdgan.transport.base import Asked, HostTransport, Lost, Received


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
    """

    def __init__(
        self,
        workers: Mapping[int, Worker],
        transport: HostTransport,
        timeouts: Timeouts,
        device: torch.device,
    ) -> None:
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
                self._swap(message)
            elif message.kind is Kind.STOP:
                if message.fields["reason"]:
                    raise Interrupted(message.fields["reason"])
                return

    def _next_message(self) -> Message:
        while True:
            event = self._transport.receive(self._timeouts.answer)
            if isinstance(event, Received):
                return event.message
            if isinstance(event, Lost):
                raise ServerLost(f"the server is gone: {event.reason}")
            if isinstance(event, Asked):
                raise Interrupted

    def _answer(self, message: Message) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        generated = message.tensors["batches"].to(self._device)
        feedbacks: dict[int, Tensor] = {}
        discriminator_losses, generator_losses = [], []
        for rank, worker in self._workers.items():
            discriminator_losses.append(worker.learn(generated[message.fields["train"][str(rank)]]))
            judged = generated[message.fields["judge"][str(rank)]]
            feedbacks[rank], generator_loss = worker.feedback(judged)
            generator_losses.append(generator_loss)
        self._transport.send(
            messages.feedback(message.iteration, feedbacks, discriminator_losses, generator_losses)
        )
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
        self._learn_real_halves()

    def _learn_real_halves(self) -> None:
        for worker in self._workers.values():
            worker.learn_real_half()


def _by_taker(parcel: Message) -> dict[int, dict[str, Tensor]]:
    """The states in a DISCRIMINATORS message, by the worker each is for."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parcel.tensors.items():
        taker, _, key = name.partition("/")
        states.setdefault(int(taker), {})[key] = tensor
    return states
