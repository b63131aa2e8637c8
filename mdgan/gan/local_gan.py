"""One generator and one discriminator in one process.

Deliberately the textbook form, with the generator's gradient taken end to end through D(G(z))
instead of through feedback: MD-GAN with one worker must equal it bit for bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import floor, log2

import torch
from torch import Tensor, nn

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator_learner import DiscriminatorLearner, Stage, unobserved
from mdgan.gan.losses import Term
from mdgan.gan.model_state import generator_state, load_generator_state, part_of, under
from mdgan.gan.randomness import RandomState


def resolve_kappa(kappa: int | str, num_workers: int) -> int:
    """κ for N live workers: as given, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, section 5.2)."""
    if isinstance(kappa, int):
        return kappa
    return max(2, floor(log2(num_workers)))


class LocalGAN:
    """Goodfellow et al. 2014, Algorithm 1, on two generated batches as in MD-GAN."""

    def __init__(
        self,
        generator: nn.Module,
        optimizer: torch.optim.Optimizer,
        learner: DiscriminatorLearner,
        *,
        z_dim: int,
        batch_size: int,
        kappa: int,
        generator_loss: Term,
        noise: torch.Generator,
        random_state: RandomState,
        loss_scale: float = 1.0,
    ) -> None:
        self.generator = generator
        self.discriminator = learner.discriminator.model
        self._optimizer = optimizer
        self._learner = learner
        self._z_dim = z_dim
        self._batch_size = batch_size
        self._kappa = kappa
        self._generator_loss = generator_loss
        self._noise = noise
        self._random_state = random_state
        self._loss_scale = loss_scale

    def step(self, stage: Stage = unobserved) -> tuple[Tensor, Tensor]:
        """One iteration: L discriminator steps, then one generator step.

        Args:
            stage: what the stages `generate`, `real half`, `fake half`, `local step`, `aggregate`
                (the backward pass through D and G) and `step` run in.

        Returns:
            J_disc and J_gen, scalars.
        """
        device = next(self.generator.parameters()).device
        b = self._batch_size
        z = torch.randn(self._kappa * b, self._z_dim, generator=self._noise).to(device)
        with stage("generate"), self._random_state.in_place():
            samples = self.generator(z)
        judged, fake = samples[:b], samples[b : 2 * b] if self._kappa > 1 else samples[:b]
        discriminator_loss = self._learner.learn(fake.detach(), stage)
        with stage("aggregate"), self._learner.random_state.in_place():
            generator_loss = self._generator_loss(self._learner.discriminator.model(judged))
            parameters = [p for p in self.generator.parameters() if p.requires_grad]
            gradients = torch.autograd.grad(generator_loss * self._loss_scale, parameters)
            finite_or_zero(gradients, self._loss_scale)
        with stage("step"):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
        return discriminator_loss, generator_loss.detach()

    def use_batch_size(self, batch_size: int) -> None:
        """Goes on with batches of another size.

        Args:
            batch_size: b.
        """
        self._batch_size = batch_size
        self._learner.rules = replace(self._learner.rules, batch_size=batch_size)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on.

        Returns:
            What `generator_state` has, and `worker.…` as `DiscriminatorLearner.state`.
        """
        own = generator_state(self.generator, self._optimizer, self._noise, self._random_state)
        return {**own, **under("worker.", self._learner.state())}

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
            load_generator_state(
                own, self.generator, self._optimizer, self._noise, self._random_state
            )
        except BaseException:
            self._learner.load_state(before)
            raise
        return same_data
