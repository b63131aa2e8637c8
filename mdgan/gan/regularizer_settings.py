"""What keeps discriminators from learning their samples by heart; all of it off by default."""

from dataclasses import dataclass
from math import inf

from mdgan.settings.declare import Settings, number, setting, switch

_WEIGHT = number(lambda weight: 0 < weight < inf, "must be above 0; leave it out for no penalty")


@dataclass(frozen=True)
class RegularizerSettings(Settings, group="models"):
    """Penalties and spectral norm; None means that there is none."""

    r1: float | None = setting(
        None,
        "Penalty on the discriminator's gradient at real samples: half of GAMMA times the mean of "
        "its squared norm.",
        _WEIGHT,
        metavar="GAMMA",
        symbol="γ",
        default_text="none",
        other_names=("--r1-gamma", "--gamma"),
    )
    gradient_penalty: float | None = setting(
        None,
        "Penalty on the critic of the Wasserstein losses: LAMBDA times the mean of (norm of its "
        "gradient − 1)², between real and generated samples.",
        _WEIGHT,
        metavar="LAMBDA",
        symbol="λ",
        default_text="none",
        other_names=("--gp", "--wgan-gp"),
    )
    spectral_norm: bool | None = setting(
        None,
        "Divide the weights of each of the discriminator's layers by their spectral norm.",
        switch(),
    )
