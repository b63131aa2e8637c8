"""The messages of ParaGAN: the server sends weights, and hosts send gradients back.

Where one group of workers trains G and another D, the server also passes images from G's group to
D's. To hosts that add up gradients among themselves it says when to connect, to add up, to step.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from mdgan.engine.answers import ANSWERS, AnswerForm
from mdgan.engine.message_sizes import MessageSizes, small_bytes
from mdgan.engine.stages.contract import pack_answers
from mdgan.families.data_parallel.collective import most_place_bytes
from mdgan.families.data_parallel.scaling import BatchSizes, WorkerShare
from mdgan.families.data_parallel.step import OF_BOTH, OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.families.data_parallel.vectors import ALL, DISCRIMINATOR, GENERATOR
from mdgan.gan.exact_sum import WEIGHTED
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import part_of, under
from mdgan.messages import Message

TRAIN = "TRAIN"
KINDS = {"DGRADIENT": OF_DISCRIMINATOR, "GGRADIENT": OF_GENERATOR, "GRADIENTS": OF_BOTH}
"""By kind of answer, the step whose gradients it has."""
KIND_OF = {reduction: kind for kind, reduction in KINDS.items()}
ALONE_KINDS = {DISCRIMINATOR: "DALONE", GENERATOR: "GALONE"}
"""By network, the kind of answer of the group that trains it alone."""
IMAGES, LABELS = "images", "labels"
"""G's group sends these beside gradients, and D's group learns from them."""
_LABEL_COUNTS = "label_counts"
TOGETHER_FORM = AnswerForm("TOGETHER", (1,), sums=False)
"""The answer of hosts that have trained in common memory; losses and weights lie there."""
TOGETHER = "together"
_MOMENTS = {name: f"moments.{name}." for name in (DISCRIMINATOR, GENERATOR)}
JOIN = "JOIN"  # server → host: become the member of a `rank` in a group of a `size`; it is 0
CONNECT = "CONNECT"  # server → host: connect with the members, at these `places`, by rank
ADD_UP = "ADDUP"  # server → host: add up the gradients of these workers, a `Counted`
STEP = "STEP"
"""Server → host: all members have the mean; step with it. `rates` are factors of each network's
learning rate. `threads` is how many the server steps with: norms of whole tensors depend on it."""
MEMBER = "MEMBER"
NORMS = {
    reduction: AnswerForm(kind.replace("GRADIENT", "NORM"), (1,), sums=False)
    for kind, reduction in KINDS.items()
}
"""By step, the answer with the norms of the gradients that a host keeps to itself for now."""
DONE = AnswerForm("DONE", (1,), sums=False, most_norm=1.0)
"""The answer to JOIN, CONNECT and ADD_UP: for each worker 1 if the host has done it, else 0."""


def gradient_form(reduction: Reduction, shape: tuple[int, ...]) -> AnswerForm:
    """The form in which hosts send the gradients of a step, of the shape of a `GradientVector`."""
    return AnswerForm(KIND_OF[reduction], shape, arithmetic=WEIGHTED)


@dataclass(frozen=True)
class TrainQuestion:
    """Asks workers that train both networks for the gradients of one step."""

    reduction: Reduction
    shares: Mapping[int, WorkerShare]
    lag: int = 0  # K: discriminators learn from images of this many iterations ago
    # The weights that the host lacks, by the names of `weight_vectors`.
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    # By network, the optimizer's state, for a host that has just begun to step itself.
    moments: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    # Whether hosts keep the gradients, to add them up among themselves; see `direct.py`.
    is_direct: bool = False
    is_again: bool = False  # whether hosts have kept these gradients, and must send them after all

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each worker's gradients in their mean."""
        return {worker: share.weight for worker, share in self.shares.items()}


def train(iteration: int, question: TrainQuestion) -> Message:
    """Server → host: take over these weights, and compute gradients with them."""
    fields = {
        "answer": KIND_OF[question.reduction],
        "lag": question.lag,
        "direct": question.is_direct,
        "again": question.is_again,
        "shares": {
            str(n): [*share.batch_sizes, share.weight] for n, share in question.shares.items()
        },
    }
    tensors = dict(question.tensors)
    for name, moments in question.moments.items():
        tensors |= under(_MOMENTS[name], moments)
    return Message(TRAIN, iteration, fields, tensors=tensors)


