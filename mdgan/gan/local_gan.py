"""One generator and one discriminator in one process.

Deliberately the textbook form, with the generator's gradient taken end to end through D(G(z))
instead of through feedback: MD-GAN with one worker must equal it bit for bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import floor, log2

import torch
from torch import Tensor

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator_learner import DiscriminatorLearner, Stage, unobserved
from mdgan.gan.generator import Generator
from mdgan.gan.model_state import part_of, under
from mdgan.gan.optimizers import weights_replaced


def resolve_kappa(kappa: int | str, num_workers: int) -> int:
    """κ for N live workers: as given, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, section 5.2)."""
    if isinstance(kappa, int):
        return kappa
    return max(2, floor(log2(num_workers)))


class LocalGAN:
    """Goodfellow et al. 2014, Algorithm 1, on two generated batches as in MD-GAN.

    Args:
        generator: G.
        learner: D, and the data.
        kappa: κ, how many batches are generated in an iteration.

    Attributes:
        generator: G's model.
        discriminator: D's model.
    """

    def __init__(self, generator: Generator, learner: DiscriminatorLearner, kappa: int) -> None:
        self.generator = generator.model
        self.discriminator = learner.discriminator.model
        self._generator = generator
        self._learner = learner
        self._kappa = kappa

    def at(self, iteration: int) -> None:
        """Learning rates become those of an iteration; the first is 1."""
        self._generator.at(iteration)
        self._learner.discriminator.at(iteration)

    def weights_replaced(self) -> None:
        """Both models have got other weights; optimizers keep their moments."""
        weights_replaced(self._generator.optimizer)
        weights_replaced(self._learner.discriminator.optimizer)

    def step(self, stage: Stage = unobserved) -> tuple[Tensor, Tensor]:
        """One iteration: L discriminator steps, then one generator step.

        Args:
            stage: what the stages `generate`, `real half`, `fake half`, `local step`, `aggregate`
                (the backward pass through D and G) and `step` run in.

        Returns:
            J_disc and J_gen, scalars.
        """
        rules, b = self._learner.rules, self._learner.rules.batch_size
        with stage("generate"):
            samples = self._generator.draw(self._kappa * b)
        judged, fake = samples[:b], samples[b : 2 * b] if self._kappa > 1 else samples[:b]
        discriminator_loss = self._learner.learn(fake.detach(), stage)
        with stage("aggregate"), self._learner.random_state.in_place():
            generator_loss = rules.generator_loss(self._learner.judge(judged))
            gradients = torch.autograd.grad(
                generator_loss * rules.loss_scale, self._generator.parameters
            )
            finite_or_zero(gradients, rules.loss_scale)
        with stage("step"):
            self._generator.put_gradients(gradients)
            self._generator.step()
        return discriminator_loss, generator_loss.detach()

    def use_batch_size(self, batch_size: int) -> None:
        """Goes on with batches of another size.

        Args:
            batch_size: b.
        """
        self._learner.rules = replace(self._learner.rules, batch_size=batch_size)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on.

        Returns:
            As `Generator.state`, and `worker.…` as `DiscriminatorLearner.state`.
        """
        return {**self._generator.state(), **under("worker.", self._learner.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken.

        Returns:
            Whether the data are the same size; if not, draws begin anew.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        own = {name: state[name] for name in state if not name.startswith("worker.")}
        before = self._learner.state()
        same_data = self._learner.load_state(part_of(state, "worker."))
        try:
            self._generator.load_state(own)
        except BaseException:
            self._learner.load_state(before)
            raise
        return same_data
