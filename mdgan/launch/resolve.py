"""Which settings hold: flags, file, torchrun, dataset defaults. Without torch, so it is quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdgan.families.algorithms import DEFAULTS
from mdgan.launch.ranks import Torchrun
from mdgan.settings.config import build_deployment, build_experiment
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment


@dataclass(frozen=True)
class Resolved:
    """Checked settings, as far as they are known without the dataset file.

    Attributes:
        experiment: what is computed, before the dataset file's defaults.
        deployment: where this machine takes part.
        torchrun: set if this is one of torchrun's processes.
        layers: where the settings come from, the strongest first.
    """

    experiment: Experiment
    deployment: Deployment
    torchrun: Torchrun | None
    layers: tuple[Mapping[str, Any], ...]

    def with_defaults(self, defaults: Mapping[str, Any]) -> Experiment:
        """The experiment with a dataset file's defaults where the user gave nothing."""
        return build_experiment(*self.layers, DEFAULTS[self.experiment.algorithm], defaults)


def resolve(settings: Sequence[Mapping[str, Any]], algorithm: str | None = None) -> Resolved:
    """Checks what the user gave.

    Args:
        settings: flags, then the config file.
        algorithm: whatever the settings say; theirs if not given.

    Raises:
        BadInput: a value, or torchrun's environment, cannot work.
    """
    layers = tuple(settings) if algorithm is None else ({"algorithm": algorithm}, *settings)
    alone = build_experiment(*layers).algorithm == "standalone"
    torchrun = None if alone else Torchrun.from_environment()
    deployment = build_deployment(*settings)
    if torchrun is not None:
        world_size = torchrun.world_size(deployment.workers_per_host or 1)
        layers = (*layers, {"world_size": world_size})
    return Resolved(build_experiment(*layers), deployment, torchrun, layers)