def train_together(iteration: int) -> Message:
    """Server → host: from an iteration on, train with other hosts in common memory."""
    return Message(TRAIN, iteration, {TOGETHER: True})


def read_train(message: Message, device: torch.device) -> TrainQuestion:
    """Reads a message of `train`, and moves its tensors to a device."""
    fields, tensors = message.fields, {n: t.to(device) for n, t in message.tensors.items()}
    shares = {
        int(worker): WorkerShare(BatchSizes(int(learning), int(judging)), float(weight))
        for worker, (learning, judging, weight) in fields["shares"].items()
    }
    moments_of = {name: part_of(tensors, prefix) for name, prefix in _MOMENTS.items()}
    return TrainQuestion(
        KINDS[fields["answer"]],
        shares,
        int(fields["lag"]),
        tensors={name: tensor for name, tensor in tensors.items() if name in ALL},
        moments={name: moments for name, moments in moments_of.items() if moments},
        is_direct=fields["direct"] is True,
        is_again=fields["again"] is True,
    )


# Where each group trains one network alone.


def alone_form(
    network: str,
    shape: tuple[int, ...] = (),
    num_images: int = 0,
    sample_shape: Sequence[int] = (),
    num_classes: int | None = None,
) -> AnswerForm:
    """The answer of a worker that trains one network alone; of G, with this many images."""
    form = AnswerForm(ALONE_KINDS[network], shape, arithmetic=WEIGHTED)
    if network == DISCRIMINATOR:
        return form
    labels = {} if num_classes is None else {LABELS: (num_images,)}
    return replace(form, sums=False, beside={IMAGES: (num_images, *sample_shape), **labels})


def read_images(beside: Mapping[str, Mapping[int, Tensor]], num_classes: int | None) -> Samples:
    """The images of G's group, in the order of its workers; labels outside 0..K-1 are clamped."""
    workers = sorted(beside[IMAGES])
    images = torch.cat([beside[IMAGES][worker] for worker in workers])
    if num_classes is None:
        return Samples(images)
    labels = torch.cat([beside[LABELS][worker] for worker in workers])
    return Samples(images, labels.clamp(0, num_classes - 1).long())


@dataclass(frozen=True)
class ApartQuestion:
    """Asks a host whose workers are of G's group, of D's, or of both."""

    generated: Mapping[int, int]  # worker of G's group → b, how many images it learns from
    learnt: Mapping[int, Samples]  # worker of D's group → b generated images, beside b real ones
    weights: Mapping[int, float]  # of each worker's gradients in the mean of its group
    # The weights that the host lacks, by the names of `weight_vectors`.
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    # How often G makes each class, int64 [K]; None for equally often.
    label_counts: Tensor | None = None


def train_apart(iteration: int, question: ApartQuestion) -> Message:
    """Server → host: compute gradients of one network; `learnt` become `images` and `labels`."""
    batches, tensors = list(question.learnt.values()), dict(question.tensors)
    if batches:
        tensors[IMAGES] = torch.cat([batch.images for batch in batches])
    labels = [batch.labels for batch in batches if batch.labels is not None]
    if labels:
        tensors[LABELS] = torch.cat(labels)
    if question.label_counts is not None:
        tensors[_LABEL_COUNTS] = question.label_counts
    fields = {
        "generated": {str(n): num_images for n, num_images in question.generated.items()},
        "learnt": {str(n): len(batch) for n, batch in question.learnt.items()},
        "weights": {str(n): weight for n, weight in question.weights.items()},
    }
    return Message(TRAIN, iteration, fields, tensors=tensors)


