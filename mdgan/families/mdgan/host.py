"""A host of MD-GAN: for its workers it trains discriminators, answers with feedback, and swaps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from mdgan import messages as engine_messages
from mdgan.engine.host.protocol import ARRIVED, Per, Turn, sensible
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import HostPath, Leaving
from mdgan.families.mdgan import host_swaps, messages
from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.messages import BATCHES, COPIED, DISCRIMINATORS, OUTPUTS, SWAP
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.discriminator_learner import Stage, unobserved
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.model_state import part_of
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.privacy.spending import Spending
from mdgan.transport.host_end import HostTransport


def rules_for(
    workers: int = 1, *, by_arrival: bool = False, masks: bool = False
) -> dict[str, Turn]:
    """When a host accepts messages of MD-GAN: BATCHES once an iteration, then that one's SWAP."""
    many = max(100, 5 * workers)
    batches = Turn(most=1, above={BATCHES: 1, SWAP: 1})
    if masks:  # the server asks again until it can open a sum
        batches = Turn(most=many, above={BATCHES: 0, SWAP: 1})
    if by_arrival:  # fast workers answer more often than slow ones, also in the next iteration
        batches = Turn(most=many, above={BATCHES: -1, SWAP: 1})
    swap = Turn(above={BATCHES: 0, SWAP: 1})
    copy = Turn(ARRIVED, many, Per.TEN_MINUTES)
    return {BATCHES: batches, SWAP: swap, Kind.COPY: copy}


class WorkerAnswers(NamedTuple):
    """By rank, in the order of the question: F_n; J_disc and J_gen, [2]; and D_n(X^(g)), [b]."""

    feedbacks: dict[int, Tensor]
    losses: dict[int, Tensor]
    outputs: dict[int, Tensor]


@dataclass(eq=False)
class OneByOne:
    """Workers of one host that compute one after another.

    The bits do not depend on which workers share a host.
    """

    workers: Mapping[int, Worker]  # by rank
    # Gives, for a worker's rank, the tracer's hook around its stages.
    stage_of: Callable[[int], Stage] = lambda _rank: unobserved
    _: KW_ONLY
    # Whether each worker trains on all batches of the host, or on its X^(d) as in the paper.
    train_on_all: bool = False

    def learn_real_halves(self) -> None:
        """Calls `Worker.learn_real_half` of all workers."""
        for rank, worker in self.workers.items():
            with self.stage_of(rank)("real half"):
                worker.learn_real_half()

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> WorkerAnswers:
        """`Worker.iteration` of each assigned worker; `generated` is [n, b, C, H, W]."""
        answers = WorkerAnswers({}, {}, {})
        for rank, (judge, _) in assignment.items():
            worker, stage = self.workers[rank], self.stage_of(rank)
            fake = self.fake(generated, assignment[rank])
            discriminator_loss, judgement = worker.iteration(fake, generated[judge], stage)
            answers.feedbacks[rank], answers.outputs[rank] = judgement.feedback, judgement.outputs
            answers.losses[rank] = torch.stack([discriminator_loss, judgement.loss])
        return answers

    def catch_up(self) -> None:
        """The host calls this after it has sent the answer; `LearningLater` learns here."""

    def fake(self, generated: Samples, assignment: Assignment) -> Samples:
        """The samples that a worker trains on, [m, C, H, W]."""
        return generated.flattened() if self.train_on_all else generated[assignment.train]


