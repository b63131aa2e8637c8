"""Combines flags, file, launcher and defaults to settings; quickly, since it needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.task import LaunchedTask, Launcher, RayCluster, task_of_slurm, task_of_torchrun
from mdgan.settings.declare import Setting
from mdgan.settings.layers import merged

_STARTED_BY = {
    "torchrun": ("RANK is not set", "torchrun --nproc-per-node 5 -m mdgan train"),
    "slurm": ("no srun has started two or more tasks of this", "srun --ntasks 5 mdgan train"),
}


@dataclass(frozen=True)
class Resolved:
    """Checked settings, as far as they are known without the dataset file."""

    # Of the run, before the defaults of the dataset file and of the architecture.
    settings: RunSettings
    launch: LaunchSettings
    # Set if another program has started this process beside others of the run.
    task: LaunchedTask | None
    layers: tuple[Mapping[str, Any], ...]  # where the settings come from, the strongest first
    ray: RayCluster | None = None  # the cluster on which all ranks run


def resolve(
    layers: Sequence[Mapping[str, Any]],
    algorithm: str | None = None,
    launcher: Launcher | RayCluster = "processes",
) -> Resolved:
    """Checks what the user gave."""
    given = tuple(layers) if algorithm is None else ({"algorithm": algorithm}, *layers)
    launch = LaunchSettings.read(*layers)
    ray = launcher if isinstance(launcher, RayCluster) else None
    if ray is not None:
        launch.carried("Ray")
    has_hosts = registry.chosen_algorithm(given).has_hosts
    task = _find_task(launcher, layers[0] if layers else {}) if has_hosts else None
    if task is not None:
        world_size = task.world_size(launch.carried(task.launcher) or 1)
        given = (*given, {"world_size": world_size})
    return Resolved(registry.read_settings(given), launch, task, given, ray)


def _find_task(launcher: Launcher | RayCluster, flags: Mapping[str, Any]) -> LaunchedTask | None:
    """What the environment tells this process; torchrun counts first, for Slurm may start it."""
    task = None
    if launcher in ("auto", "torchrun"):
        task = task_of_torchrun()
    if launcher == "slurm" or (launcher == "auto" and task is None):
        task = task_of_slurm(flags=flags)
    if task is None and launcher in ("torchrun", "slurm"):
        missing, start = _STARTED_BY[launcher]
        raise BadInput(f"--launcher {launcher}: {missing}; start it with `{start}`")
    return task


def known_settings() -> dict[str, Setting]:
    """All settings by name, of any algorithm and of a machine."""
    return {**registry.declared_settings(), **LaunchSettings.declared()}


def combined(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Layers of settings as one, for `--config`; the first that names a setting wins."""
    known, declared = known_settings(), registry.declared_settings().values()
    return {name: value for name, value in merged(layers, declared).items() if name in known}
