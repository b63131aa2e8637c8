"""`--vectorize`: all workers of a process compute at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.host import OneByOne, WorkerAnswers
from mdgan.gan.labels import Samples
from mdgan.gan.stacked_learners import StackedLearners


@dataclass(eq=False, kw_only=True)
class StackedWorkers(OneByOne):
    """Computes for all workers at once what `OneByOne` computes for one after another.

    `StackedLearners` says what differs. The constructor may raise `CannotStack`; workers then stay.
    """

    sample_shape: Sequence[int]

    def __post_init__(self) -> None:
        workers, stages = [*self.workers.values()], [*map(self.stage_of, self.workers)]
        self._row = {rank: row for row, rank in enumerate(self.workers)}
        self._learners = StackedLearners(workers, stages)
        self._learners.rehearse(self.sample_shape)
        self._learners.adopt()

    def learn_real_halves(self) -> None:
        for worker in self.workers.values():
            if not worker.has_real_half:
                worker.remember()
        self._learners.learn_real_halves([*self._row.values()])

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> WorkerAnswers:
        ranks = sorted(assignment, key=self._row.__getitem__)
        rows = [self._row[rank] for rank in ranks]
        fake = Samples.stacked([self.fake(generated, assignment[rank]) for rank in ranks])
        discriminator_losses = self._learners.learn(rows, fake)
        scale = next(iter(self.workers.values())).rules.loss_scale
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