def read_train_apart(message: Message, device: torch.device) -> ApartQuestion:
    """Reads a message of `train_apart`, and moves its tensors to a device."""
    fields, tensors = message.fields, {n: t.to(device) for n, t in message.tensors.items()}
    sizes = {int(worker): int(size) for worker, size in fields["learnt"].items()}
    learnt: dict[int, Samples] = {}
    images, labels = tensors.pop(IMAGES, None), tensors.pop(LABELS, None)
    if images is not None:
        ends = list(accumulate(sizes.values()))
        together = Samples(images, labels)
        learnt = {n: together[end - sizes[n] : end] for n, end in zip(sizes, ends, strict=True)}
    return ApartQuestion(
        {int(worker): int(size) for worker, size in fields["generated"].items()},
        learnt,
        {int(worker): float(weight) for worker, weight in fields["weights"].items()},
        label_counts=tensors.pop(_LABEL_COUNTS, None),
        tensors=tensors,
    )


def apart_sizes(
    state_bytes: int, weights: int, gradients: Mapping[str, int], images: Mapping[str, int]
) -> MessageSizes:
    """Bounds of messages; `gradients` and `images` are a worker's bytes, by network."""

    def from_host(count: int) -> dict[str, int]:
        kinds = {
            ALONE_KINDS[GENERATOR]: count * (gradients[GENERATOR] + images[GENERATOR] + 64),
            ALONE_KINDS[DISCRIMINATOR]: count * (gradients[DISCRIMINATOR] + 64),
        }
        kinds[ANSWERS] = sum(kinds.values())
        return {kind: num_bytes + small_bytes(count) for kind, num_bytes in kinds.items()}

    def from_server(count: int) -> dict[str, int]:
        return {TRAIN: weights + count * images[DISCRIMINATOR] + small_bytes(count)}

    return MessageSizes(state_bytes, from_host, from_server)


# Where hosts add up gradients among themselves.


def arithmetic(device: torch.device) -> str:
    """What decides how a step is rounded: processes with the same text take the same steps."""
    chip = torch.backends.cpu.get_cpu_capability()
    if device.type == "cuda":
        chip = torch.cuda.get_device_name(device)
    return f"torch {torch.__version__} on {platform.machine()}, {chip}"


def norms(
    iteration: int, reduction: Reduction, rows: Mapping[int, Tensor], losses: Mapping[int, Tensor]
) -> Message:
    """Host → server: the norms of gradients, `rows` by worker."""
    lengths = {n: torch.linalg.vector_norm(vector).view(1) for n, vector in rows.items()}
    return pack_answers(iteration, lengths, losses, groups={}, form=NORMS[reduction])


def member(iteration: int, place: bytes, steps: str) -> Message:
    """Host → server, before the DONE to a JOIN: where the host listens, and its `arithmetic`."""
    return Message(MEMBER, iteration, {"place": place.hex(), "steps": steps})


def done(iteration: int, workers: Sequence[int], *, well: bool) -> Message:
    """Host → server: whether the host has carried out a JOIN, CONNECT or ADD_UP."""
    answers = {n: torch.full((1,), float(well)) for n in workers}
    return pack_answers(iteration, answers, dict.fromkeys(workers, torch.zeros(2)), {}, DONE)


def with_direct(sizes: MessageSizes, moments_bytes: int, num_workers: int) -> MessageSizes:
    """The message sizes of a run whose hosts add up among themselves.

    Args:
        sizes: the message sizes where the server adds up.
        moments_bytes: the bytes of both optimizers' states.
        num_workers: N at the start; up to twice as many may join.
    """
    most = 2 * num_workers + 2
    a_place = 2 * most_place_bytes(most) + 8

    def from_host(count: int) -> dict[str, int]:
        small = {form.kind: count * 64 + small_bytes(count) for form in [*NORMS.values(), DONE]}
        return {**sizes.from_host(count), **small, MEMBER: small_bytes(0) + a_place}

    def from_server(count: int) -> dict[str, int]:
        question = sizes.from_server(count)
        return {
            **question,
            TRAIN: question[TRAIN] + moments_bytes,
            JOIN: small_bytes(0),
            CONNECT: small_bytes(0) + most * a_place,
            ADD_UP: small_bytes(most),
            STEP: small_bytes(0),
        }

    return replace(sizes, from_host=from_host, from_server=from_server)
