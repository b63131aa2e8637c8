"""MD-GAN's entry in the registry."""

from dataclasses import dataclass

from mdgan.families.contract import Algorithm
from mdgan.families.mdgan.settings import NAME, MDGANSettings


@dataclass(frozen=True)
class _MDGAN(Algorithm[MDGANSettings]):
    def phases(self, settings: MDGANSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The phases of every iteration, and those of swaps if there are any."""
        server, host = super().phases(settings)
        swaps = settings.num_workers > 1 and settings.swap_interval != 0
        return server + ("swap",) * swaps, host + ("swap", "swapped") * swaps


MDGAN = _MDGAN(
    NAME,
    "one generator at the server, a discriminator at every worker",
    MDGANSettings,
    "mdgan.families.mdgan.build:BUILDER",
    server_phases=("generate", "send", "wait", "aggregate", "step"),
    host_phases=("receive", "real-half", "fake-half", "local-step", "feedback", "send"),
)
