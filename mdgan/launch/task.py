"""Reads from the environment what torchrun or Slurm tells each process that it has started.

Such a launcher starts every process of a run, on machines of its choice. The first process is the
server, and each other one is a host.

Slurm sets variables of the job and of the step. mdgan reads those of the step, since a job script
without `srun` has those of the job as well, and `srun` may use only some of the job's nodes. In a
step of a single task mdgan starts its processes itself, as without Slurm.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from msgspec import Struct, ValidationError, convert, field, structs

from mdgan.errors import BadInput
from mdgan.spelling import flag

Launcher = Literal["auto", "processes", "torchrun", "slurm"]
"""The program that starts the ranks. With `processes`, mdgan forks those of this machine itself;
with `auto` it does so unless torchrun or Slurm has started it."""

LAUNCHERS: tuple[str, ...] = (*get_args(Launcher), "ray")
"""The values of `--launcher`. Ray needs more settings: see `RayCluster`."""


@dataclass(frozen=True)
class RayCluster:
    """The cluster on which Ray starts processes, each with these resources, by Ray's names.

    Without an address, Ray takes a cluster that it finds, or starts one on this machine.
    """

    address: str | None
    resources: Mapping[str, float]


@dataclass(frozen=True)
class LaunchedTask:
    """One of the processes that another program has started for a run."""

    launcher: str
    # The index of this process among all; `process_here` is its index on this machine.
    process: int
    num_processes: int
    processes_here: int
    process_here: int
    master_addr: str
    master_port: int  # its port there, or that of torchrun's store
    # Whether torchrun serves a store on that port, in which process 0 publishes its address.
    store_is_up: bool = False
    attempt: str = "0"  # a number that differs between restarts of the same job
    cores: int | None = None  # for each process; None if they share the machine's
    # Whether the output of all processes goes to one place, where one progress line is enough.
    prints_together: bool = False

    def world_size(self, workers_per_host: int) -> int:
        """The number of ranks, if each process but the first carries this many workers."""
        return 1 + (self.num_processes - 1) * workers_per_host


class _Variables(Struct, frozen=True):
    """torchrun's variables, by the names of `LaunchedTask`'s fields."""

    process: int = field(name="RANK")
    num_processes: int = field(name="WORLD_SIZE")
    master_addr: str = field(name="MASTER_ADDR")
    master_port: int = field(name="MASTER_PORT")
    processes_here: int = field(default=1, name="LOCAL_WORLD_SIZE")
    process_here: int = field(default=0, name="LOCAL_RANK")
    store_is_up: bool = field(default=False, name="TORCHELASTIC_USE_AGENT_STORE")
    attempt: str = field(default="0", name="TORCHELASTIC_RESTART_COUNT")


def task_of_torchrun(environment: Mapping[str, str] = os.environ) -> LaunchedTask | None:
    """Reads torchrun's variables; None if this process was not started by torchrun."""
    if "RANK" not in environment:
        return None
    needed = [each.encode_name for each in structs.fields(_Variables) if each.required]
    if missing := ", ".join(name for name in needed if name not in environment):
        what = f"RANK is set, as torchrun does, but {missing} is not"
        raise BadInput(what, way_out="set all or none")
    try:
        variables = convert(dict(environment), _Variables, strict=False)
    except ValidationError as error:
        raise BadInput("torchrun's variables must be numbers", error) from error
    task = LaunchedTask("torchrun", **structs.asdict(variables))
    if not 0 <= task.process < task.num_processes:
        why = f"must be in [0, WORLD_SIZE {task.num_processes})"
        raise BadInput(f"RANK {task.process}", why)
    return task


