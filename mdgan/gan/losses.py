"""GAN losses on logits; no other module computes sigmoids.

A discriminator loss is a sum of one term on real data and one on generated data, J_disc(X_r, X_g) =
Ã(X_r) + B̃(X_g) (Hardy et al., section II-1), so that the two halves of its gradient can be computed
apart. Every loss is to be minimised. Every term is a mean over the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Term = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DiscriminatorLoss:
    """J_disc in two terms, each from logits of any shape to a scalar.

    Attributes:
        real: Ã, small when D calls real samples real.
        fake: B̃, small when D calls generated samples generated.
    """

    real: Term
    fake: Term


def _bce_real(logits: Tensor) -> Tensor:
    """−log σ(s), the mean over the batch; Goodfellow et al. 2014."""
    return F.softplus(-logits).mean()


def _bce_fake(logits: Tensor) -> Tensor:
    """−log(1 − σ(s)), the mean over the batch; Goodfellow et al. 2014."""
    return F.softplus(logits).mean()


def _least_squares(target: float) -> Term:
    """½ (s − target)², the mean over the batch; Mao et al. 2017, equation 9 (b = c = 1, a = 0)."""
    return lambda logits: 0.5 * (logits - target).square().mean()


DISCRIMINATOR_LOSSES: dict[str, DiscriminatorLoss] = {
    "bce": DiscriminatorLoss(real=_bce_real, fake=_bce_fake),
    "least-squares": DiscriminatorLoss(real=_least_squares(1.0), fake=_least_squares(0.0)),
    # Lim and Ye 2017, section 2.
    "hinge": DiscriminatorLoss(
        real=lambda logits: F.relu(1.0 - logits).mean(),
        fake=lambda logits: F.relu(1.0 + logits).mean(),
    ),
    # A critic: the larger the difference of the means, the better (Arjovsky et al. 2017, eq. 2).
    "wasserstein": DiscriminatorLoss(
        real=lambda logits: torch.neg(logits.mean()), fake=lambda logits: logits.mean()
    ),
}

GENERATOR_LOSSES: dict[str, Term] = {
    "non-saturating": _bce_real,
    # The paper's J_gen = B̃, mean log(1 − σ(s)) (Hardy et al., section II-2).
    "saturating": lambda logits: -_bce_fake(logits),
    "least-squares": _least_squares(1.0),
    "hinge": lambda logits: torch.neg(logits.mean()),
    "wasserstein": lambda logits: torch.neg(logits.mean()),
}
