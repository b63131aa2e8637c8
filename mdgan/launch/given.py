"""The first two values on the way to a run: what the user gave, and the names in it, checked.

`Given`, `Named`, `Loaded`, `Settled` and `Checked` follow each other, and each knows more than the
one before. This file does not import torch, so a refusal of a flag comes quickly.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import Algorithm
from mdgan.launch.faults import Planned, read_planned
from mdgan.launch.settings import LaunchSettings, LinkSettings
from mdgan.launch.task import LaunchedTask, Launcher, RayCluster, task_of_slurm, task_of_torchrun
from mdgan.settings.declare import Setting
from mdgan.settings.layers import merged
from mdgan.spelling import flag

_STARTED_BY = {
    "torchrun": ("RANK is not set", "torchrun --nproc-per-node 5 -m mdgan train"),
    "slurm": ("no srun has started two or more tasks of this", "srun --ntasks 5 mdgan train"),
}


@dataclass(frozen=True)
class Given:
    """The settings that the user gave, and how to start the run."""

    # Flags or keywords, then those of the file, then those of a resumed run; None: not given.
    layers: Sequence[Mapping[str, Any]] = ()
    _: KW_ONLY
    launcher: Launcher | RayCluster = "processes"
    # When the user started it, by the machine's monotonic clock.
    launched: float = field(default_factory=time.monotonic)
    continues: Path | None = None  # the run to resume
    resumes_or_starts: bool = False  # whether to resume the run in `--out` if there is one
    joins_as: int | None = None  # the rank that a running server gave to the one worker here
    scaled_from: str = ""  # the `--config` file, if the user chose its `paper_scale` settings

    @property
    def ray(self) -> RayCluster | None:
        """The cluster on which all ranks run."""
        return self.launcher if isinstance(self.launcher, RayCluster) else None

    @property
    def known(self) -> dict[str, Any]:
        """All fields by name, to build the next of the five values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def named(self) -> "Named":
        """Checks every setting by itself; finds the algorithm, and what started this process."""
        launch = LaunchSettings.read(*self.layers)
        if self.ray is not None:
            launch.carried("Ray")
        algorithm = registry.chosen_algorithm(self.layers)
        task, layers = self._find_task() if algorithm.has_hosts else None, tuple(self.layers)
        if task is not None:
            layers += ({"world_size": task.world_size(launch.carried(task.launcher) or 1)},)
        return Named(
            **{**self.known, "layers": layers},
            launch=launch,
            algorithm=algorithm,
            task=task,
            faults=read_planned(),
            draft=registry.read_settings(layers),
        )

    def _find_task(self) -> LaunchedTask | None:
        """Reads torchrun's or Slurm's variables; torchrun's first, since Slurm may start it."""
        task = None
        if self.launcher in ("auto", "torchrun"):
            task = task_of_torchrun()
        if self.launcher == "slurm" or (self.launcher == "auto" and task is None):
            task = task_of_slurm(flags=self.layers[0] if self.layers else {})
        if task is None and self.launcher in ("torchrun", "slurm"):
            missing, start = _STARTED_BY[self.launcher]
            raise BadInput(flag("launcher", self.launcher), missing, f"start it with `{start}`")
        return task


@dataclass(frozen=True, kw_only=True)
class Named(Given):
    """A run whose settings are checked one by one; the files that they name are not read yet."""

    launch: LaunchSettings
    algorithm: Algorithm[Any]
    # Set if another program has started this process beside others of the run.
    task: LaunchedTask | None = None
    faults: Planned = field(default_factory=Planned)
    # The settings without the defaults of the dataset file and of the architecture. mdgan refuses
    # wrong combinations by them before it loads these, and never trains with them.
    draft: RunSettings

    @property
    def is_one_process(self) -> bool:
        """Whether one process is the server and every host."""
        return self.launch.transport == "memory" or not self.algorithm.has_hosts

    @cached_property
    def links(self) -> LinkSettings:
        """How this machine is linked. A launcher's address of the server replaces the user's."""
        if self.task is None:
            return self.launch.links
        address, port = self.task.master_addr, self.task.master_port
        return self.launch.links.but(master_addr=address, master_port=port)


def known_settings() -> dict[str, Setting]:
    """All settings by name: those of every algorithm, and those of a machine."""
    return {**registry.declared_settings(), **LaunchSettings.declared()}


def combined(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merges layers of settings to one, for `--config`; the first that names a setting wins."""
    known, declared = known_settings(), registry.declared_settings().values()
    return {name: value for name, value in merged(layers, declared).items() if name in known}
