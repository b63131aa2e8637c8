"""What keeps discriminators from learning their samples by heart; all of it off by default."""

from dataclasses import dataclass
from math import inf

from mdgan.settings.declare import Kind, Settings, number, setting, suggest, switch
from mdgan.settings.excludes import table

AUGMENTATIONS = ("diffaugment", "ada")
_ADA_TARGET, _ADA_IMAGES = 0.6, 500_000
"""Of Karras et al. 2020, section 3.2."""


@dataclass(frozen=True)
class AugmentationRules:
    """How samples are augmented.

    Attributes:
        adapts: whether p follows from how much D has overfitted (ADA); else it is 1.
        target: what E[sign D(x)] on real samples shall be.
        images: how many real samples it takes p at least to rise from 0 to 1.
    """

    adapts: bool = False
    target: float = _ADA_TARGET
    images: int = _ADA_IMAGES


def _augmentation_name(text: str) -> str:
    if text not in AUGMENTATIONS:
        raise ValueError(f"must be {' or '.join(AUGMENTATIONS)}{suggest(text, AUGMENTATIONS)}")
    return text


_WEIGHT = number(lambda weight: 0 < weight < inf, "must be above 0; leave it out for no penalty")


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
    augment: str | None = setting(
        None,
        "What all samples go through before a discriminator sees them: diffaugment (colour, "
        "translation, cutout), or ada, which does that the more often the more the discriminator "
        "overfits.",
        Kind(str, _augmentation_name, known=lambda _others: AUGMENTATIONS),
        metavar="NAME",
        default_text="nothing",
        other_names=("--augmentation", "--diffaugment", "--ada"),
    )
    ada_target: float | None = setting(
        None,
        "With --augment ada: the mean sign of the logits of real samples that is aimed at.",
        number(lambda target: -1 < target < 1, "must be above -1 and below 1"),
        metavar="R",
        symbol="r_t",
        default_text="0.6",
        has_flag=False,
    )

    excludes = table(
        """
        augment!=ada | ada_target | is for --augment ada; add that
        """
    )

    def augmentation_rules(self) -> AugmentationRules | None:
        """How samples are augmented; None if they are not."""
        if self.augment is None:
            return None
        target = _ADA_TARGET if self.ada_target is None else self.ada_target
        return AugmentationRules(self.augment == "ada", target)
