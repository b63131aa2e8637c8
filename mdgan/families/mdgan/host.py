"""The workers' share of MD-GAN: they train discriminators, answer with feedback, and swap."""

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from mdgan import messages as engine_messages
from mdgan.engine.host.spending import Spending
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.families.mdgan.host_swaps import carry_out
from mdgan.families.mdgan.messages import (
    BATCHES,
    COPIED,
    DISCRIMINATORS,
    OUTPUTS,
    SWAP,
    judged_by_sum,
    read_batches,
    swapped,
)
from mdgan.families.mdgan.worker import Worker, WorkerGroup
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.labels import num_classes_of
from mdgan.gan.model_state import part_of
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


class MDGANHost(HostPart):
    """The workers' side of Algorithm 1 (Hardy et al. 2019), for all workers of one host."""

    begins = BATCHES

    def __init__(
        self,
        workers: Mapping[int, Worker],
        group: WorkerGroup,
        path: HostPath,
        tracer: Tracer,
        images: Codec = FP32,
        spending: Spending | None = None,
    ) -> None:
        self._workers = workers
        self._group = group
        self.path = path
        self._tracer = tracer
        self._images = images
        self._spending = spending or Spending({})
        self._learns_ahead = False
        discriminator = next(iter(workers.values())).discriminator
        self._device = discriminator.device
        self._num_classes = num_classes_of(discriminator.model)

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
        """See `HostPart`; with a copy of a live worker's weights the optimizer begins anew."""
        worker = self._workers[rank]
        if all(name.startswith(COPIED) for name in state):
            worker.load_discriminator(part_of(state, "discriminator."))
        else:
            worker.load_state(state)

    def adopted(self) -> None:
        """Learns real halves."""
        self._group.learn_real_halves()

    def _answer(self, question: Message, transport: HostTransport) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        generated, assignment = read_batches(
            question, self._images, self.path.form.shape, self._num_classes
        )
        assignment = {n: own for n, own in assignment.items() if self._spending.lets(n)}
        if not assignment:  # asked before the server knew
            return
        ending = self._spending.ending(dict.fromkeys(assignment, 1))
        for worker in assignment:
            self._workers[worker].discriminator.at(question.iteration)
        answers = self._group.answer(generated.to(self._device), assignment)
        numbers = question.fields.get("groups", question.fields["judge"])
        groups = {worker: int(numbers[str(worker)]) for worker in assignment}
        with self._tracer.span("send") as span:
            answer = self.path.pack(
                Leaving(
                    question,
                    answers.feedbacks,
                    answers.losses,
                    groups,
                    {OUTPUTS: answers.outputs},
                    about=partial(judged_by_sum, generated, assignment, groups),
                )
            )
            ending.tell(question.iteration, transport)
            span.num_bytes = transport.send(answer)
        self._group.catch_up()
        # Before a swap the discriminator that comes must learn the next real half.
        self._learns_ahead = not question.fields["swap_follows"] and not question.fields["last"]
        self.path.when_free(self._learn_ahead)

    def _learn_ahead(self) -> None:
        """Learns the next real halves, while the server learns."""
        learns, self._learns_ahead = self._learns_ahead, False
        if learns:
            self._group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport) -> None:
        self.path.parcels.begin_exchange(order.iteration)
        with self._tracer.span("swap") as span:
            before = _swap_bytes(transport)
            given, taken = carry_out(order, self._workers, transport.exchange, self.path.parcels)
            self._tracer.reach("swapped")
            transport.send(swapped(order.iteration, given, taken, transport.slow_givers))
            span.num_bytes = _swap_bytes(transport) - before
        self._group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank, taker = int(order.fields["worker"]), int(order.fields["taker"])
        state = self._workers[rank].state()
        copy = {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}
        answer = engine_messages.state(order.iteration, {rank: copy}, "copy", taker)
        if (parcel := self.path.parcels.pack(taker, answer)) is not None:
            transport.send(parcel)


def _swap_bytes(transport: HostTransport) -> int:
    traffic = transport.traffic
    return traffic.sent[DISCRIMINATORS] + traffic.received[DISCRIMINATORS]
