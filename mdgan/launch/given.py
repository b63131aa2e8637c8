"""What the user gave, and what that names; quickly, since it needs no torch.

A run is prepared along a line of values, each of which knows more than the one before: `Given`,
`Named`, `Loaded`, `Settled`, `Checked`.
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
    """What the user gave: settings, and how the run is to be started."""

    # Flags or keywords, then the file, then the run to go on with; None: not given.
    layers: Sequence[Mapping[str, Any]] = ()
    _: KW_ONLY
    launcher: Launcher | RayCluster = "processes"
    # When the user started it, by the machine's monotonic clock.
    launched: float = field(default_factory=time.monotonic)
    continues: Path | None = None  # the run to go on with
    resumes_or_starts: bool = False  # whether to go on with the run in `--out` if there is one
    joins_as: int | None = None  # the rank that a running server has given to the one worker here
    scaled_from: str = ""  # the file whose `paper_scale` holds, if the user chose it

    @property
    def ray(self) -> RayCluster | None:
        """The cluster on which all ranks run."""
        return self.launcher if isinstance(self.launcher, RayCluster) else None

    @property
    def known(self) -> dict[str, Any]:
        """All that is known so far, by name, for the next value of the line."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def named(self) -> "Named":
        """Checks every value, and finds the algorithm and what else has started this process."""
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
        """What the environment tells; torchrun counts first, for Slurm may start it."""
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
    """What a run is called by, found and checked; nothing is read yet that is named."""

    launch: LaunchSettings
    algorithm: Algorithm[Any]
    # Set if another program has started this process beside others of the run.
    task: LaunchedTask | None = None
    faults: Planned = field(default_factory=Planned)
    # The settings without the defaults of the dataset file and of the architecture, so that what
    # cannot be combined is refused before these are loaded. Nothing is trained with them.
    draft: RunSettings

    @property
    def is_one_process(self) -> bool:
        """Whether one process is the server and every host."""
        return self.launch.transport == "memory" or not self.algorithm.has_hosts

    @cached_property
    def links(self) -> LinkSettings:
        """How this machine is linked; the server is where the launcher says, if one does."""
        if self.task is None:
            return self.launch.links
        address, port = self.task.master_addr, self.task.master_port
        return self.launch.links.but(master_addr=address, master_port=port)


def known_settings() -> dict[str, Setting]:
    """All settings by name, of any algorithm and of a machine."""
    return {**registry.declared_settings(), **LaunchSettings.declared()}


def combined(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Layers of settings as one, for `--config`; the first that names a setting wins."""
    known, declared = known_settings(), registry.declared_settings().values()
    return {name: value for name, value in merged(layers, declared).items() if name in known}
