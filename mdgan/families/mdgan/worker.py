"""MD-GAN (Hardy et al. 2019, Algorithm 1): the worker's share of one iteration.

Shapes are written [b, C, H, W]: b samples.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import DiscriminatorLearner
from mdgan.gan.model_state import part_of


class Judgement(NamedTuple):
    """How a worker judges a batch X^(g).

    Attributes:
        feedback: F_n, [b, C, H, W].
        loss: J_gen, a scalar.
        verdicts: the logits D_n(x) of the samples, [b]; high means real.
    """

    feedback: Tensor
    loss: Tensor
    verdicts: Tensor


class Worker(DiscriminatorLearner):
    """Trains D_n on private data, then judges a batch (Algorithm 1, WORKER).

    A swap moves the discriminator. The data and the random state stay with the worker.
    """

    def feedback(self, judged: Tensor) -> Judgement:
        """F_n = ∂J_gen(D_n(X^(g)))/∂X^(g), J_gen a mean over the batch (Algorithm 1, line 9).

        Only the gradient with respect to the input is computed, none for θ_n.

        Args:
            judged: X^(g), [b, C, H, W].
        """
        judged = judged.detach().requires_grad_()
        with self.random_state.in_place():
            logits = self.discriminator.model(judged)  # [b], or [b, 1] and the like
            loss = self.rules.generator_loss(logits)
            (gradient,) = torch.autograd.grad(loss * self.rules.loss_scale, judged)
        return Judgement(gradient / self.rules.loss_scale, loss.detach(), logits.detach().flatten())

    def load_discriminator(self, state: Mapping[str, Tensor]) -> None:
        """Takes over a discriminator, as in a swap; data and random state stay.

        A real half that is already learnt belongs to the discriminator that goes. It is undone,
        with its batch and random numbers, so that it does not matter whether it was learnt early.

        Args:
            state: what `Discriminator.state` of another worker returned.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        self.discriminator.load_state(state)
        self._undo_real_half()

    def take(self, discriminator: Discriminator) -> None:
        """As `load_discriminator`, without a copy.

        Args:
            discriminator: of another worker here, which takes another one in turn.
        """
        self._undo_real_half()
        self.discriminator = discriminator
        self.drop_real_half()

    def _undo_real_half(self) -> None:
        if self.has_real_half:
            self.random_state.restore(part_of(self.before_real_half, "random."))
            self.batches.load_state(part_of(self.before_real_half, "shard."))
        self.drop_real_half()
