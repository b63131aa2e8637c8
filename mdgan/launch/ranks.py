"""Decides which ranks run on this machine, and which workers share a process."""

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
"""Without `max_world_size`, 4 times the first ranks may take part in a run, and at least 33."""


@dataclass(frozen=True)
class LocalRanks:
    """The ranks of this machine."""

    serves: bool  # whether rank 0 is one of them
    hosts: tuple[tuple[int, ...], ...]  # the consecutive workers of each host
    complete: bool  # whether these are all ranks of the run

    @property
    def num_processes(self) -> int:
        """The number of processes: one for each host, and one for the server if it serves."""
        return self.serves + len(self.hosts)

    def workers(self) -> list[int]:
        """All workers of this machine in increasing order."""
        return [worker for host in self.hosts for worker in host]


def ends_of(workers: Sequence[int], between: str = "-") -> str:
    """Writes consecutive ranks as the first and the last, such as `3-7`, or as a single number."""
    return between.join(map(str, sorted({workers[0], workers[-1]})))


def parse_ranks(text: str, world_size: int) -> list[int]:
    """Reads `--ranks`: numbers and inclusive ranges, `0,1,2` or `0..30`, in increasing order."""
    ranks: list[int] = []
    named = flag("ranks", text)
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            start, end = int(first), int(last) if dots else int(first)
        except ValueError as error:
            raise BadInput(named, f"{part!r} is no rank", 'write "0,1,2" or "0..30"') from error
        if end < start:
            raise BadInput(named, f"{part} runs backwards", f"write {end}..{start}")
        outside = start if start < 0 else end
        if not 0 <= outside < world_size:
            many = flag("world_size", world_size)
            raise BadInput(named, f"rank {outside} is outside 0..{world_size - 1} ({many})")
        ranks.extend(range(start, end + 1))
    ranks.sort()
    for rank, after in pairwise(ranks):
        if rank == after:
            raise BadInput(named, f"rank {rank} is given twice")
    return ranks


def local_ranks(
    run: RunSettings, launch: LaunchSettings, task: LaunchedTask | None, default_size: int = 1
) -> LocalRanks:
    """Decides which ranks run on this machine, or in this process if a launcher started it.

    Args:
        default_size: workers of a process, if the user does not say; see `default_host_size`.
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
    size = launch.workers_per_host
    if size is None or size == "auto":  # before the run begins, a measurement replaces auto
        size = run.num_workers if launch.transport == "memory" else default_size
    if run.num_placed is not None:
        size = 1
    hosts: list[list[int]] = []
    for worker in (rank for rank in ranks if rank > 0):
        if hosts and len(hosts[-1]) < size and hosts[-1][-1] == worker - 1:
            hosts[-1].append(worker)
        else:
            hosts.append([worker])
    return LocalRanks(0 in ranks, tuple(map(tuple, hosts)), complete=len(ranks) == run.world_size)


def most_ranks(run: RunSettings, launch: LaunchSettings) -> int:
    """The highest rank that rank 0 lets take part at any time."""
    limit = launch.links.max_world_size
    if limit is not None and limit < run.world_size:
        why = f"the run starts with {flag('world_size', run.world_size)}"
        raise BadInput(key("max_world_size", limit), why, "give as many or more")
    return (limit or max(_LEAST_ROOM, _ROOM_FACTOR * run.world_size)) - 1


def _ranks_of_task(run: RunSettings, launch: LaunchSettings, task: LaunchedTask) -> LocalRanks:
    by = task.launcher
    _check_no_rank_is_ours(launch, by, "which rank runs", f"start it without {by}")
    size = launch.carried(by) or 1
    world_size = task.world_size(size)
    if run.world_size != world_size:
        makes = f"makes {world_size} ranks with {flag('workers_per_host', size)}"
        why = f"{by} started {task.num_processes} processes, which {makes}"
        raise BadInput(flag("world_size", run.world_size), why)
    first = (task.process - 1) * size + 1
    hosts = (tuple(range(first, first + size)),) if task.process else ()
    return LocalRanks(serves=task.process == 0, hosts=hosts, complete=False)


def ranks_elsewhere(launch: LaunchSettings) -> LocalRanks:
    """No ranks: this process has Ray start all of them on the cluster's nodes."""
    way_out = f"leave {flag('launcher', 'ray')} out"
    _check_no_rank_is_ours(launch, "Ray", "where each rank runs", way_out)
    return LocalRanks(serves=False, hosts=(), complete=False)


def _check_no_rank_is_ours(launch: LaunchSettings, by: str, what: str, way_out: str) -> None:
    """Refuses settings that place processes, since a launcher (`by`) decides that."""
    if launch.ranks is not None:
        raise BadInput(flag("ranks", launch.ranks), f"{by} says {what}", "leave it out")
    if launch.transport == "memory":
        raise BadInput(flag("transport", "memory"), "needs one process", way_out)
    if launch.core_sets:
        way_out = "pin them there, and leave it out"
        raise BadInput(flag("cores", launch.cores), f"{by} starts every process", way_out)
