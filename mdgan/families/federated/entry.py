"""The entries of FL-GAN and FeGAN in the registry: one implementation with different defaults.

With `--sampling random --weighting uniform` FeGAN is FL-GAN bit for bit (Guerraoui et al. 2020,
section 4).
"""

from mdgan.families.contract import Algorithm
from mdgan.families.federated import settings
from mdgan.families.federated.settings import FederatedSettings

_BUILDER = "mdgan.families.federated.build:BUILDER"
_PHASES = ("receive", "train", "send")

FL_GAN = Algorithm(
    settings.FL_GAN,
    "workers train both models, and the server averages them",
    FederatedSettings,
    _BUILDER,
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Hardy et al. 2019, section V-A."""

FEGAN = Algorithm(
    settings.FEGAN,
    "the same, with workers and weights chosen by their classes",
    FederatedSettings,
    _BUILDER,
    {
        "participation": 0.025,
        "round_iterations": 30,
        "batch_size": 50,
        "sampling": "balanced",
        "weighting": "kl",
    },
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Guerraoui et al. 2020, section 4 (hyper-parameters)."""
