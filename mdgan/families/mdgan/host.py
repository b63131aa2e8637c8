"""The workers' share of MD-GAN: they train discriminators, answer with feedback, and swap."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mdgan import messages as engine_messages
from mdgan.engine.answers import AnswerForm, pack_answers
from mdgan.engine.host.spending import Spending
from mdgan.engine.host_keys import SEALED, NotMasked
from mdgan.engine.masked_answers import MaskedAnswers
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.families.mdgan.host_swaps import carry_out
from mdgan.families.mdgan.messages import (
    BATCHES,
    COPIED,
    DISCRIMINATORS,
    SWAP,
    VERDICTS,
    judged_by_sum,
    read_batches,
    swapped,
)
from mdgan.families.mdgan.worker import Worker, WorkerGroup
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import summed_in_steps
from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import part_of
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
        swaps_weights_only: whether optimizers stay where they are in a swap.
        spending: of the workers' samples.
        masks: see `HostPart`.
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
        *,
        swaps_weights_only: bool = False,
        spending: Spending | None = None,
        masks: MaskedAnswers | None = None,
    ) -> None:
        self._spending = spending or Spending({})
        self._workers = workers
        self._group = group
        self._device = device
        self._form = form
        self._tracer = tracer
        self._images = images
        self._swaps_weights_only = swaps_weights_only
        self.masks = masks
        self._learns_ahead = False
        self._last_swap = -1
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
        self._last_swap = -1  # the keys are new, too
        if len(holds) == len(self._workers):
            self._group.learn_real_halves()

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """See `HostPart`; with a copy of a live worker's weights the optimizer begins anew."""
        worker = self._workers[rank]
        if all(name.startswith(COPIED) for name in state):
            worker.load_discriminator(part_of(state, "discriminator."))
        else:
            worker.load_state(state)

    def adopted(self) -> None:
        """Learns real halves."""
        self._group.learn_real_halves()

    def _answer(self, message: Message, transport: HostTransport) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        generated, assignment = read_batches(
            message, self._images, self._form.shape, self._num_classes
        )
        assignment = {n: own for n, own in assignment.items() if self._spending.lets(n)}
        if not assignment:  # asked before the server knew
            return
        ending = self._spending.ending(dict.fromkeys(assignment, 1))
        for worker in assignment:
            self._workers[worker].discriminator.at(message.iteration)
        answers = self._group.answer(generated.to(self._device), assignment)
        with self._tracer.span("send") as span:
            if self.masks is None:
                answer = pack_answers(
                    message.iteration,
                    answers.feedbacks,
                    answers.losses,
                    {worker: places.judge for worker, places in assignment.items()},
                    self._form,
                    {VERDICTS: answers.verdicts},
                )
            else:
                groups = {n: message.fields["groups"][str(n)] for n in assignment}
                answer = self.masks.pack(
                    message,
                    answers.feedbacks,
                    answers.losses,
                    groups,
                    lambda own: summed_in_steps(own.values()),
                    judged_by_sum(generated, assignment, groups),
                )
            ending.tell(message.iteration, transport)
            span.num_bytes = transport.send(answer)
        self._group.catch_up()
        # Before a swap the discriminator that comes must learn the next real half.
        self._learns_ahead = not message.fields["swap_follows"] and not message.fields["last"]
        if self.masks is None:  # else others wait for this host's shares
            self.unmasked()

    def unmasked(self) -> None:
        """Learns the next real halves, while the server learns."""
        learns, self._learns_ahead = self._learns_ahead, False
        if learns:
            self._group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport) -> None:
        if self.masks is not None and order.iteration <= self._last_swap:
            # It may have kept what was sealed then, and would put old discriminators back.
            raise NotMasked(f"it orders the swap of iteration {order.iteration} a second time")
        self._last_swap = order.iteration
        with self._tracer.span("swap") as span:
            before = _swap_bytes(transport)
            given, taken = carry_out(
                order,
                self._workers,
                transport.exchange,
                weights_only=self._swaps_weights_only,
                keys=None if self.masks is None else self.masks.keys,
            )
            self._tracer.reach("swapped")
            transport.send(swapped(order.iteration, given, taken, transport.slow_givers))
            span.num_bytes = _swap_bytes(transport) - before
        self._group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank = int(order.fields["worker"])
        state = self._workers[rank].state()
        copy = {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}
        taker = int(order.fields["taker"])
        answer = engine_messages.state(order.iteration, {rank: copy}, "copy", taker)
        if self.masks is not None:
            if not self.masks.keys.knows(taker):  # only the server could read it
                return
            answer = replace(answer, tensors={SEALED: self.masks.keys.seal_message(taker, answer)})
        transport.send(answer)


def _swap_bytes(transport: HostTransport) -> int:
    traffic = transport.traffic
    return traffic.sent[DISCRIMINATORS] + traffic.received[DISCRIMINATORS]
