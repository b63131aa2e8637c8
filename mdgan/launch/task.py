"""What starts the ranks, and what a process is told that torchrun or Slurm has started.

Such a program starts every process of a run, on machines of its choice. The first process is the
server; each other one is a host.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from msgspec import Struct, ValidationError, convert, structs

from mdgan.errors import BadInput

Launcher = Literal["auto", "processes", "torchrun", "slurm"]
"""What starts the ranks. With `processes`, mdgan forks those of this machine by itself; with
`auto` it does so, too, unless torchrun or Slurm has started it."""

LAUNCHERS: tuple[str, ...] = (*get_args(Launcher), "ray")
"""The values of `--launcher`; for Ray there is more to say, see `RayCluster`."""

_NEEDED = {
    "process": "RANK",
    "num_processes": "WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
}
_OTHERS = {
    "processes_here": "LOCAL_WORLD_SIZE",
    "process_here": "LOCAL_RANK",
    "store_is_up": "TORCHELASTIC_USE_AGENT_STORE",
    "attempt": "TORCHELASTIC_RESTART_COUNT",
}


@dataclass(frozen=True)
class RayCluster:
    """Where Ray is to start processes, each with these resources, by Ray's names.

    Without an address that is the cluster that Ray finds, or a new one here.
    """

    address: str | None
    resources: Mapping[str, float]


@dataclass(frozen=True)
class LaunchedTask:
    """One of the processes that another program has started for a run.

    Attributes:
        process: which of all processes this is, from 0; `process_here` is which of this machine's.
        master_port: its port there, or that of torchrun's store.
        store_is_up: whether torchrun serves a store on that port, which says where process 0 is.
        attempt: a number that differs between restarts of the same job.
        cores: those that each process may use; None if they share what the machine has.
        prints_together: whether what all processes print comes together, so that the server's
            progress says enough.
    """

    launcher: str
    process: int
    num_processes: int
    processes_here: int
    process_here: int
    master_addr: str
    master_port: int
    store_is_up: bool = False
    attempt: str = "0"
    cores: int | None = None
    prints_together: bool = False

    def world_size(self, workers_per_host: int) -> int:
        """The number of ranks when each process but the first carries W workers."""
        return 1 + (self.num_processes - 1) * workers_per_host


class _Variables(Struct, frozen=True, rename={**_NEEDED, **_OTHERS}):
    """torchrun's variables, named as the attributes of `LaunchedTask` are."""

    process: int
    num_processes: int
    master_addr: str
    master_port: int
    processes_here: int = 1
    process_here: int = 0
    store_is_up: bool = False
    attempt: str = "0"


def task_of_torchrun(environment: Mapping[str, str] = os.environ) -> LaunchedTask | None:
    """Reads torchrun's variables; None if this process was not started by torchrun."""
    if "RANK" not in environment:
        return None
    if missing := ", ".join(name for name in _NEEDED.values() if name not in environment):
        raise BadInput(f"RANK is set, as torchrun does, but {missing} is not; set all or none")
    try:
        variables = convert(dict(environment), _Variables, strict=False)
    except ValidationError as error:
        raise BadInput(f"torchrun's variables must be numbers: {error}") from error
    task = LaunchedTask("torchrun", **structs.asdict(variables))
    if not 0 <= task.process < task.num_processes:
        raise BadInput(f"RANK {task.process}: must be in [0, WORLD_SIZE {task.num_processes})")
    return task


def read_resources(text: str | None) -> dict[str, float]:
    """Reads `--host-resources`: what each process reserves, by Ray's names of resources."""
    if text is None:
        return {"CPU": 1.0}
    try:
        read = json.loads(text)
        resources = {str(name): float(amount) for name, amount in read.items()}
        fits = all(0 < amount < 1e15 for amount in resources.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        fits = False
    if not fits:
        raise BadInput(
            f'--host-resources {text:.99}: must be amounts by name, such as {{"CPU": 2, "GPU": 1}}'
        )
    return resources
