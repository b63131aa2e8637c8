"""What hosts answer in every iteration or round: one tensor a worker, all of the same shape.

In MD-GAN that is feedback, in the federated algorithms both models. A host that carries several
workers may add their tensors up before it sends them, where the algorithm needs only sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import FEEDBACK, FixedPoint, PartialSum
from mdgan.gan.model_state import part_of, under
from mdgan.messages import Message

ANSWERS = "ANSWERS"  # the kind of a message that holds answers of several forms

LEAST_TO_SUM = 3
"""Fewer answers travel one by one: a sum is float64 and takes as many bytes as two of them."""


@dataclass(frozen=True)
class AnswerForm:
    """How the answers of an algorithm travel: their kind of message, and the shape of each."""

    kind: str
    shape: tuple[int, ...]
    codec: Codec = FP32
    sums: bool = True  # whether a host may add up its workers' answers
    # What else every worker sends, float32 tensors: name → shape. If its first dimension is another
    # for each worker, there are no sums.
    beside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    arithmetic: FixedPoint = FEEDBACK
    # No answer is longer than that, if it is known: then what is usual does not matter, and whether
    # an answer is used depends on it alone.
    most_norm: float | None = None
    # How many times the usual norm an answer may have; one that is longer is cut to that. 0: any.
    most_usual: float = 0.0


@dataclass
class Answers:
    """Answers of several workers."""

    singles: dict[int, Tensor] = field(default_factory=dict)  # by worker, each of the form's shape
    sums: list[PartialSum] = field(default_factory=list)
    # J_disc and J_gen by worker, float32 [2].
    losses: dict[int, Tensor] = field(default_factory=dict)
    # What else they sent: name → worker → tensor; only of workers in `singles`.
    beside: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    # The hosts that answered, whether their answers can be used or not.
    hosts: set[int] = field(default_factory=set)
    # By host, what a stage has read of a message that hides its answers.
    masked: dict[int, Any] = field(default_factory=dict)

    def mean_losses(self) -> Tensor:
        """J_disc and J_gen of every worker that answered, float32 [N, 2], in increasing worker."""
        losses = [self.losses[worker] for worker in sorted(self.losses)]
        return torch.stack(losses) if losses else torch.empty(0, 2)

    def drop(self, worker: int) -> None:
        """Forgets a worker's answer, and those that were added up with it."""
        lost = [part for part in self.sums if worker in part.workers]
        self.sums = [part for part in self.sums if worker not in part.workers]
        self.singles.pop(worker, None)
        for rows in self.beside.values():
            rows.pop(worker, None)
        for dropped in {worker, *(n for part in lost for n in part.workers)}:
            self.losses.pop(dropped, None)


def pack_answers(
    iteration: int,
    answers: Mapping[int, Tensor],
    losses: Mapping[int, Tensor],
    groups: Mapping[int, int],
    form: AnswerForm,
    beside: Mapping[str, Mapping[int, Tensor]] | None = None,
    weights: Mapping[int, float] | None = None,
) -> Message:
    """Host → server: the answers of all the host's workers, one by one or added up.

    Args:
        answers: by worker, float32 of the form's shape; maybe none.
        losses: J_disc and J_gen by worker, float32 [2].
        groups: by worker, which answers may be added up with its own: those of the same group.
        beside: name → worker → tensor.
        weights: of workers in sums, if the form's arithmetic has any.

    Returns:
        fields `workers`, and `summed`: a list of workers for every sum. Tensors in the order of
        `workers`: `losses`, float32 [W, 2]; those of `beside`, float32 [W, …], one after the other
        if they are not all of one shape; and, as the codec writes them, `answers.…` of the workers
        that are in no sum. In the order of `summed`: `sums.…`, too, float64 if the codec is exact.
    """
    if not answers:  # a stage has written all of them
        return Message(form.kind, iteration)
    codec, arithmetic = form.codec, form.arithmetic
    members: dict[int, list[int]] = {}
    for worker, group in groups.items() if form.sums else ():
        if isfinite(float(answers[worker].sum())):  # a broken answer travels alone, to be refused
            members.setdefault(group, []).append(worker)
    to_sum = [added for added in members.values() if len(added) >= LEAST_TO_SUM]
    singly = _others(answers, to_sum)
    tensors = {"losses": torch.stack([losses[worker] for worker in answers])}
    for name in form.beside:
        rows = [(beside or {})[name][worker].float() for worker in answers]
        alike = len({row.shape for row in rows}) == 1
        tensors[name] = torch.stack(rows) if alike else torch.cat(rows)
    if singly:
        first, *others = (answers[worker] for worker in singly)
        alone = torch.stack([first, *others]) if others else first.unsqueeze(0)  # without a copy
        tensors |= under("answers.", codec.encode(alone))
    if to_sum:
        parts = ({n: answers[n] for n in group} for group in to_sum)
        sums = torch.stack([arithmetic.add_up(part, weights or {}) for part in parts])
        tensors |= under("sums.", codec.encode(sums if codec.is_exact else sums.float()))
    return Message(form.kind, iteration, {"workers": list(answers), "summed": to_sum}, tensors)