def read_resources(text: str | None) -> dict[str, float]:
    """Reads `--host-resources`: the amounts that each process reserves, by Ray's names."""
    if text is None:
        return {"CPU": 1.0}
    try:
        read = json.loads(text)
        resources = {str(name): float(amount) for name, amount in read.items()}
        fits = all(0 < amount < 1e15 for amount in resources.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        fits = False
    if not fits:
        why = 'must be amounts by name, such as {"CPU": 2, "GPU": 1}'
        raise BadInput(flag("host_resources", f"{text:.99}"), why)
    return resources


_TASKS, _PROCESS = "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"
_LOCAL, _NODE = "SLURM_LOCALID", "SLURM_NODEID"
_NODES, _EACH, _JOB = "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"
NEEDED = (_TASKS, _PROCESS, _LOCAL, _NODE, _NODES, _EACH, _JOB)

_LOWEST_PORT, _NUM_PORTS = 20_000, 10_000  # below those that systems give out by themselves
_MOST_TASKS = 1_000_000
_SCONTROL_SECONDS = 20.0


def task_of_slurm(
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
    address_of: Callable[[str], str] | None = None,
) -> LaunchedTask | None:
    """Reads Slurm's variables; None if no `srun` has started this process beside others.

    Args:
        flags: the user's flags, whose `master_addr` and `master_port` come before Slurm's.
        address_of: finds a node's address by its name; by default `address_of_node`.
    """
    if _PROCESS not in environment or environment.get(_TASKS, "1") == "1":
        return None
    if missing := ", ".join(name for name in NEEDED if name not in environment):
        way_out = f"start mdgan by srun, or give {flag('launcher', 'processes')}"
        raise BadInput(f"{_PROCESS} is set, as srun does, but {missing} is not", way_out=way_out)
    num_tasks = _whole(environment, _TASKS, 1, _MOST_TASKS)
    process = _whole(environment, _PROCESS, 0, num_tasks - 1)
    each = tasks_per_node(environment[_EACH])
    if sum(each) != num_tasks:
        why = f"makes {sum(each)} tasks, not the {num_tasks} of {_TASKS}"
        raise BadInput(f"{_EACH} {environment[_EACH]!r:.99}", why)
    tasks_here = each[_whole(environment, _NODE, 0, len(each) - 1)]
    process_here = _whole(environment, _LOCAL, 0, tasks_here - 1)
    flags = flags or {}
    first, node = first_node(environment[_NODES]), environment.get("SLURMD_NODENAME")
    master_addr = flags.get("master_addr")
    if master_addr is None:
        if process == 0 and node not in (None, first):
            raise BadInput(
                f"{_PROCESS} 0 runs on {node:.99}, not on {first}, the first of {_NODES}: leave "
                f"--distribution arbitrary out, or give {flag('master_addr')} with the address of "
                "that node"
            )
        master_addr = (address_of or address_of_node)(first)
    port = flags.get("master_port")
    if port is None:  # every task computes the same port; two jobs on one node rarely share it
        port = _LOWEST_PORT + _whole(environment, _JOB, 0, 1 << 62) % _NUM_PORTS
    return LaunchedTask(
        launcher="Slurm",
        process=process,
        num_processes=num_tasks,
        processes_here=tasks_here,
        process_here=process_here,
        master_addr=master_addr,
        master_port=port,
        attempt=environment.get("SLURM_RESTART_COUNT", "0"),
        cores=_cores(environment, tasks_here),
        prints_together=True,
    )


def tasks_per_node(text: str) -> list[int]:
    """Reads how many tasks each node has: Slurm's `2(x3),1` is [2, 2, 2, 1]."""
    each: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?", part, re.ASCII)
        count, times = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
        if count < 1 or times < 1 or len(each) + times > _MOST_TASKS:
            raise BadInput(f"{_EACH} {text!r:.99}", "must be like 2(x3),1, as srun sets it")
        each += [count] * times
    return each


def first_node(text: str) -> str:
    """Reads the first node of a list: of Slurm's `n[1-3,7],m5` it is n1."""
    first = re.match(r"(?:[^,\[\]]|\[[^\[\]]*\])+(?=,|\Z)", text)
    name = re.sub(r"\[([0-9]+)[^\]]*\]", r"\1", first[0]) if first else ""
    if not re.fullmatch(r"\w[\w.-]{0,254}", name, re.ASCII):
        raise BadInput(f"{_NODES} {text!r:.99}", "must be like n[1-3],m5, as srun sets it")
    return name


def address_of_node(name: str) -> str:
    """The address of a node: its name, or the address that Slurm knows if that does not resolve."""
    with contextlib.suppress(OSError, UnicodeError):
        socket.getaddrinfo(name, None)
        return name
    shown = ""
    if (scontrol := shutil.which("scontrol")) is not None:
        command = [scontrol, "--oneliner", "show", "node", name]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            shown = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_SCONTROL_SECONDS
            ).stdout
    match = re.search(r"\bNodeAddr=(\S+)", shown)
    if match and match[1] != name:
        return match[1]
    way_out = f"give {flag('master_addr')} with the address of the first task's node"
    raise BadInput(_NODES, f"its first node {name} has no address here", way_out)


def _cores(environment: Mapping[str, str], tasks_here: int) -> int | None:
    """The cores of one task: those that the user asked Slurm for, or its share of the node's."""
    if "SLURM_CPUS_PER_TASK" in environment:
        return _whole(environment, "SLURM_CPUS_PER_TASK", 1, _MOST_TASKS)
    if "SLURM_CPUS_ON_NODE" in environment:
        return max(1, _whole(environment, "SLURM_CPUS_ON_NODE", 1, _MOST_TASKS) // tasks_here)
    return None


def _whole(environment: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = environment[name]
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) or not least <= int(text) <= most:
        why = f"must be a whole number in [{least}, {most}]"
        raise BadInput(f"{name} {text!r:.99}", why)
    return int(text)
