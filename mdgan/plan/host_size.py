"""Finds by short trials how many workers a host should carry here; only speed depends on it."""

import logging
import time

import torch
import torch._dynamo  # once, before forks: otherwise every fork imports it in its first step

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.launch import machine
from mdgan.launch.forks import ForkFailed
from mdgan.launch.machine import kept_size
from mdgan.launch.models import tried_models
from mdgan.launch.settings import LaunchSettings
from mdgan.plan.layout import Layout, consecutive
from mdgan.plan.phases import step_seconds
from mdgan.plan.short_run import play
from mdgan.settings.climber import HillClimber
from mdgan.settings.machine import num_cores

_log = logging.getLogger(__name__)

_LEAST_STEPS, _LEAST_SECONDS = 3, 0.7  # of each trial
_FASTER = 1.03  # more processes must be this many times faster to be preferred
_HOPELESS = 1 / 1.5  # below this part of the best rate, even more processes are not tried
_SAMPLES = 10  # batches of a shard; only rounds counted in epochs depend on it


def best_host_size(settings: RunSettings, launch: LaunchSettings, dataset: DatasetFile) -> int:
    """Measures how many workers a host here should carry, or reads what was measured before."""
    torch.set_num_threads(1)  # processes forked from this one must not inherit a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    count = settings.num_workers
    held = [[_SAMPLES * settings.training.batch_size]] * count
    planning = entry.build().planning(settings, models, held)
    kept = kept_size(settings, launch, models.source)
    size = kept.read()
    if size is not None:
        _log.info("%d worker(s) a host, as measured here before", size)
        return size

    def seconds(size: int) -> float:
        sizes = [min(size, count - first) for first in range(0, count, size)]
        threads = machine.num_threads(launch, 1 + len(sizes))
        server_threads = machine.num_threads(launch)
        layout = Layout(
            consecutive(sizes), num_cores(), threads, server_threads=server_threads, shared=True
        )
        begins = count if planning.by_arrival else 1
        least = _LEAST_STEPS * begins, _LEAST_SECONDS
        server, *_ = play(dataset, planning.settings, layout, least=least)
        return step_seconds(server.charges, entry.server_phases[0], begins)

    began = time.monotonic()
    _log.info("measuring how many workers a host should carry …", extra={"shown": "doing"})
    climber = HillClimber(candidates(count, num_cores()), _FASTER, _HOPELESS)
    while not climber.settled:
        try:
            climber.note(1 / seconds(climber.candidate))
        except ForkFailed:  # too many processes for this machine
            climber.note(0.0)
    kept.write(climber.candidate)
    rates = ", ".join(f"{size}: {rate:.3g}" for size, rate in climber.tried if rate)
    took = f"{time.monotonic() - began:.0f} s ({entry.unit}s/s by workers of a host: {rates})"
    _log.info("%d worker(s) a host, measured in %s", climber.candidate, took)
    return climber.candidate


def candidates(num_workers: int, cores: int) -> list[int]:
    """Workers per host to try, most first: all, one host per core, halves of that, and one."""
    size = -(-num_workers // cores)
    sizes = {num_workers, size, 1}
    while size > 1:
        size = -(-size // 2)
        sizes.add(size)
    return sorted(sizes, reverse=True)