@dataclass(eq=False)
class MDGANHost(HostPart):
    """Handles the server's questions and orders for all workers of one host (Algorithm 1)."""

    workers: Mapping[int, Worker]
    group: OneByOne
    path: HostPath = field()
    tracer: Tracer
    images: Codec = FP32
    spending: Spending = field(default_factory=lambda: Spending({}))
    rules: Mapping[str, Turn] = field(default_factory=rules_for)
    begins = BATCHES

    def __post_init__(self) -> None:
        self.learners = self.workers
        self._learns_ahead = False
        self._answered: dict[int, host_swaps.Answered] = {}
        discriminator = next(iter(self.workers.values())).discriminator
        self._device = discriminator.device
        self._num_classes = num_classes_of(discriminator.model)

    def handlers(self) -> Mapping[str, HostHandler]:
        return {BATCHES: self._answer, SWAP: self._swap, Kind.COPY: self._hand_over_copy}

    def arrived(self, holds: Sequence[int]) -> None:
        """Learns real halves if every worker already holds its state."""
        if len(holds) == len(self.workers):
            self.group.learn_real_halves()

    @override
    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        # A copy of a live worker has no optimizer state: this worker's optimizer begins anew.
        worker = self.workers[rank]
        if all(name.startswith(COPIED) for name in state):
            worker.take(part_of(state, "discriminator."))
        else:
            worker.load_state(state)

    def adopted(self) -> None:
        """Learns real halves, now that the workers have their states."""
        self.group.learn_real_halves()

    def _answer(self, question: Message, transport: HostTransport) -> None:
        """Trains every worker on its X^(d) and answers with the feedback on its X^(g)."""
        with sensible(question.kind):
            generated, assignment = messages.read_batches(
                question, self.images, self.path.form.shape, num_classes=self._num_classes
            )
            numbers = question.fields.get("groups", question.fields["judge"])
            groups = {worker: int(numbers[str(worker)]) for worker in assignment}
            is_followed = bool(question.fields["swap_follows"] or question.fields["last"])
            for worker in assignment:
                self.workers[worker].discriminator.at(question.iteration)
        assignment = {n: two for n, two in assignment.items() if self.spending.lets(n)}
        if not assignment:  # the server asked before it knew that the budgets are spent
            return
        ending = self.spending.ending(dict.fromkeys(assignment, 1))
        on_device = generated.to(self._device)
        answers = self.group.answer(on_device, assignment)
        for worker, feedback in answers.feedbacks.items():
            judged, last = on_device[assignment[worker].judge], self._answered.get(worker)
            before = last.judged_before() if last else ()
            self._answered[worker] = host_swaps.Answered(judged, feedback, before)
        on_all = self.group.train_on_all
        about = partial(messages.asked_by_sum, generated, assignment, groups, train_on_all=on_all)
        leaving = Leaving(
            question,
            answers=answers.feedbacks,
            losses=answers.losses,
            groups=groups,
            beside={OUTPUTS: answers.outputs},
            about=about,
        )
        with self.tracer.span("send") as span:
            answer = self.path.pack(leaving)
            ending.tell(question.iteration, transport.send)
            span.num_bytes = transport.send(answer)
        self.group.catch_up()
        # If a swap follows, the discriminator that arrives must learn the next real half.
        self._learns_ahead = not is_followed
        self.path.when_free(self._learn_ahead)

    def _learn_ahead(self) -> None:
        """Learns the next real halves, while the server learns."""
        if self._learns_ahead:
            self._learns_ahead = False
            self.group.learn_real_halves()

    def _swap(self, order: Message, transport: HostTransport) -> None:
        messages.check_moves(order)
        with self.tracer.span("swap") as span:
            before = _swap_bytes(transport)
            swapped = host_swaps.carry_out(
                order,
                workers=self.workers,
                exchange=transport.exchange,
                path=self.path,
                answered=self._answered,
            )
            self.tracer.reach("swapped")
            slow = transport.slow_givers
            transport.send(messages.swapped(order.iteration, *swapped, slow_givers=slow))
            span.num_bytes = _swap_bytes(transport) - before
        self.group.learn_real_halves()

    def _hand_over_copy(self, order: Message, transport: HostTransport) -> None:
        rank, taker = int(order.fields["worker"]), int(order.fields["taker"])
        state = self.workers[rank].state()
        copy = {name: tensor for name, tensor in state.items() if name.startswith(COPIED)}
        answer = engine_messages.state(order.iteration, {rank: copy}, "copy", taker)
        if (parcel := self.path.parcel(taker, answer)) is not None:
            transport.send(parcel)


def _swap_bytes(transport: HostTransport) -> int:
    traffic = transport.traffic
    return traffic.sent[DISCRIMINATORS] + traffic.received[DISCRIMINATORS]
