"""`--updates async`: workers answer before they learn (ParaGAN, section 5.1)."""

from collections.abc import Mapping

import torch
from typing_extensions import override

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.host import OneByOne, WorkerAnswers
from mdgan.gan.labels import Samples


class LearningLater(OneByOne):
    """Workers that answer with D of the iteration before, and learn after the host has answered.

    So the server's step and the workers' steps take place at the same time.
    """

    _put_off: Mapping[int, Samples] = {}  # by rank, the X^(d) that the worker has yet to learn from

    @override
    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> WorkerAnswers:
        answers = WorkerAnswers({}, {}, {})
        self._put_off = {rank: self.fake(generated, two) for rank, two in assignment.items()}
        for rank, (judge, _) in assignment.items():
            worker, stage = self.workers[rank], self.stage_of(rank)
            with stage("real half"):  # always before the feedback: both may draw random numbers
                worker.learn_real_half()
            with stage("feedback"):
                judgement = worker.feedback(generated[judge])
            fake_loss = worker.rules.discriminator_loss.fake(judgement.outputs)
            answers.feedbacks[rank], answers.outputs[rank] = judgement.feedback, judgement.outputs
            answers.losses[rank] = torch.stack([worker.real_loss + fake_loss, judgement.loss])
        return answers

    def catch_up(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for rank, fake in put_off.items():
            self.workers[rank].learn(fake, self.stage_of(rank))
