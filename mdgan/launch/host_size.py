"""How many workers share a process where the user leaves it open: no result depends on it."""

import json

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.launch.machine import num_threads
from mdgan.launch.settings import ANY_CORES, LaunchSettings, LinkSettings
from mdgan.settings.machine import num_cores, processor_name
from mdgan.storage.known_number import KnownNumber

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
    about = f"{processor_name()}, {num_cores()} cores, {launch.threads} threads, {source}, "
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
