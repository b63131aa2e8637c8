"""Which ranks run here, and in which processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings


@dataclass(frozen=True)
class LocalRanks:
    """The ranks of this machine.

    Attributes:
        serves: whether rank 0 is among them.
        hosts: the workers of each host process, consecutive and in increasing order.
        complete: whether all ranks of the run are here.
    """

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


@dataclass(frozen=True)
class Torchrun:
    """What torchrun tells each of its processes by environment variables.

    Attributes:
        process: RANK.
        num_processes: WORLD_SIZE.
        processes_here: LOCAL_WORLD_SIZE.
        process_here: LOCAL_RANK.
        master_addr: MASTER_ADDR.
        master_port: MASTER_PORT.
        store_is_up: whether torchrun itself serves a store on that port.
        attempt: a number that differs between restarts of the same job.
    """

    process: int
    num_processes: int
    processes_here: int
    process_here: int
    master_addr: str
    master_port: int
    store_is_up: bool
    attempt: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Torchrun | None":
        """Reads the variables; None if this process was not started by torchrun.

        Raises:
            BadInput: only some of them are there, or one is not a number.
        """
        needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        there = [name for name in needed if name in environment]
        if "RANK" not in there:
            return None
        if len(there) < len(needed):
            missing = ", ".join(name for name in needed if name not in there)
            raise BadInput(f"RANK is set, as torchrun does, but {missing} is not; set all or none")
        try:
            torchrun = cls(
                process=int(environment["RANK"]),
                num_processes=int(environment["WORLD_SIZE"]),
                processes_here=int(environment.get("LOCAL_WORLD_SIZE", "1")),
                process_here=int(environment.get("LOCAL_RANK", "0")),
                master_addr=environment["MASTER_ADDR"],
                master_port=int(environment["MASTER_PORT"]),
                store_is_up=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
                attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
            )
        except ValueError as error:
            raise BadInput(f"torchrun's variables must be numbers: {error}") from error
        if not 0 <= torchrun.process < torchrun.num_processes:
            raise BadInput(
                f"RANK {torchrun.process}: must be in [0, WORLD_SIZE {torchrun.num_processes})"
            )
        return torchrun

    def world_size(self, workers_per_host: int) -> int:
        """The number of ranks when each of torchrun's other processes carries W workers."""
        return 1 + (self.num_processes - 1) * workers_per_host


def parse_ranks(text: str, world_size: int) -> list[int]:
    """Reads `--ranks`: numbers and inclusive ranges, `0,1,2` or `0..30`.

    Returns:
        The ranks in increasing order.

    Raises:
        BadInput: not of that form, a rank twice, or one outside the world.
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            start, end = int(first), int(last) if dots else int(first)
        except ValueError as error:
            raise BadInput(
                f'--ranks {text}: {part!r} is no rank; write "0,1,2" or "0..30"'
            ) from error
        if end < start:
            raise BadInput(f"--ranks {text}: {part} runs backwards; write {end}..{start}")
        outside = start if start < 0 else end
        if not 0 <= outside < world_size:
            raise BadInput(
                f"--ranks {text}: rank {outside} is outside 0..{world_size - 1} "
                f"(--world-size {world_size})"
            )
        ranks.extend(range(start, end + 1))
    ranks.sort()
    for rank, after in pairwise(ranks):
        if rank == after:
            raise BadInput(f"--ranks {text}: rank {rank} is given twice")
    return ranks


def local_ranks(run: RunSettings, launch: LaunchSettings, torchrun: Torchrun | None) -> LocalRanks:
    """Decides which ranks run on this machine, or in this one of torchrun's processes.

    Raises:
        BadInput: `--ranks` is wrong, or contradicts torchrun.
    """
    everything = list(range(run.world_size))
    if torchrun is not None:
        return _ranks_of_torchrun(run, launch, torchrun)
    ranks = everything
    if launch.ranks is not None:
        ranks = parse_ranks(launch.ranks, run.world_size)
    workers = [rank for rank in ranks if rank > 0]
    carried = launch.workers_per_host
    if carried is None:
        carried = run.num_workers if launch.transport == "memory" else 1
    return LocalRanks(
        serves=0 in ranks, hosts=_consecutive(workers, carried), complete=ranks == everything
    )


def _ranks_of_torchrun(run: RunSettings, launch: LaunchSettings, torchrun: Torchrun) -> LocalRanks:
    if launch.ranks is not None:
        raise BadInput(f"--ranks {launch.ranks}: torchrun says which rank runs; leave it out")
    if launch.transport == "memory":
        raise BadInput("--transport memory: needs one process; start it without torchrun")
    carried = launch.workers_per_host or 1
    world_size = torchrun.world_size(carried)
    if run.world_size != world_size:
        raise BadInput(
            f"--world-size {run.world_size}: torchrun started {torchrun.num_processes} "
            f"processes, which makes {world_size} ranks with --workers-per-host {carried}"
        )
    if torchrun.process == 0:
        return LocalRanks(serves=True, hosts=(), complete=False)
    first = (torchrun.process - 1) * carried + 1
    workers = tuple(range(first, first + carried))
    return LocalRanks(serves=False, hosts=(workers,), complete=False)


def _consecutive(workers: list[int], at_most: int) -> tuple[tuple[int, ...], ...]:
    """Cuts workers into runs of consecutive ranks, each with at most this many."""
    hosts: list[list[int]] = []
    for worker in workers:
        if hosts and len(hosts[-1]) < at_most and hosts[-1][-1] == worker - 1:
            hosts[-1].append(worker)
        else:
            hosts.append([worker])
    return tuple(tuple(host) for host in hosts)
