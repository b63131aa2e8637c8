"""MD-GAN's entry in the registry."""

from dataclasses import dataclass, replace

from mdgan.families.contract import Algorithm
from mdgan.families.mdgan.settings import NAME, MDGANSettings


@dataclass(frozen=True)
class _MDGAN(Algorithm[MDGANSettings]):
    def phases(self, settings: MDGANSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The phases of every iteration, and those of swaps if there are any."""
        swaps = settings.num_workers > 1 and settings.swap_interval != 0
        # Before those of checkpoints: what `mdgan chaos` draws for a seed depends on the order.
        extended = replace(
            self,
            server_phases=self.server_phases + ("swap",) * swaps,
            host_phases=self.host_phases + ("swap", "swapped") * swaps,
        )
        return Algorithm.phases(extended, settings)


MDGAN = _MDGAN(
    NAME,
    "one generator at the server, a discriminator at every worker",
    MDGANSettings,
    "mdgan.families.mdgan.build:BUILDER",
    server_phases=("generate", "send", "wait", "aggregate", "step"),
    host_phases=("receive", "real-half", "fake-half", "local-step", "feedback", "send"),
)
