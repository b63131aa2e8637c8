"""What the arithmetic of an iteration costs alone: no message, no other process to wait for.

    python -m benchmarks.limit [--dataset cifar10_noise]

Measures, on all cores at the same time with a thread each, what a worker computes in an iteration
and what the server does, for every κ that is needed. Perfectly packed, an iteration with N workers
takes (N · worker + server) / cores; no schedule is faster. Efficiency is that, divided by what was
measured of a whole run.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import torch

from benchmarks.training import HERE
from mdgan.algorithms.mdgan import resolve_kappa
from mdgan.config import build_experiment
from mdgan.data.dataset_file import load
from mdgan.roles.setup import make_generator_learner, make_shard, make_worker

BATCH_SIZE = 10
SECONDS = 4.0
CPU = torch.device("cpu")


class Arithmetic(NamedTuple):
    """Seconds, on one core while the others are as busy.

    Attributes:
        worker: one local step and one feedback.
        server: generating, one backward pass and one optimizer step, by κ.
    """

    worker: float
    server: dict[int, float]

    def limit(self, num_workers: int, cores: int) -> float:
        """Seconds an iteration, if all cores were busy all the time."""
        server = self.server[resolve_kappa("auto", num_workers)]
        return (num_workers * self.worker + server) / cores


def measure(dataset: str, sizes: Sequence[int]) -> Arithmetic:
    """Measures on all cores at once; medians over time, then over cores."""
    cores, kappas = num_cores(), sorted({resolve_kappa("auto", size) for size in sizes})
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=spawning) as pool:
        found = [pool.submit(_on_one_core, dataset, kappas) for _ in range(cores)]
        each = [future.result() for future in found]
    server = {kappa: statistics.median(one.server[kappa] for one in each) for kappa in kappas}
    return Arithmetic(statistics.median(one.worker for one in each), server)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _on_one_core(name: str, kappas: Sequence[int]) -> Arithmetic:
    torch.set_num_threads(1)
    dataset = load(name, str(HERE / "datasets"))
    experiment = build_experiment({"batch_size": BATCH_SIZE}, dataset.defaults)
    source = dataset.open(Path())
    shard = make_shard(1, source, torch.arange(min(1000, len(source))), 0)
    worker = make_worker(1, dataset, experiment, shard, CPU)
    learner = make_generator_learner(dataset, experiment, CPU)
    images = learner.generate(2)

    def work() -> None:
        worker.learn(images[1])
        worker.feedback(images[0])

    def serve(kappa: int) -> None:
        learner.backward(torch.ones_like(learner.generate(kappa)))
        learner.step()

    worker_seconds = _median_seconds(work)
    return Arithmetic(worker_seconds, {k: _median_seconds(partial(serve, k)) for k in kappas})


def _median_seconds(work: Callable[[], None]) -> float:
    """All cores begin each part at about the same time, and none is short."""
    taken, end = [], time.monotonic() + SECONDS
    while time.monotonic() < end:
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


@click.command()
@click.option("--dataset", default="cifar10_noise", show_default=True)
@click.option("--workers", default="4,10,20,40", show_default=True)
def main(dataset: str, workers: str) -> None:
    """Measures what the arithmetic costs alone."""
    sizes = [int(size) for size in workers.split(",")]
    found = measure(dataset, sizes)
    print(f"a worker: {1e3 * found.worker:.1f} ms")
    for kappa, seconds in found.server.items():
        print(f"the server, κ = {kappa}: {1e3 * seconds:.1f} ms")
    for size in sizes:
        print(f"limit with {size} workers: {found.limit(size, num_cores()):.4f} s an iteration")


if __name__ == "__main__":
    main()
