"""Combines flags, file, torchrun and defaults to settings; quickly, since it needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.launch.ranks import Torchrun
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.declare import merged


@dataclass(frozen=True)
class Resolved:
    """Checked settings, as far as they are known without the dataset file.

    Attributes:
        settings: of the run, before the dataset file's defaults.
        launch: of this machine.
        torchrun: set if this is one of torchrun's processes.
        layers: where the settings come from, the strongest first.
    """

    settings: RunSettings
    launch: LaunchSettings
    torchrun: Torchrun | None
    layers: tuple[Mapping[str, Any], ...]

    def with_defaults(self, defaults: Mapping[str, Any]) -> RunSettings:
        """The settings of the run with a dataset file's defaults where the user gave nothing."""
        return registry.read_settings(self.layers, defaults)


def resolve(layers: Sequence[Mapping[str, Any]], algorithm: str | None = None) -> Resolved:
    """Checks what the user gave.

    Args:
        layers: flags, then the config file.
        algorithm: overrides the layers'.

    Raises:
        BadInput: a value, or torchrun's environment, cannot work.
    """
    given = tuple(layers) if algorithm is None else ({"algorithm": algorithm}, *layers)
    launch = LaunchSettings.read(*layers)
    has_hosts = registry.chosen_algorithm(given).has_hosts
    torchrun = Torchrun.from_environment() if has_hosts else None
    if torchrun is not None:
        world_size = torchrun.world_size(launch.workers_per_host or 1)
        given = (*given, {"world_size": world_size})
    return Resolved(registry.read_settings(given), launch, torchrun, given)


def known_settings() -> set[str]:
    """The names of all settings, of any algorithm and of a machine."""
    return set(registry.declared_settings()) | LaunchSettings.names()


def combined(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Layers of settings as one, for `--config`; the first that names a setting wins."""
    known, declared = known_settings(), registry.declared_settings().values()
    return {name: value for name, value in merged(layers, declared).items() if name in known}
