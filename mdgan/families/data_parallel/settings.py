"""The settings of ParaGAN, and its entry in the registry."""

from dataclasses import dataclass

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.settings.declare import setting, text

NAME = "paragan"
_MOST_BATCHES = 2


@dataclass(frozen=True)
class DataParallelSettings(RunSettings):
    """The settings of ParaGAN, and those that every algorithm has."""

    algorithm: str = setting(NAME, "What trains.", text())

    def check(self) -> None:
        """Refuses what makes no sense where every worker trains in every iteration."""
        super().check()
        if self.participation < 1:
            raise BadInput(
                f"--participation {self.participation:g}: {NAME} averages the gradients of all "
                "workers; leave it out, or use fewer workers"
            )
        if self.kappa != "auto" and self.kappa > _MOST_BATCHES:
            raise BadInput(
                f"--kappa {self.kappa}: a worker of {NAME} has use for two generated batches at "
                "most, one for each network; use 1 or 2"
            )


PARAGAN = Algorithm(
    NAME,
    "workers train both models on their own data, and every gradient is averaged",
    DataParallelSettings,
    "mdgan.families.data_parallel.build:BUILDER",
    server_phases=("scale", "send", "wait", "aggregate", "local-step", "step"),
    host_phases=("receive", "generate", "real-half", "fake-half", "aggregate", "send"),
)
"""Shi et al. 2024."""
