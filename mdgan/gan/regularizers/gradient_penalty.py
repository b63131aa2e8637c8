"""The gradient penalty on critics: slope 1 between real and generated samples (Gulrajani 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdgan.gan.regularizers.contract import BETWEEN, WEIGHT, Penalty
from mdgan.settings.declare import Settings, setting
from mdgan.settings.excludes import table

if TYPE_CHECKING:
    from torch import Tensor


class GradientPenaltySettings(Settings, group="models"):
    """The setting of λ, the weight of the penalty."""

    gradient_penalty: float | None = setting(
        None,
        "Penalty on the critic of the Wasserstein losses: LAMBDA times the mean of (norm of its "
        "gradient − 1)², between real and generated samples.",
        WEIGHT,
        metavar="LAMBDA",
        symbol="λ",
        default_text="none",
        other_names=("--gp", "--wgan-gp"),
    )


class GradientPenalty(Penalty):
    """λ · E(‖∇D(x̂)‖ − 1)² (Gulrajani et al. 2017, equation 3)."""

    name = "gradient_penalty"
    place = BETWEEN
    excludes = table(
        """
        discriminator_loss!=wasserstein | gradient_penalty |
            is for the Wasserstein losses; add {discriminator_loss=wasserstein}
            {generator_loss=wasserstein}, or use {r1}
        """
    )
    reads_real_samples = (
        "gradient_penalty",
        "it mixes real samples with generated ones, one for one; {r1} or {spectral_norm} do "
        "without",
    )

    def of_samples(self, logits: Tensor, slopes: Tensor) -> Tensor:
        import torch

        of_a_sample = tuple(range(logits.dim(), slopes.dim()))
        norms: Tensor = torch.linalg.vector_norm(slopes, dim=of_a_sample)
        return self.weight * (norms - 1).square().mean(-1)
