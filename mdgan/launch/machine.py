"""How the cores and devices of this machine are shared out among its processes."""

import json
import resource
from collections.abc import Sequence

import torch

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.launch.settings import ANY_CORES, LaunchSettings, LinkSettings
from mdgan.settings.machine import num_cores, pin
from mdgan.spelling import flag
from mdgan.storage.known_number import KnownNumber
from mdgan.system import processor_name

_LEAST_FILES = 64


def num_threads(
    settings: LaunchSettings, computing_at_once: int = 1, cores_each: int | None = None
) -> int:
    """Compute threads of a process: `--threads`, or its share of the cores.

    Args:
        computing_at_once: processes that share the cores; 1 for the server, since the workers wait
            while it computes.
        cores_each: those that a launcher has set aside for each process.
    """
    if settings.threads != "auto":
        return settings.threads
    if cores_each is not None:
        return min(cores_each, num_cores())
    return max(1, num_cores() // computing_at_once)


def take_cores(settings: LaunchSettings, host_here: int, num_hosts: int) -> int | None:
    """Pins this process, the host of that number here, to its entry of `--cores`.

    Returns:
        How many of these hosts have any of its cores, itself included; None if `--cores` was not
        given and nothing was changed.
    """
    sets = settings.core_sets
    if not sets:
        return None
    own, *others = (sets[(host_here + turn) % num_hosts % len(sets)] for turn in range(num_hosts))
    pin(own)
    return 1 + sum(bool(own & other) for other in others)


def cores_of_slots(
    settings: LaunchSettings, host: tuple[int, ...], hosts: Sequence[tuple[int, ...]]
) -> tuple[frozenset[int], ...]:
    """The cores of one slot of a host after another, by `--cores`; empty if slots may use all."""
    sets, place = settings.core_sets, hosts.index(host)
    return tuple(sets[(place + len(hosts) * slot) % len(sets)] for slot in range(len(sets)))


def flush_denormals(settings: RunSettings) -> None:
    """Counts numbers below 10⁻³⁸ as 0, in this thread and in all that it starts.

    Some processors take many times as long for them, which would tell of samples that lead to them.
    """
    if settings.privacy.covers_samples:
        torch.set_flush_denormal(True)


def check_open_files() -> None:
    """Checks that this process, and those that it starts, may open as many files as they need."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= allowed < _LEAST_FILES:
        why = "allows processes too few open files"
        raise BadInput(f"ulimit -n {allowed}", why, f"give {_LEAST_FILES} or more")


def resolve_device(name: str, process_here: int) -> torch.device:
    """The device of one of this machine's processes; GPUs are given out in turn."""
    # Counting GPUs must not initialise CUDA: the launcher forks afterwards.
    num_gpus = torch.cuda.device_count()
    has_mps = torch.backends.mps.is_available()
    on_cpu = flag("device", "cpu")
    if name == "auto":
        name = "cuda" if num_gpus else "mps" if has_mps else "cpu"
    if name == "cuda" and not num_gpus:
        raise BadInput(flag("device", name), "no CUDA GPU found here", f"use {on_cpu}")
    if name == "mps" and not has_mps:
        raise BadInput(flag("device", name), "no Apple GPU found here", f"use {on_cpu}")
    return torch.device("cuda", process_here % num_gpus) if name == "cuda" else torch.device(name)


_MOST_OPERATIONS = 100e6
"""Of an answer, for workers to share processes. All models measured below that gain by it: what a
process takes for its messages, about 1 ms an iteration, is much beside such an answer."""


def default_host_size(settings: RunSettings, launch: LaunchSettings, models: Models) -> int:
    """How many workers each process of a machine that starts all of them should carry.

    More than one only where each process computes with as many threads as it would with one, since
    that decides bits; as measured here before, else by what an answer takes.
    """
    count = settings.num_workers
    if not (count > num_cores() and _is_open(settings, launch)):
        return 1
    builder = registry.algorithm(settings.algorithm).build()
    operations = builder.answer_operations(settings, models)
    if operations is None:
        return 1
    kept = kept_size(settings, launch, models.source).read()
    if kept is not None and _threads(launch, count, kept) == _threads(launch, count, 1):
        return kept
    return size_for(count, num_cores(), operations)


def size_for(num_workers: int, cores: int, operations: float) -> int:
    """As many workers a host as leave one to each core; 1 if an answer has many operations."""
    if num_workers <= cores or operations > _MOST_OPERATIONS:
        return 1
    size = -(-num_workers // cores)
    return size if _num_hosts(num_workers, size) >= cores else num_workers // cores


def kept_size(settings: RunSettings, launch: LaunchSettings, source: str) -> KnownNumber:
    """What `--workers-per-host auto` found for such a run, and models' source, here."""
    decides = settings.as_json(shared=True) | {"seed": 0, "iterations": 0}
    about = f"{processor_name()}, {num_cores()} cores, {launch.threads} threads, {source!s}, "
    about += json.dumps(decides, sort_keys=True)
    return KnownNumber("host_sizes", about, settings.num_workers)


def _is_open(settings: RunSettings, launch: LaunchSettings) -> bool:
    """Whether nothing that the user has asked for depends on which workers share a process."""
    given = (launch.workers_per_host, launch.ranks, launch.links.listen, settings.faults.deadline)
    return (
        all(value is None for value in given)
        and launch.links.master_addr == LinkSettings().master_addr
        and (launch.transport, launch.device, launch.cores) == ("tcp", "cpu", ANY_CORES)
        and (settings.num_placed, settings.participation) == (None, 1)
        and not (settings.secure.secure_aggregation or settings.privacy.has_dp)
    )


def _threads(launch: LaunchSettings, num_workers: int, size: int) -> int:
    return num_threads(launch, 1 + _num_hosts(num_workers, size))


def _num_hosts(num_workers: int, size: int) -> int:
    return -(-num_workers // size)
