"""The workers of one host as a group, and the plain way to compute them: one after another."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator_learner import Stage, unobserved

StageOf = Callable[[int], Stage]
"""From a worker's rank to the hook that its stages run in."""


def all_unobserved(_rank: int) -> Stage:
    """Runs the stages of every worker without measuring them."""
    return unobserved


class Answers(NamedTuple):
    """What workers answer in one iteration, by rank, in the order in which they were asked.

    Attributes:
        feedbacks: F_n, [b, C, H, W].
        losses: J_disc and J_gen, [2].
        verdicts: D_n(X^(g)), logits, [b].
    """

    feedbacks: dict[int, Tensor]
    losses: dict[int, Tensor]
    verdicts: dict[int, Tensor]


class WorkerGroup(Protocol):
    """What a host asks of all its workers at once.

    Between two calls every worker is whole: its state may be taken, loaded and swapped.
    """

    def learn_real_halves(self) -> None:
        """`Worker.learn_real_half` of all workers."""

    def answer(self, generated: Tensor, assignment: Mapping[int, Assignment]) -> Answers:
        """`Worker.learn` and `Worker.feedback` of some workers.

        Args:
            generated: the batches, float32 [.., b, C, H, W] on the workers' device.
            assignment: by rank of those that are asked, the places of their two batches.
        """


class OneByOne:
    """Workers that compute one after another; the bits do not depend on which share a host.

    Args:
        workers: by rank.
        stage_of: from a worker's rank to the hook that its stages run in.
    """

    def __init__(self, workers: Mapping[int, Worker], stage_of: StageOf = all_unobserved) -> None:
        self._workers = workers
        self._stage_of = stage_of

    def learn_real_halves(self) -> None:
        """See `WorkerGroup`."""
        for rank, worker in self._workers.items():
            with self._stage_of(rank)("real half"):
                worker.learn_real_half()

    def answer(self, generated: Tensor, assignment: Mapping[int, Assignment]) -> Answers:
        """See `WorkerGroup`."""
        answers = Answers({}, {}, {})
        for rank, (judge, train) in assignment.items():
            worker, stage = self._workers[rank], self._stage_of(rank)
            discriminator_loss = worker.learn(generated[train], stage)
            with stage("feedback"):
                judgement = worker.feedback(generated[judge])
            answers.feedbacks[rank], answers.verdicts[rank] = judgement.feedback, judgement.verdicts
            answers.losses[rank] = torch.stack([discriminator_loss, judgement.loss])
        return answers
