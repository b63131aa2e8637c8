"""How many workers a host should carry on this machine: tried out before a run begins.

Few processes share memory and messages, many share the cores out; which is faster depends on the
models, the batch and the machine. No result depends on it.
"""

import json
import logging
import time
from collections.abc import Callable

import torch
import torch._dynamo  # as the launcher: else every fork does in its first step

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.launch import machine
from mdgan.launch.models import tried_models
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.forks import ForkFailed
from mdgan.plan.layout import Layout, consecutive
from mdgan.plan.phases import step_seconds
from mdgan.plan.short_run import play
from mdgan.plan.stages import times
from mdgan.settings.machine import num_cores, processor_name
from mdgan.storage.known_number import KnownNumber

_log = logging.getLogger(__name__)

_LEAST = (3, 0.7)
"""Steps and seconds of each trial."""
_FASTER = 1.03
"""A trial with more processes counts as faster from here on."""
_HOPELESS = 1.5
"""So much slower than the best, and yet more processes are not tried."""
_SAMPLES = 10
"""Batches of a shard; only rounds by epochs read it, and trials shorten them."""


def best_host_size(settings: RunSettings, launch: LaunchSettings, dataset: DatasetFile) -> int:
    """How many workers a host should carry, with a line for the user about it.

    Args:
        settings: of the run, all of whose workers are on this machine.
        launch: of this machine.
        dataset: its models and shape; no data are read.
    """
    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    count = settings.num_workers
    held = [[_SAMPLES * settings.training.batch_size]] * count
    planning = entry.build().planning(settings, models, held)
    decides = planning.settings.as_json(shared=True) | {"seed": 0, "iterations": 0}
    about = f"{processor_name()}, {num_cores()} cores, {launch.threads} threads, {models.source}, "
    known = KnownNumber("host_sizes", about + json.dumps(decides, sort_keys=True), count)
    size = known.read()
    if size is not None:
        _log.info("%d worker(s) a host, as measured here before", size)
        return size

    def seconds(size: int) -> float:
        hosts = consecutive([min(size, count - first) for first in range(0, count, size)])
        threads = machine.num_threads(launch, 1 + len(hosts))
        layout = Layout(hosts, num_cores(), threads, machine.num_threads(launch), shared=True)
        steps, least = _LEAST
        begins = times("", [(len(own),) for own in hosts], by_arrival=planning.by_arrival)
        server, *_ = play(dataset, planning.settings, layout, (steps * begins, least))
        return step_seconds(server.charges, entry.server_phases[0], begins)

    began = time.monotonic()
    _log.info("measuring how many workers a host should carry …", extra={"shown": "doing"})
    size, tried = fastest(candidates(count, num_cores()), seconds)
    known.write(size)
    rates = ", ".join(f"{each}: {1 / took:.3g}" for each, took in tried.items())
    took = time.monotonic() - began
    _log.info(
        "%d worker(s) a host, measured in %.0f s (%ss/s by workers of a host: %s)",
        size,
        took,
        entry.unit,
        rates,
    )
    return size


def candidates(num_workers: int, cores: int) -> list[int]:
    """Sizes of hosts that are worth a trial, the largest first.

    One process for all workers, one a core, one a worker, and halves between.
    """
    found = {num_workers, -(-num_workers // cores), 1}
    size = -(-num_workers // cores)
    while size > 1:
        size = -(-size // 2)
        found.add(size)
    return sorted(found, reverse=True)


def fastest(sizes: list[int], seconds: Callable[[int], float]) -> tuple[int, dict[int, float]]:
    """The size of a host with which a step takes least, and what each size took that was tried.

    Args:
        sizes: the largest first; of nearly equal ones it stays with that.
        seconds: of a step.
    """
    best, tried = sizes[0], dict[int, float]()
    for size in sizes:
        try:
            tried[size] = seconds(size)
        except ForkFailed:  # too many processes for this machine
            break
        if _FASTER * tried[size] < tried[best]:
            best = size
        elif tried[size] > _HOPELESS * tried[best]:
            break
    return best, tried
