"""What hosts answer in every iteration or round: one tensor a worker, all of the same shape.

In MD-GAN that is feedback, in the federated algorithms both models. How answers are written and
read is in `stages/contract.py`.
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
