"""How many workers a host should carry here: tried out before a run; no result depends on it."""

import logging
import time

import torch
import torch._dynamo  # as the launcher: else every fork does in its first step

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
_FASTER = 1.03  # a trial with more processes counts as faster from here on
_HOPELESS = 1 / 1.5  # at such a part of the best rate, yet more processes are not tried
_SAMPLES = 10  # batches of a shard; only rounds by epochs read it, and trials shorten them


def best_host_size(settings: RunSettings, launch: LaunchSettings, dataset: DatasetFile) -> int:
    """How many workers a host here should carry, with a line for the user about it."""
    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    count = settings.num_workers
    held = [[_SAMPLES * settings.training.batch_size]] * count
    planning = entry.build().planning(settings, models, held)
    known = kept_size(settings, launch, models.source)
    size = known.read()
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
    known.write(climber.candidate)
    rates = ", ".join(f"{size}: {rate:.3g}" for size, rate in climber.tried if rate)
    took = f"{time.monotonic() - began:.0f} s ({entry.unit}s/s by workers of a host: {rates})"
    _log.info("%d worker(s) a host, measured in %s", climber.candidate, took)
    return climber.candidate


def candidates(num_workers: int, cores: int) -> list[int]:
    """Sizes of hosts to try, the largest first: all workers, a host a core, one, halves between."""
    size = -(-num_workers // cores)
    sizes = {num_workers, size, 1}
    while size > 1:
        size = -(-size // 2)
        sizes.add(size)
    return sorted(sizes, reverse=True)
