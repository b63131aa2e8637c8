"""Shares the cores, devices and memory of this machine among its processes."""

import ctypes
import json
import platform
import resource
import struct
import sys
from collections.abc import Sequence

import torch

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.launch.settings import ANY_CORES, LaunchSettings, LinkSettings
from mdgan.settings.machine import num_cores, pin, processor_name
from mdgan.spelling import flag
from mdgan.storage.known_number import KnownNumber

_LEAST_FILES = 64


def num_threads(
    settings: LaunchSettings, computing_at_once: int = 1, cores_each: int | None = None
) -> int:
    """The number of compute threads of a process: `--threads`, or its share of the cores.

    Args:
        computing_at_once: processes that share the cores; 1 for the server, since the workers wait
            while it computes.
        cores_each: the cores that a launcher reserves for each process.
    """
    if settings.threads != "auto":
        return settings.threads
    if cores_each is not None:
        return min(cores_each, num_cores())
    return max(1, num_cores() // computing_at_once)


def take_cores(settings: LaunchSettings, host_here: int, num_hosts: int) -> int | None:
    """Pins this process to the entry of `--cores` for the host with index `host_here`.

    Returns:
        How many hosts use any of its cores, itself included; None if the user gave no `--cores`.
    """
    sets = settings.core_sets
    if not sets:
        return None
    local, *others = (sets[(host_here + turn) % num_hosts % len(sets)] for turn in range(num_hosts))
    pin(local)
    return 1 + sum(bool(local & other) for other in others)


def cores_of_slots(
    settings: LaunchSettings, host: tuple[int, ...], hosts: Sequence[tuple[int, ...]]
) -> tuple[frozenset[int], ...]:
    """The cores of each slot of a host, by `--cores`; empty if slots may use all cores."""
    sets, place = settings.core_sets, hosts.index(host)
    return tuple(sets[(place + len(hosts) * slot) % len(sets)] for slot in range(len(sets)))


def flush_denormals(settings: RunSettings) -> None:
    """With privacy, rounds numbers below 10⁻³⁸ to 0, in this thread and in those that it starts.

    Some processors compute many times as long with them. An observer who measures times could learn
    of the samples that lead to them.
    """
    if settings.privacy.covers_samples:
        torch.set_flush_denormal(True)


def check_open_files() -> None:
    """Checks that the system lets this process and its children open enough files."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= allowed < _LEAST_FILES:
        why = "allows processes too few open files"
        raise BadInput(f"ulimit -n {allowed}", why, f"give {_LEAST_FILES} or more")


def resolve_device(name: str, process_here: int) -> torch.device:
    """The device of one of this machine's processes, which take the GPUs in turn."""
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


_KEPT_BYTES = 1 << 28  # kept at most, of the end of the heap and of a single tensor
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h
_SLICE_NANOSECONDS = 100_000_000  # the longest that the kernel grants
_CALLS = {"x86_64": 314, "aarch64": 274}
"""sched_setattr, by machine: neither Python nor the C library has a name for it."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_NORMAL = 0


def keep_freed_memory() -> bool:
    """Asks glibc to keep memory that this process frees; returns whether glibc does so.

    Each iteration makes megabytes of models and messages anew. If freed memory went back to the
    kernel, the kernel would clear each page again at its next use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return all(mallopt(what, _KEPT_BYTES) == 1 for what in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def ask_for_long_slices() -> bool:
    """Asks the kernel for turns of 0.1 s for this thread and its children; returns if granted.

    An answer takes tens of milliseconds. With more hosts than cores the kernel would take a core
    away every few milliseconds, and each host would find the caches full of other hosts' weights.
    Linux 6.12 and later grant longer turns. A process that wakes up still gets a core at once.
    """
    number = _CALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    slice_of_it = (_SLICE_NANOSECONDS, 0, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _NORMAL, 0, 0, 0, *slice_of_it)
    this_thread = 0
    done: int = ctypes.CDLL(None).syscall(number, this_thread, attributes, 0)
    return done == 0


_MOST_OPERATIONS = 100e6
"""Workers share processes if an answer takes fewer operations. All models that were measured below
that gain by it, since messages take a process about 1 ms an iteration."""


def default_host_size(settings: RunSettings, launch: LaunchSettings, models: Models) -> int:
    """How many workers each process should carry, if this machine starts all of them.

    The number is what `--workers-per-host auto` measured here before, if this does not change the
    threads of a process, on which bits depend. Else it follows from the operations of an answer.
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
    """The workers of a host, so that each core has one host; 1 if an answer takes long."""
    if num_workers <= cores or operations > _MOST_OPERATIONS:
        return 1
    size = -(-num_workers // cores)
    return size if _num_hosts(num_workers, size) >= cores else num_workers // cores


def kept_size(settings: RunSettings, launch: LaunchSettings, source: str) -> KnownNumber:
    """The file in which this machine keeps what `--workers-per-host auto` measured for a run."""
    decides = settings.as_json(shared=True) | {"seed": 0, "iterations": 0}
    about = f"{processor_name()}, {num_cores()} cores, {launch.threads} threads, {source!s}, "
    about += json.dumps(decides, sort_keys=True)
    return KnownNumber("host_sizes", about, settings.num_workers)


def _is_open(settings: RunSettings, launch: LaunchSettings) -> bool:
    """Whether mdgan may choose which workers share a process, since no setting depends on it."""
    unset = (launch.workers_per_host, launch.ranks, launch.links.listen, settings.faults.deadline)
    return (
        all(value is None for value in unset)
        and launch.links.master_addr == LinkSettings().master_addr
        and (launch.transport, launch.device, launch.cores) == ("tcp", "cpu", ANY_CORES)
        and (settings.num_placed, settings.participation) == (None, 1)
        and not (settings.secure.secure_aggregation or settings.privacy.has_dp)
    )


def _threads(launch: LaunchSettings, num_workers: int, size: int) -> int:
    return num_threads(launch, 1 + _num_hosts(num_workers, size))


def _num_hosts(num_workers: int, size: int) -> int:
    return -(-num_workers // size)
