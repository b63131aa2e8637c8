"""The workers' share of MD-GAN: they train discriminators, answer with feedback, and swap."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mdgan import messages as engine_messages
from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.families.mdgan.host_swaps import carry_out
from mdgan.families.mdgan.messages import (
    BATCHES,
    DISCRIMINATORS,
    SWAP,
    VERDICTS,
    read_batches,
    swapped,
)
from mdgan.families.mdgan.worker import Worker, WorkerGroup
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.labels import num_classes_of
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


class MDGANHost(HostPart):
    """The workers' side of Algorithm 1 (Hardy et al. 2019), for all workers of one host.

    Args:
        workers: by rank.
        group: the same workers, as they compute together.
        device: where their models live.
        form: how feedback travels.
        tracer: records what they do when.
        images: how batches travel.
    """

    begins = BATCHES

    def __init__(
        self,
        workers: Mapping[int, Worker],
        group: WorkerGroup,
        device: torch.device,
        form: AnswerForm,
        tracer: Tracer,
        images: Codec = FP32,
    ) -> None:
        self._workers = workers
        self._group = group
        self._device = device
        self._form = form
        self._tracer = tracer
        self._images = images
        self._num_classes = num_classes_of(next(iter(workers.values())).discriminator.model)

    @property
    def learners(self) -> Mapping[int, Worker]:
        """By rank."""
        return self._workers

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {BATCHES: self._answer, SWAP: self._swap, Kind.COPY: self._hand_over_copy}

    def arrived(self, holds: Sequence[int]) -> None:
        """Learns real halves, if all workers can go on as they are."""
        if len(holds) == len(self._workers):
            self._group.learn_real_halves()

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """See `HostPart`; a copy of a live worker's state holds a discriminator alone."""
        worker = self._workers[rank]
        if any(name.startswith("discriminator.") for name in state):
            worker.load_state(state)
        else:
            worker.load_discriminator(state)

    def adopted(self) -> None:
        """Learns real halves."""
        self._group.learn_real_halves()

    def _answer(self, message: Message, transport: HostTransport) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        generated, assignment = read_batches(
            message, self._images, self._form.shape, self._num_classes
        )
        for worker in assignment:
            self._workers[worker].discriminator.at(message.iteration)
        answers = self._group.answer(generated.to(self._device), assignment)
        with self._tracer.span("send") as span:
            answer = pack_answers(
                message.iteration,
                answers.feedbacks,
                answers.losses,
                {worker: places.judge for worker, places in assignment.items()},
                self._form,
                {VERDICTS: answers.verdicts},
            )
            span.num_bytes = transport.send(answer)
        self._group.catch_up()
        # Before a swap the discriminator that comes must learn the next real half.
        if not message.fields["swap_follows"] and not message.fields["last"]:
            self._group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport) -> None:
        with self._tracer.span("swap") as span:
            before = _swap_bytes(transport)
            given, taken = carry_out(order, self._workers, transport.exchange)
            self._tracer.reach("swapped")
            transport.send(swapped(order.iteration, given, taken))
            span.num_bytes = _swap_bytes(transport) - before
        self._group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank = int(order.fields["worker"])
        state = self._workers[rank].discriminator.state()
        taker = order.fields["taker"]
        transport.send(engine_messages.state(order.iteration, {rank: state}, "copy", taker))


def _swap_bytes(transport: HostTransport) -> int:
    traffic = transport.traffic
    return traffic.sent[DISCRIMINATORS] + traffic.received[DISCRIMINATORS]
