"""The answers of hosts in an iteration or round: one tensor a worker, all of the same shape.

In MD-GAN the tensor is feedback, in federated algorithms both models. `stages/contract.py` writes
and reads answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import FEEDBACK, FixedPoint, PartialSum

ANSWERS = "ANSWERS"  # the kind of a message that holds answers of several forms

LEAST_TO_SUM = 3
"""A host sends fewer answers one by one: a sum is float64, as many bytes as two float32 answers."""


@dataclass(frozen=True)
class AnswerForm:
    """How answers to one kind of question travel: the kind of message, and the answer's shape."""

    kind: str
    shape: tuple[int, ...]
    codec: Codec = FP32
    sums: bool = True  # whether a host may add up its workers' answers
    # Further float32 tensors of every worker: name → shape. If the first dimension differs between
    # workers, there are no sums.
    beside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    arithmetic: FixedPoint = FEEDBACK
    # The largest norm of any honest answer, if it is known. Then screening compares each answer
    # with this norm alone, not with what is usual.
    most_norm: float | None = None
    # An answer longer than this many times the usual norm is cut to that; 0 for no limit.
    most_usual: float = 0.0


@dataclass
class Answers:
    """The answers of several workers to one question."""

    singles: dict[int, Tensor] = field(default_factory=dict)  # by worker, each of the form's shape
    sums: list[PartialSum] = field(default_factory=list)
    # J_disc and J_gen by worker, float32 [2].
    losses: dict[int, Tensor] = field(default_factory=dict)
    # The further tensors of `AnswerForm.beside`: name → worker → tensor, for workers in `singles`.
    beside: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    # The hosts that answered, whether their answers can be used or not.
    hosts: set[int] = field(default_factory=set)
    # By host, what a stage has read from a message that hides its answers.
    masked: dict[int, Any] = field(default_factory=dict)

    def mean_losses(self) -> Tensor:
        """J_disc and J_gen of every worker that answered, float32 [N, 2], in increasing worker."""
        losses = [self.losses[worker] for worker in sorted(self.losses)]
        return torch.stack(losses) if losses else torch.empty(0, 2)

    def drop(self, worker: int) -> None:
        """Removes a worker's answer, and with it the sums that contain it."""
        dropped_sums = [part for part in self.sums if worker in part.workers]
        self.sums = [part for part in self.sums if worker not in part.workers]
        self.singles.pop(worker, None)
        for rows in self.beside.values():
            rows.pop(worker, None)
        for dropped in {worker, *(n for part in dropped_sums for n in part.workers)}:
            self.losses.pop(dropped, None)
