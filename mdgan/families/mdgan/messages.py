"""The two messages of every iteration: generated batches go out, feedback comes back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation_rules import parse_aggregation
from mdgan.families.mdgan.algorithm import Assignment
from mdgan.gan.codecs import FP32, Codec, parse_codec
from mdgan.gan.exact_sum import FeedbackSum, summed
from mdgan.gan.model_state import part_of, under
from mdgan.messages import Kind, Message
from mdgan.settings.experiment import Experiment

LEAST_TO_SUM = 3
"""A sum is float64 and as long as two answers."""


@dataclass(frozen=True)
class Form:
    """How batches and feedback of a run travel.

    Attributes:
        sample_shape: of a batch and of feedback, (b, C, H, W).
        images: codec of batches.
        feedback: codec of feedback.
        sums: whether a host adds up its workers' feedback on the same batch.
        kind: of the messages that answers come in.
        verdicts: whether workers also tell the logits of the samples they judged.
    """

    sample_shape: tuple[int, ...]
    images: Codec = FP32
    feedback: Codec = FP32
    sums: bool = True
    kind: Kind = Kind.FEEDBACK
    verdicts: bool = False

    @classmethod
    def of(cls, experiment: Experiment, sample_shape: Sequence[int]) -> "Form":
        """The form for an experiment.

        Args:
            experiment: what is computed.
            sample_shape: of the data set, (C, H, W).
        """
        rule = parse_aggregation(experiment.aggregation, experiment.num_workers)
        return cls(
            (experiment.batch_size, *sample_shape),
            parse_codec(experiment.wire_images),
            parse_codec(experiment.wire_feedback),
            sums=rule.name == "mean",  # the other rules want to see every answer
            verdicts=rule.needs_verdicts,
        )


def batches(
    iteration: int,
    generated: Tensor,
    assignment: Mapping[int, tuple[int, int]],
    *,
    swap_follows: bool,
    last: bool,
    codec: Codec = FP32,
) -> Message:
    """Server → host: what the host's workers judge and train on.

    Each batch is sent once, however many of the host's workers use it.

    Args:
        iteration: i.
        generated: X, [κ, b, C, H, W].
        assignment: for every worker of the host, the batch to judge and the one to train on.
        swap_follows: whether a SWAP comes before the next BATCHES.
        last: whether this is the last iteration.
        codec: of images.

    Returns:
        fields `judge` and `train` (worker → position in the tensor), `swap_follows`, `last`;
        tensors `batches.…` as the codec writes [number of batches used here, b, C, H, W].
    """
    used = sorted({index for pair in assignment.values() for index in pair})
    position = {index: place for place, index in enumerate(used)}
    return Message(
        Kind.BATCHES,
        iteration,
        fields={
            "judge": {str(n): position[judge] for n, (judge, _) in assignment.items()},
            "train": {str(n): position[train] for n, (_, train) in assignment.items()},
            "swap_follows": swap_follows,
            "last": last,
        },
        tensors=under("batches.", codec.encode(generated[used])),
    )


@dataclass(frozen=True)
class Work:
    """What a BATCHES message asks for.

    Attributes:
        generated: the batches that are used here, float32 [.., b, C, H, W].
        assignment: for every worker here, the places of its two batches.
    """

    generated: Tensor
    assignment: Mapping[int, Assignment]

    @property
    def judged(self) -> dict[int, int]:
        """By worker, which batch it judges."""
        return {worker: assignment.judge for worker, assignment in self.assignment.items()}


def read_batches(message: Message, form: Form) -> Work:
    """Reads a BATCHES message.

    Args:
        message: from the server.
        form: how batches travel.
    """
    judge, train = message.fields["judge"], message.fields["train"]
    return Work(
        form.images.decode(part_of(message.tensors, "batches."), form.sample_shape),
        {int(worker): Assignment(place, train[worker]) for worker, place in judge.items()},
    )


def feedback(
    iteration: int,
    feedbacks: Mapping[int, Tensor],
    losses: Mapping[int, Tensor],
    judged: Mapping[int, int],
    form: Form,
    verdicts: Mapping[int, Tensor] | None = None,
    add_up: Callable[[Mapping[int, Tensor]], Tensor] = lambda parts: summed(parts.values()),
) -> Message:
    """Host → server: F_n of all the host's workers, one by one or added up.

    Args:
        iteration: i.
        feedbacks: F_n by worker, float32 [b, C, H, W].
        losses: J_disc and J_gen by worker, float32 [2].
        judged: by worker, which batch it judged.
        form: how feedback travels.
        verdicts: D_n(X^(g)) by worker, [b]; sent only if the form asks for them.
        add_up: makes a sum of some workers' F_n.

    Returns:
        fields `workers`, and `summed`: a list of workers for every sum; tensors `losses` float32
        [W, 2] in the order of `workers`, `verdicts` float32 [W, b] likewise, and as the codec
        writes them `sums.…` [.., b, C, H, W] in the order of `summed`, and `feedback.…` of the
        workers that are in none, in the order of `workers`. A codec that loses nothing has sums in
        float64.
    """
    codec = form.feedback
    groups = _to_sum(feedbacks, judged) if form.sums else []
    singly = _others(feedbacks, groups)
    tensors = {"losses": torch.stack([losses[worker] for worker in feedbacks])}
    if form.verdicts:
        assert verdicts is not None, "this form asks for verdicts"
        tensors["verdicts"] = torch.stack([verdicts[worker] for worker in feedbacks]).float()
    if singly:
        alone = torch.stack([feedbacks[worker] for worker in singly])
        tensors |= under("feedback.", codec.encode(alone))
    if groups:
        sums = torch.stack([add_up({n: feedbacks[n] for n in group}) for group in groups])
        tensors |= under("sums.", codec.encode(sums if codec.is_exact else sums.float()))
    fields = {"workers": list(feedbacks), "summed": groups}
    return Message(form.kind, iteration, fields, tensors)


def _to_sum(feedbacks: Mapping[int, Tensor], judged: Mapping[int, int]) -> list[list[int]]:
    """The workers whose feedback goes into each sum; broken feedback must be seen as what it is."""
    by_batch: dict[int, list[int]] = {}
    for worker, batch in judged.items():
        if isfinite(float(feedbacks[worker].sum())):
            by_batch.setdefault(batch, []).append(worker)
    return [workers for workers in by_batch.values() if len(workers) >= LEAST_TO_SUM]


@dataclass
class Answer:
    """What a FEEDBACK message holds; of a message that may be anything, what can be made of it.

    Attributes:
        singles: F_n by worker.
        sums: of the others.
        losses: J_disc and J_gen by worker, float32 [2].
        verdicts: by worker, what should be D_n(X^(g)), float32 [b]; empty if there are none.
    """

    singles: dict[int, Tensor] = field(default_factory=dict)
    sums: list[FeedbackSum] = field(default_factory=list)
    losses: dict[int, Tensor] = field(default_factory=dict)
    verdicts: dict[int, Tensor] = field(default_factory=dict)


def read_feedback(message: Message, form: Form) -> Answer:
    """Reads a FEEDBACK message.

    Args:
        message: from a host, possibly hostile.
        form: how feedback travels.

    Returns:
        Nothing of what does not fit; no worker has more than one part in it.
    """
    fields, tensors = message.fields, message.tensors
    workers, groups = _ranks(fields.get("workers")), fields.get("summed", [])
    groups = [_ranks(group) for group in groups] if isinstance(groups, list) else []
    singly = _others(workers, groups)
    losses = tensors.get("losses", torch.empty(0))
    everybody = [*singly, *(worker for group in groups for worker in group)]
    if losses.shape != (len(workers), 2) or losses.dtype != torch.float32:
        return Answer()
    if len(set(workers)) < len(workers) or sorted(everybody) != sorted(workers):
        return Answer()
    if groups and not form.sums:  # a sum would hide its parts from the rule
        return Answer()
    try:
        alone = _decoded(part_of(tensors, "feedback."), len(singly), form)
        sums = _decoded(part_of(tensors, "sums."), len(groups), form)
    except (ValueError, KeyError, RuntimeError):
        return Answer()
    verdicts = tensors.get("verdicts", torch.empty(0))
    fits = form.verdicts and verdicts.shape[:1] == (len(workers),)
    return Answer(
        dict(zip(singly, alone, strict=True)),
        [FeedbackSum(tuple(group), row) for group, row in zip(groups, sums, strict=True)],
        dict(zip(workers, losses, strict=True)),
        dict(zip(workers, verdicts, strict=True)) if fits else {},
    )


def _others(workers: Iterable[int], groups: Iterable[Iterable[int]]) -> list[int]:
    """The workers that are in no group."""
    grouped = {worker for group in groups for worker in group}
    return [worker for worker in workers if worker not in grouped]


def _ranks(given: object) -> list[int]:
    if isinstance(given, list) and all(type(worker) is int for worker in given):
        return given
    return []


def _decoded(parts: Mapping[str, Tensor], count: int, form: Form) -> Sequence[Tensor]:
    if not parts and not count:
        return ()
    rows = form.feedback.decode(parts, form.sample_shape)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} answers of {count} workers")
    return rows.unbind(0)
