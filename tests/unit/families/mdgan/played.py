"""Hosts of MD-GAN that a test plays, and the files that they leave."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.engine.stages.contract import pack_answers
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK, SWAP
from mdgan.messages import Message
from tests.unit.engine.played import IDENTITY as IDENTITY
from tests.unit.engine.played import LONG as LONG
from tests.unit.engine.played import SHARD_SIZE as SHARD_SIZE
from tests.unit.engine.played import Played as EnginePlayed
from tests.unit.engine.played import hello as hello
from tests.unit.engine.played import weights as weights
from tests.unit.gan import small

FORM = AnswerForm(FEEDBACK, (small.BATCH_SIZE, *small.SHAPE))


def feedback_of(worker: int, iteration: int) -> Tensor:
    """What a worker played by hand answers."""
    return 0.01 * small.images(1000 * iteration + worker)


def answer_to(
    batches: Message, feedbacks: Mapping[int, Tensor] | None = None, *, losses: float = 0.5
) -> Message:
    """A whole answer to a BATCHES message."""
    workers = [int(name) for name in batches.fields["judge"]]
    replacements = feedbacks or {}
    answers = {n: replacements.get(n, feedback_of(n, batches.iteration)) for n in workers}
    return answers_of(answers, batches.iteration, losses)


def answer_of(worker: int, iteration: int) -> Message:
    """The same from a host of one worker, without looking at what it was sent."""
    return answers_of({worker: feedback_of(worker, iteration)}, iteration)


def answers_of(feedbacks: Mapping[int, Tensor], iteration: int, loss: float = 0.5) -> Message:
    """A FEEDBACK message with whatever a test wants to have in it."""
    losses = {worker: torch.full((2,), loss) for worker in feedbacks}
    judged = assign(list(feedbacks), 2)
    batches = {worker: assignment.judge for worker, assignment in judged.items()}
    return pack_answers(iteration, feedbacks, losses, batches, FORM)


class Played(EnginePlayed):
    """A host of MD-GAN that a test plays."""

    question = BATCHES

    def reply_to(self, question: Message, **how: Any) -> Message:
        """See `answer_to`."""
        return answer_to(question, **how)

    def obey(self, message: Message) -> None:
        """Does what a host without discriminators can do about a message."""
        if message.kind == SWAP:
            digests = {
                row[0]: "a" * 64 for row in message.fields["moves"] if row[0] in self.workers
            }
            self.send(mdgan_messages.swapped(message.iteration, digests, {}))
        else:
            super().obey(message)


def generator_after(
    answered: Sequence[Sequence[int]],
    questions: Sequence[Sequence[int]] | None = None,
    kappa: int = 2,
) -> Tensor:
    """The generator if in each iteration these workers answered, of those who were asked."""
    learner = small.make_learner()
    for i, (present, all_asked) in enumerate(zip(answered, questions or answered, strict=True), 1):
        learner.generate(kappa)
        feedbacks = {worker: feedback_of(worker, i) for worker in present}
        learner.backward(mean_feedback(feedbacks, assign(all_asked, kappa), kappa))
        learner.step()
    return weights(learner.model)


def generated_by_a_copy(learner: GeneratorLearner) -> tuple[nn.Module, Tensor]:
    """A copy of the generator as it is, and two batches that it has made, with their graph."""
    module = copy.deepcopy(learner.model)
    z = torch.randn(2 * small.BATCH_SIZE, small.Z_DIM, generator=learner._noise)
    with learner.random_state.in_place():
        x = module(z)
    learner.model.load_state_dict(  # what BatchNorm has seen, and nothing else
        {**learner.model.state_dict(), **dict(module.named_buffers())}
    )
    return module, x.view(2, small.BATCH_SIZE, *small.SHAPE)
