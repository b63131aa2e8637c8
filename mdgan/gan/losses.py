"""GAN losses on logits; no other module computes sigmoids.

A discriminator loss is a sum of one term on real data and one on generated data, J_disc(X_r, X_g) =
Ã(X_r) + B̃(X_g) (Hardy et al., section II-1), so that the two halves of its gradient can be computed
apart. Every loss is to be minimised. Every term is a mean over the batch.

A conditional discriminator may also tell classes; then the auxiliary classifier's cross-entropy is
added to each term (Odena et al. 2017, "Conditional Image Synthesis with Auxiliary Classifier GANs",
equations 2 and 3: both networks maximise L_C, on real and generated samples for D).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.errors import BadInput, users_code
from mdgan.spelling import flag

Term = Callable[[Tensor], Tensor]


class DiscriminatorOutput(NamedTuple):
    """A discriminator's output for b samples."""

    logits: Tensor  # one for each sample, [b] or [b, 1] and the like; high means real
    classes: Tensor | None = None
    """Logits of classes, [b, K]; None if the discriminator has no classifier."""

    def split(self, first: int) -> "tuple[DiscriminatorOutput, DiscriminatorOutput]":
        """The outputs for the first samples, and for the others."""
        parts = [part for part in self if part is not None]
        heads, tails = (part[:first] for part in parts), (part[first:] for part in parts)
        return DiscriminatorOutput(*heads), DiscriminatorOutput(*tails)


def as_output(returned: Tensor | tuple[Tensor, Tensor]) -> DiscriminatorOutput:
    """Wraps what a discriminator has returned: logits, or logits and logits of classes."""
    if isinstance(returned, Tensor):
        return DiscriminatorOutput(returned)
    return DiscriminatorOutput(*returned)


def with_class_loss(
    loss: Tensor, output: DiscriminatorOutput, labels: Tensor | None, weight: float
) -> Tensor:
    """Adds the auxiliary classifier's mean cross-entropy, weighted, if D has such a classifier."""
    if output.classes is None or labels is None:
        return loss
    return loss + weight * F.cross_entropy(output.classes, labels)


@dataclass(frozen=True)
class DiscriminatorLoss:
    """J_disc in two terms, each from logits of any shape to a scalar."""

    real: Term  # Ã, small when D calls real samples real
    fake: Term  # B̃, small when D calls generated samples generated


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


def check_losses(settings: Any) -> None:
    """Tries the terms that settings name on two logits; refuses what cannot be minimised."""
    terms = DISCRIMINATOR_LOSSES[settings.discriminator_loss]
    of_discriminator = flag("discriminator_loss", settings.discriminator_loss)
    of_generator = flag("generator_loss", settings.generator_loss)
    named = (
        (f"{of_generator}", GENERATOR_LOSSES[settings.generator_loss]),
        (f"{of_discriminator}: real", terms.real),
        (f"{of_discriminator}: fake", terms.fake),
    )
    for name, term in named:
        logits = torch.zeros(2, requires_grad=True)
        with users_code(f"{name} fails"):
            value = term(logits)
        if not isinstance(value, Tensor) or value.shape != () or not value.requires_grad:
            raise BadInput(
                f"{name} must give a scalar that depends on the logits, such as a mean of them"
            )


def finite_means(losses: Tensor) -> Tensor:
    """The means of losses, [N, K], over the finite ones of N workers; NaN if none is."""
    means = losses.mean(dim=0)
    if bool(means.isfinite().all()):
        return means
    finite = torch.where(losses.isfinite(), losses, torch.nan)
    return finite.double().nanmean(dim=0).to(losses.dtype)
