"""One generator and one discriminator that train in one process.

Deliberately the textbook form: the generator's gradient goes end to end through D(G(z)), not
through feedback. MD-GAN with one worker must equal it bit for bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator_learner import DiscriminatorLearner, Stage, unobserved
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import part_of, under
from mdgan.gan.optimizers import weights_replaced


class Generated(NamedTuple):
    """The generated batches of one iteration, [b, C, H, W] each."""

    judged: Samples  # what the generator learns from, with its graph
    fake: Samples  # what the discriminator learns from, without one


class LocalGAN:
    """Goodfellow et al. 2014, Algorithm 1, on two of κ generated batches as in MD-GAN."""

    def __init__(self, generator: Generator, learner: DiscriminatorLearner, kappa: int) -> None:
        self.generator = generator.model
        self.discriminator = learner.discriminator.model
        self.trained = generator
        self.learner = learner
        self._kappa = kappa
        self._judged_size: int | None = None

    def at(self, iteration: int) -> None:
        """Sets the learning rates of an iteration; the first is 1."""
        self.trained.at(iteration)
        self.learner.discriminator.at(iteration)

    def weights_replaced(self) -> None:
        """Tells both optimizers that the weights were replaced; they keep their moments."""
        weights_replaced(self.trained.optimizer)
        weights_replaced(self.learner.discriminator.optimizer)

    def step(self, stage: Stage = unobserved) -> tuple[Tensor, Tensor]:
        """One iteration: L discriminator steps, then a generator step; returns J_disc and J_gen."""
        generated = self.generate(stage)
        discriminator_loss = self.learner.learn(generated.fake, stage)
        generator_loss = self.learn_generator(generated.judged, stage)
        with stage("step"):
            self.trained.step()
        return discriminator_loss, generator_loss

    # The parts of `step`, for algorithms that do more between them.

    def generate(self, stage: Stage = unobserved) -> Generated:
        """Generates both batches in one forward pass; with κ = 1 they are the same batch."""
        with stage("generate"):
            return self.divided(self.trained.draw(self.num_generated))

    @property
    def num_generated(self) -> int:
        """How many samples an iteration needs."""
        for_learning = self.learner.rules.batch_size
        for_judging = self._judged_size or for_learning
        if self._kappa == 1:
            return max(for_judging, for_learning)
        return for_judging + (self._kappa - 1) * for_learning

    def divided(self, samples: Samples) -> Generated:
        """Cuts the `num_generated` samples of one iteration into the two batches."""
        for_learning = self.learner.rules.batch_size
        for_judging = self._judged_size or for_learning
        first = 0 if self._kappa == 1 else for_judging
        return Generated(samples[:for_judging], samples[first : first + for_learning].detach())

    def learn_generator(self, judged: Samples, stage: Stage = unobserved) -> Tensor:
        """Computes the gradient of J_gen for G's next step; returns J_gen, and frees the graph."""
        rules = self.learner.rules
        with stage("aggregate"), self.learner.random_state.in_place():
            verdict = self.learner.judge(judged)
            loss = rules.loss(rules.generator_loss, verdict, judged.labels)
            gradients = torch.autograd.grad(rules.scaled(loss), self.trained.parameters)
            finite_or_zero(gradients, rules.loss_scale)
            self.trained.put_gradients(gradients)
        return loss.detach()

    def use_batch_size(self, batch_size: int, judged_size: int | None = None) -> None:
        """Sets b from the next iteration on; `judged_size`: G's batch size if it is not b."""
        self.learner.rules = replace(self.learner.rules, batch_size=batch_size)
        self._judged_size = judged_size

    def state(self) -> dict[str, Tensor]:
        """Copies everything that the next iteration depends on; the learner's is `worker.…`."""
        return {**self.trained.state(), **under("worker.", self.learner.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues from a `state`; False if the data have another size: they are drawn anew."""
        self.trained.load_state({n: t for n, t in state.items() if not n.startswith("worker.")})
        return self.learner.load_state(part_of(state, "worker."))
