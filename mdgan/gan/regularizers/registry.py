"""All regularisers, and their settings: a new one is a file here, and two names below."""

from mdgan.gan.regularizers.augment import Augmentation, AugmentationSettings
from mdgan.gan.regularizers.contract import Regularizer, Regularizers
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty, GradientPenaltySettings
from mdgan.gan.regularizers.r1 import R1, R1Settings
from mdgan.gan.regularizers.spectral_norm import SpectralNorm, SpectralNormSettings

REGULARIZERS: tuple[type[Regularizer], ...] = (SpectralNorm, Augmentation, R1, GradientPenalty)
"""In the order in which learners call them."""


class RegularizerSettings(
    AugmentationSettings, SpectralNormSettings, GradientPenaltySettings, R1Settings
):
    """The settings of all regularisers, off by default. `--help` shows the last class first."""


def make_regularizers(settings: RegularizerSettings) -> Regularizers:
    """Makes the regularisers that settings ask for, for one learner."""
    return Regularizers(made for kind in REGULARIZERS if (made := kind.of(settings)) is not None)


SETTINGS_OF_MODELS = RegularizerSettings.names() - AugmentationSettings.names()
"""Settings whose best values depend on the models; those of augmentation depend on the data."""
