"""Which ranks run here, and in which processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.task import LaunchedTask
from mdgan.spelling import flag, key

_ROOM_FACTOR = 4
_LEAST_ROOM = 33
"""How many ranks may take part unless the user says so: some times as many as at the start."""


@dataclass(frozen=True)
class LocalRanks:
    """The ranks of this machine: rank 0 if it serves, and the consecutive workers of each host."""

    serves: bool
    hosts: tuple[tuple[int, ...], ...]
    complete: bool

    @property
    def num_processes(self) -> int:
        """How many processes that makes."""
        return self.serves + len(self.hosts)

    def workers(self) -> list[int]:
        """All workers here in increasing order."""
        return [worker for host in self.hosts for worker in host]


def ends_of(workers: Sequence[int], between: str = "-") -> str:
    """The first and the last of consecutive ranks; one number if they are the same."""
    return between.join(map(str, sorted({workers[0], workers[-1]})))


def parse_ranks(text: str, world_size: int) -> list[int]:
    """Reads `--ranks`: numbers and inclusive ranges, `0,1,2` or `0..30`, in increasing order."""
    ranks: list[int] = []
    given = flag("ranks", text)
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            start, end = int(first), int(last) if dots else int(first)
        except ValueError as error:
            raise BadInput(given, f"{part!r} is no rank", 'write "0,1,2" or "0..30"') from error
        if end < start:
            raise BadInput(given, f"{part} runs backwards", f"write {end}..{start}")
        outside = start if start < 0 else end
        if not 0 <= outside < world_size:
            many = flag("world_size", world_size)
            raise BadInput(given, f"rank {outside} is outside 0..{world_size - 1} ({many})")
        ranks.extend(range(start, end + 1))
    ranks.sort()
    for rank, after in pairwise(ranks):
        if rank == after:
            raise BadInput(given, f"rank {rank} is given twice")
    return ranks


def local_ranks(
    run: RunSettings, launch: LaunchSettings, task: LaunchedTask | None, default_size: int = 1
) -> LocalRanks:
    """Decides which ranks run on this machine, or in this one of a launcher's processes.

    Args:
        default_size: workers of a process unless the user says; see `default_host_size`.
    """
    most_ranks(run, launch)
    if run.num_placed is not None and launch.workers_per_host not in (None, 1):
        why = f"with {flag('clients')} a host is one rank, and has {flag('slots')}"
        raise BadInput(flag("workers_per_host", launch.workers_per_host), why, "leave it out")
    if task is not None:
        return _ranks_of_task(run, launch, task)
    ranks = list(range(run.world_size))
    if launch.ranks is not None:
        ranks = parse_ranks(launch.ranks, run.world_size)
    carried = launch.workers_per_host
    if carried is None or carried == "auto":  # a number stands there before the run begins
        carried = run.num_workers if launch.transport == "memory" else default_size
    if run.num_placed is not None:
        carried = 1
    hosts: list[list[int]] = []
    for worker in (rank for rank in ranks if rank > 0):
        if hosts and len(hosts[-1]) < carried and hosts[-1][-1] == worker - 1:
            hosts[-1].append(worker)
        else:
            hosts.append([worker])
    return LocalRanks(0 in ranks, tuple(map(tuple, hosts)), complete=len(ranks) == run.world_size)


def most_ranks(run: RunSettings, launch: LaunchSettings) -> int:
    """The highest rank that may ever take part, as rank 0 decides."""
    given = launch.links.max_world_size
    if given is not None and given < run.world_size:
        why = f"the run starts with {flag('world_size', run.world_size)}"
        raise BadInput(key("max_world_size", given), why, "give as many or more")
    return (given or max(_LEAST_ROOM, _ROOM_FACTOR * run.world_size)) - 1


def _ranks_of_task(run: RunSettings, launch: LaunchSettings, task: LaunchedTask) -> LocalRanks:
    by = task.launcher
    _check_no_rank_is_ours(launch, by, "which rank runs", f"start it without {by}")
    carried = launch.carried(by) or 1
    world_size = task.world_size(carried)
    if run.world_size != world_size:
        makes = f"makes {world_size} ranks with {flag('workers_per_host', carried)}"
        why = f"{by} started {task.num_processes} processes, which {makes}"
        raise BadInput(flag("world_size", run.world_size), why)
    first = (task.process - 1) * carried + 1
    hosts = (tuple(range(first, first + carried)),) if task.process else ()
    return LocalRanks(serves=task.process == 0, hosts=hosts, complete=False)


def ranks_elsewhere(launch: LaunchSettings) -> LocalRanks:
    """The ranks of a process that has Ray start all of them: none."""
    way_out = f"leave {flag('launcher', 'ray')} out"
    _check_no_rank_is_ours(launch, "Ray", "where each rank runs", way_out)
    return LocalRanks(serves=False, hosts=(), complete=False)


def _check_no_rank_is_ours(launch: LaunchSettings, by: str, what: str, way_out: str) -> None:
    """Checks that the user says nothing of processes, of which something else says `what`."""
    if launch.ranks is not None:
        raise BadInput(flag("ranks", launch.ranks), f"{by} says {what}", "leave it out")
    if launch.transport == "memory":
        raise BadInput(flag("transport", "memory"), "needs one process", way_out)
    if launch.core_sets:
        way_out = "pin them there, and leave it out"
        raise BadInput(flag("cores", launch.cores), f"{by} starts every process", way_out)
