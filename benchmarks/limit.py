"""Measures the arithmetic of an iteration alone: no messages, and no waiting for other processes.

    python -m benchmarks.limit [--dataset cifar10_noise] [--workers 4,10,20,40]

Every core computes with one thread, all at once: the steps of workers, each with its own
discriminator, and the server's step for their κ. If all cores were always busy, an iteration would
take (all workers + server) / cores; no schedule is faster. Efficiency is this limit divided by the
time of an iteration in a whole run.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click
import torch

from benchmarks.training import HERE
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.randomness import generator_for
from mdgan.gan.settings import resolve_kappa
from mdgan.settings.machine import num_cores

BATCH_SIZE = 10
SECONDS = 4.0
CPU = torch.device("cpu")


class Arithmetic(NamedTuple):
    """Seconds on one core while the others are equally busy.

    Attributes:
        worker: one local step and one feedback, the mean over the workers of a core.
        server: generating κ batches, one backward pass and one optimizer step.
    """

    worker: float
    server: float

    def limit(self, num_workers: int, cores: int) -> float:
        """Seconds an iteration, if all cores were busy all the time."""
        return (num_workers * self.worker + self.server) / cores


def measure(dataset: str, num_workers: int, settings: Mapping[str, object] | None = None) -> float:
    """The limit in seconds an iteration.

    Args:
        dataset: name of a dataset file.
        num_workers: N.
        settings: those of the run besides b = 10.
    """
    return arithmetic(dataset, num_workers, settings).limit(num_workers, num_cores())


def arithmetic(
    dataset: str, num_workers: int, settings: Mapping[str, object] | None = None
) -> Arithmetic:
    """Measures on all cores at once; returns means over cores of medians over time."""
    cores = num_cores()
    share, extra = divmod(num_workers, cores)
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=spawning) as pool:
        futures = [
            pool.submit(
                _on_one_core, dataset, num_workers, share + (core < extra), dict(settings or {})
            )
            for core in range(cores)
        ]
        each = [future.result() for future in futures]
    return Arithmetic(*(statistics.fmean(figures) for figures in zip(*each, strict=True)))


def _on_one_core(
    name: str, num_workers: int, num_here: int, settings: dict[str, object]
) -> Arithmetic:
    torch.set_num_threads(1)
    dataset = load(name, str(HERE / "datasets"))
    chosen = MDGANSettings.read({"batch_size": BATCH_SIZE, **settings}, dataset.defaults)
    source = dataset.open(Path())
    indices = torch.arange(min(1000, len(source)))
    shards = {
        rank: Shard(source, indices, generator_for(0, "shard", rank))
        for rank in range(1, max(1, num_here) + 1)
    }
    workers = [
        make_worker(rank, chosen, dataset.models, shard, CPU) for rank, shard in shards.items()
    ]
    learner = make_generator_learner(chosen, dataset.models, CPU)
    kappa = chosen.batches.plan(resolve_kappa("auto", num_workers)).generated
    images = learner.generate(kappa)
    fake = images.flattened() if chosen.batches.trains_on_all else images[1]

    def work() -> None:
        for worker in workers:
            worker.learn(fake)
            worker.feedback(images[0])

    def serve() -> None:
        learner.backward(torch.ones_like(learner.generate(kappa).images))
        learner.step()

    return Arithmetic(_median_seconds(work) / len(workers), _median_seconds(serve))


def _median_seconds(work: Callable[[], None]) -> float:
    """Median seconds of some work, repeated so long that all cores compute at the same time."""
    work()
    seconds, end = [], time.monotonic() + SECONDS
    while time.monotonic() < end:
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


@click.command()
@click.option("--dataset", default="cifar10_noise", show_default=True)
@click.option("--workers", default="4,10,20,40", show_default=True)
def main(dataset: str, workers: str) -> None:
    """Measures the arithmetic of an iteration alone."""
    for size in map(int, workers.split(",")):
        figures = arithmetic(dataset, size)
        print(
            f"{size} workers: {1e3 * figures.worker:.2f} ms each, the server "
            f"{1e3 * figures.server:.1f} ms; limit {figures.limit(size, num_cores()):.4f} s an "
            "iteration",
            flush=True,
        )


if __name__ == "__main__":
    main()
