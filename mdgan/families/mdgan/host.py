"""The workers' share of MD-GAN: they train discriminators, answer with feedback, and swap."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.families.mdgan.host_swaps import carry_out
from mdgan.families.mdgan.messages import Form, feedback, read_batches
from mdgan.families.mdgan.worker_group import WorkerGroup
from mdgan.gan.discriminator_learner import Worker
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.base import HostTransport


class MDGANHost:
    """The workers' side of Algorithm 1 (Hardy et al. 2019), for all workers of one host.

    Args:
        workers: by rank.
        group: the same workers, as they compute together.
        device: where their models live.
        form: how batches and feedback travel.
    """

    def __init__(
        self, workers: Mapping[int, Worker], group: WorkerGroup, device: torch.device, form: Form
    ) -> None:
        self._workers = workers
        self._group = group
        self._device = device
        self._form = form

    @property
    def learners(self) -> Mapping[int, Worker]:
        """See `HostPart`."""
        return self._workers

    @property
    def begins(self) -> Kind:
        """See `HostPart`."""
        return Kind.BATCHES

    def tell(self) -> dict[str, Any]:
        """See `HostPart`."""
        return {}

    def arrived(self, holds: Sequence[int]) -> None:
        """See `HostPart`."""
        if len(holds) == len(self._workers):
            self._group.learn_real_halves()

    def obey(self, order: Message, transport: HostTransport, tracer: Tracer) -> bool:
        """See `HostPart`."""
        if order.kind is Kind.BATCHES:
            self._answer(order, transport, tracer)
        elif order.kind is Kind.SWAP:
            self._swap(order, transport, tracer)
        elif order.kind is Kind.COPY:
            self._hand_over_copy(order, transport)
        else:
            return False
        return True

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """See `HostPart`."""
        worker = self._workers[rank]
        if any(name.startswith("discriminator.") for name in state):
            worker.load_state(state)
        else:
            worker.load_discriminator(state)

    def adopted(self) -> None:
        """See `HostPart`."""
        self._group.learn_real_halves()

    def _answer(self, message: Message, transport: HostTransport, tracer: Tracer) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        work = read_batches(message, self._form)
        generated = work.generated.to(self._device)
        answers = self._group.answer(generated, work.assignment)
        with tracer.span("send") as span:
            answer = feedback(
                message.iteration,
                answers.feedbacks,
                answers.losses,
                work.judged,
                self._form,
                answers.verdicts,
            )
            span.num_bytes = transport.send(answer)
        # The next real half belongs to whoever holds the discriminator then.
        if not message.fields["swap_follows"] and not message.fields["last"]:
            self._group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport, tracer: Tracer) -> None:
        with tracer.span("swap") as span:
            before = _swap_bytes(transport)
            given, taken = carry_out(order, self._workers, transport.exchange)
            tracer.reach("swapped")
            transport.send(messages.swapped(order.iteration, given, taken))
            span.num_bytes = _swap_bytes(transport) - before
        self._group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank = int(order.fields["worker"])
        state = self._workers[rank].discriminator.state()
        copy = messages.state(order.iteration, {rank: state}, "copy", order.fields["taker"])
        transport.send(copy)


def _swap_bytes(transport: HostTransport) -> int:
    traffic, kind = transport.traffic, Kind.DISCRIMINATORS.name
    return traffic.sent[kind] + traffic.received[kind]
