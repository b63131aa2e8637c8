"""Ranks that torchrun starts: the variables that it sets for each of its processes."""

import os
from collections.abc import Mapping

from msgspec import Struct, ValidationError, convert, structs

from mdgan.errors import BadInput
from mdgan.launch.task import Task

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


class _Variables(Struct, frozen=True, rename={**_NEEDED, **_OTHERS}):
    """The variables, named as the attributes of `Task` are."""

    process: int
    num_processes: int
    master_addr: str
    master_port: int
    processes_here: int = 1
    process_here: int = 0
    store_is_up: bool = False
    attempt: str = "0"


def task_of_torchrun(environment: Mapping[str, str] = os.environ) -> Task | None:
    """Reads torchrun's variables; None if this process was not started by torchrun.

    Raises:
        BadInput: only some of them are there, or one is not a number.
    """
    needed = _NEEDED.values()
    there = [name for name in needed if name in environment]
    if "RANK" not in there:
        return None
    if len(there) < len(needed):
        missing = ", ".join(name for name in needed if name not in there)
        raise BadInput(f"RANK is set, as torchrun does, but {missing} is not; set all or none")
    try:
        variables = convert(dict(environment), _Variables, strict=False)
    except ValidationError as error:
        raise BadInput(f"torchrun's variables must be numbers: {error}") from error
    task = Task("torchrun", **structs.asdict(variables))
    if not 0 <= task.process < task.num_processes:
        raise BadInput(f"RANK {task.process}: must be in [0, WORLD_SIZE {task.num_processes})")
    return task
