"""The workers of one host computed at once, by `torch.func` over stacked discriminators."""

import logging
from collections.abc import Mapping, Sequence

import torch

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.worker import OneByOne, StageOf, Worker, WorkerAnswers, WorkerGroup
from mdgan.gan.discriminator_learner import unobserved
from mdgan.gan.labels import Samples
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.stacked_learners import StackedLearners

_log = logging.getLogger(__name__)


class StackedWorkers:
    """Computes for all workers at once what `OneByOne` computes for one after another.

    What differs is in `StackedLearners`. Raises `CannotStack`, and leaves workers as they are.
    """

    def __init__(
        self,
        workers: Mapping[int, Worker],
        sample_shape: Sequence[int],
        stage_of: StageOf = lambda _rank: unobserved,
    ) -> None:
        self._workers = workers
        self._row = {rank: row for row, rank in enumerate(workers)}
        self._learners = StackedLearners([*workers.values()], [*map(stage_of, workers)])
        self._learners.rehearse(sample_shape)
        self._learners.adopt()

    def learn_real_halves(self) -> None:
        """See `WorkerGroup`."""
        self._learners.arrange()
        for worker in self._workers.values():
            if not worker.has_real_half:
                worker.remember()
        self._learners.learn_real_halves([*self._row.values()])

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> WorkerAnswers:
        """See `WorkerGroup`."""
        self._learners.arrange()
        ranks = sorted(assignment, key=self._row.__getitem__)
        rows = [self._row[rank] for rank in ranks]
        discriminator_losses = self._learners.learn(
            rows, generated[[assignment[rank].train for rank in ranks]]
        )
        scale = next(iter(self._workers.values())).rules.loss_scale
        with self._learners.stage(rows, "feedback"):
            judged = generated[[assignment[rank].judge for rank in ranks]]
            images = judged.images.detach().requires_grad_()
            generator_losses, outputs = self._learners.judge(rows, judged.of(images))
            (gradients,) = torch.autograd.grad((generator_losses * scale).sum(), images)
            feedbacks = gradients / scale
        losses = torch.stack([discriminator_losses, generator_losses.detach()], dim=1)
        place = {rank: index for index, rank in enumerate(ranks)}
        return WorkerAnswers(
            {rank: feedbacks[place[rank]] for rank in assignment},
            {rank: losses[place[rank]] for rank in assignment},
            {rank: outputs.detach()[place[rank]] for rank in assignment},
        )

    def catch_up(self) -> None:
        """See `WorkerGroup`; nothing was put off."""


def stacked(
    workers: Mapping[int, Worker],
    sample_shape: Sequence[int],
    stage_of: StageOf,
    *,
    is_compiled: bool,
) -> WorkerGroup:
    """Workers that are computed at once; one by one, and a warning, if that cannot be."""
    try:
        if is_compiled:
            raise CannotStack("compiled models are called one by one")
        return StackedWorkers(workers, sample_shape, stage_of)
    except CannotStack as reason:
        ranks = ", ".join(map(str, workers))
        _log.warning("the process of rank(s) %s computes one by one: %s", ranks, reason)
        return OneByOne(workers, stage_of)
