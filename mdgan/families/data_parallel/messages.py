"""The messages of data-parallel training: weights go out, gradients come back.

Of workers in two groups the server also passes images from G's group to D's. Hosts that add up
gradients among themselves are told who joins, adds up and steps.
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
"""The kinds of answer: which gradients are in each."""
KIND_OF = {reduction: kind for kind, reduction in KINDS.items()}
ALONE_KINDS = {DISCRIMINATOR: "DALONE", GENERATOR: "GALONE"}
"""By network: the kind of the messages in which its group answers."""
IMAGES, LABELS = "images", "labels"
"""What the generator's group sends beside gradients, and what the other learns from."""
_LABEL_COUNTS = "label_counts"
TOGETHER_FORM = AnswerForm("TOGETHER", (1,), sums=False)
"""How hosts answer that have trained in common memory, where everything else lies."""
TOGETHER = "together"
_MOMENTS = {name: f"moments.{name}." for name in (DISCRIMINATOR, GENERATOR)}
JOIN = "JOIN"  # server → host: be of a `rank` in a group of a `size`; the server's is 0
CONNECT = "CONNECT"  # server → host: where the members listen, by rank; connect with them
ADD_UP = "ADDUP"  # server → host: add up the gradients that members have found; a `Counted`
STEP = "STEP"
"""Server → host: all have the mean; step with it. By its `rates` the learning rate of each network
is multiplied. The server steps with so many `threads`: norms of whole tensors depend on it."""
MEMBER = "MEMBER"
NORMS = {
    reduction: AnswerForm(kind.replace("GRADIENT", "NORM"), (1,), sums=False)
    for kind, reduction in KINDS.items()
}
"""How hosts tell how long the gradients are that they have found."""
DONE = AnswerForm("DONE", (1,), sums=False, most_norm=1.0)
"""How hosts tell whether they could do something: 1 or 0 for each worker."""


def gradient_form(reduction: Reduction, shape: tuple[int, ...]) -> AnswerForm:
    """How gradients of a shape, that of `GradientVector`, travel back."""
    return AnswerForm(KIND_OF[reduction], shape, arithmetic=WEIGHTED)


@dataclass(frozen=True)
class TrainQuestion:
    """What workers are asked in which each trains both networks: gradients of a reduction."""

    reduction: Reduction
    shares: Mapping[int, WorkerShare]
    lag: int = 0  # how many iterations ago the images were made that discriminators learn from
    # Weights by the names of `weight_vectors`, those that the host does not have.
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    # What optimizers keep, by network, for a host that has just begun to step itself.
    moments: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    # Whether hosts keep the gradients, to add them up among themselves; see `direct.py`.
    is_direct: bool = False
    is_again: bool = False  # whether they have kept these, and send them to the server after all

    @property
    def weights(self) -> dict[int, float]:
        """Of each worker in the mean."""
        return {worker: share.weight for worker, share in self.shares.items()}


def train(iteration: int, question: TrainQuestion) -> Message:
    """Server → host: find gradients with these weights."""
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
    """Server → host: from an iteration on train with others in common memory."""
    return Message(TRAIN, iteration, {TOGETHER: True})


def read_train(message: Message, device: torch.device) -> TrainQuestion:
    """Reads what `train` made; tensors go to a device."""
    fields, tensors = message.fields, {n: t.to(device) for n, t in message.tensors.items()}
    shares = {
        int(worker): WorkerShare(BatchSizes(int(learning), int(judging)), float(weight))
        for worker, (learning, judging, weight) in fields["shares"].items()
    }
    found = {name: part_of(tensors, prefix) for name, prefix in _MOMENTS.items()}
    return TrainQuestion(
        KINDS[fields["answer"]],
        shares,
        int(fields["lag"]),
        tensors={name: tensor for name, tensor in tensors.items() if name in ALL},
        moments={name: moments for name, moments in found.items() if moments},
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
    """How a worker answers that trains a network alone, and generates so many images."""
    form = AnswerForm(ALONE_KINDS[network], shape, arithmetic=WEIGHTED)
    if network == DISCRIMINATOR:
        return form
    labels = {} if num_classes is None else {LABELS: (num_images,)}
    return replace(form, sums=False, beside={IMAGES: (num_images, *sample_shape), **labels})


def read_images(beside: Mapping[str, Mapping[int, Tensor]], num_classes: int | None) -> Samples:
    """What the generator's group has made, in increasing worker; a label becomes a class."""
    workers = sorted(beside[IMAGES])
    images = torch.cat([beside[IMAGES][worker] for worker in workers])
    if num_classes is None:
        return Samples(images)
    labels = torch.cat([beside[LABELS][worker] for worker in workers])
    return Samples(images, labels.clamp(0, num_classes - 1).long())


@dataclass(frozen=True)
class ApartQuestion:
    """What a host with workers of one group or both is asked."""

    generated: Mapping[int, int]  # worker of G's group → b, how many images it learns from
    learnt: Mapping[int, Samples]  # worker of D's group → what it learns from besides b real ones
    weights: Mapping[int, float]  # of each worker's gradients in the mean of its group
    # Weights by the names of `weight_vectors`, those that the host does not have.
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    # How often each class is generated, int64 [K]; None for equally often.
    label_counts: Tensor | None = None


def train_apart(iteration: int, question: ApartQuestion) -> Message:
    """Server → host: find one network's gradients; images and labels are of the `learnt`."""
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
    """Reads what `train_apart` made; tensors go to a device."""
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
    """How large messages can be; one worker's gradients and images have these bytes by network."""

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
    """What decides how a step is rounded: processes of the same take the same steps."""
    chip = torch.backends.cpu.get_cpu_capability()
    if device.type == "cuda":
        chip = torch.cuda.get_device_name(device)
    return f"torch {torch.__version__} on {platform.machine()}, {chip}"


def norms(
    iteration: int, reduction: Reduction, found: Mapping[int, Tensor], losses: Mapping[int, Tensor]
) -> Message:
    """Host → server: how long the gradients of its workers are."""
    lengths = {n: torch.linalg.vector_norm(vector).view(1) for n, vector in found.items()}
    return pack_answers(iteration, lengths, losses, groups={}, form=NORMS[reduction])


def member(iteration: int, place: bytes, steps: str) -> Message:
    """Host → server, before DONE: where it listens, and its `arithmetic`."""
    return Message(MEMBER, iteration, {"place": place.hex(), "steps": steps})


def done(iteration: int, workers: Sequence[int], *, well: bool) -> Message:
    """Host → server: whether it could do what it was asked."""
    answers = {n: torch.full((1,), float(well)) for n in workers}
    return pack_answers(iteration, answers, dict.fromkeys(workers, torch.zeros(2)), {}, DONE)


def with_direct(sizes: MessageSizes, moments_bytes: int, num_workers: int) -> MessageSizes:
    """The message sizes of a run whose hosts add up among themselves.

    Args:
        sizes: those of a star.
        moments_bytes: of all that optimizers keep.
        num_workers: N at the start; twice as many may come.
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