def in_one_message(answers: Sequence[Message]) -> Message:
    """What `pack_answers` gave for several forms: kind → fields; tensors named `<kind>/<name>`."""
    first, *others = answers
    if not others:
        return first
    fields = {answer.kind: dict(answer.fields) for answer in answers}
    tensors = {f"{a.kind}/{name}": tensor for a in answers for name, tensor in a.tensors.items()}
    return Message(ANSWERS, first.iteration, fields, tensors)


def of_kind(message: Message, kind: str) -> Message:
    """What a host has answered in one form; an empty message if nothing."""
    if message.kind == kind:
        return message
    fields = message.fields.get(kind) if message.kind == ANSWERS else None
    given = fields if isinstance(fields, Mapping) else {}
    return Message(kind, message.iteration, given, part_of(message.tensors, f"{kind}/"))


def read_answers(
    message: Message, form: AnswerForm, forms: Mapping[int, AnswerForm] | None = None
) -> Answers:
    """Reads what `pack_answers` wrote; there are no answers in what a hostile host malformed.

    Args:
        forms: by worker, if the shapes of what they send beside differ.
    """
    fields, tensors = message.fields, message.tensors
    workers, groups = _ranks(fields.get("workers")), fields.get("summed", [])
    groups = [_ranks(group) for group in groups] if isinstance(groups, list) else []
    singly = _others(workers, groups)
    losses = tensors.get("losses", torch.empty(0))
    all_named = [*singly, *(worker for group in groups for worker in group)]
    if losses.shape != (len(workers), 2) or losses.dtype != torch.float32:
        return Answers()
    if len(set(workers)) < len(workers) or sorted(all_named) != sorted(workers):
        return Answers()
    if not all(groups) or (groups and not form.sums):  # of no worker, or hidden from the algorithm
        return Answers()
    try:
        alone = _decoded(part_of(tensors, "answers."), len(singly), form)
        sums = _decoded(part_of(tensors, "sums."), len(groups), form)
    except (ValueError, KeyError, RuntimeError):
        return Answers()
    beside = {}
    for name in form.beside:
        shapes = {n: (forms or {}).get(n, form).beside[name] for n in workers}
        beside[name] = _rows(tensors.get(name), shapes)
    return Answers(
        dict(zip(singly, alone, strict=True)),
        [PartialSum(tuple(group), row) for group, row in zip(groups, sums, strict=True)],
        dict(zip(workers, losses, strict=True)),
        beside,
    )


def _rows(sent: Tensor | None, shapes: Mapping[int, tuple[int, ...]]) -> dict[int, Tensor]:
    """What each worker sent beside its answer; nothing if the shapes are others."""
    alike = len(set(shapes.values())) <= 1
    sizes = [1 if alike else shape[0] for shape in shapes.values()]
    if sent is None or sent.shape[:1] != (sum(sizes),):
        return {}
    rows = sent.unbind() if alike else torch.split(sent, sizes)
    return dict(zip(shapes, rows, strict=True))


def _others(workers: Iterable[int], groups: Iterable[Iterable[int]]) -> list[int]:
    grouped = {worker for group in groups for worker in group}
    return [worker for worker in workers if worker not in grouped]


def _ranks(given: object) -> list[int]:
    if isinstance(given, list) and all(type(worker) is int for worker in given):
        return given
    return []


def _decoded(parts: Mapping[str, Tensor], count: int, form: AnswerForm) -> Sequence[Tensor]:
    if not parts and not count:
        return ()
    rows = form.codec.decode(parts, form.shape)
    if len(rows) != count:
        raise ValueError(f"{len(rows)} answers of {count} workers")
    return rows.unbind(0)
