"""Measures how soon the server finds free riders on the digits, and whether it accuses the honest.

    python -m benchmarks.free_riders [--iterations I] [--seeds S] [--first-seed F] [--jobs J]

Trains MD-GAN with ten workers, some of them free riders (see `hostile.py`), in one process without
any transport. The server's `FreeRiders` scores the workers, but no worker is shut out. For every
kind of free rider, partition and number of free riders it prints how many the server found and
after how many iterations, how many honest workers it accused, the highest score of an honest one,
and the share of processor time that scoring took (of the server and all ten workers, one thread).

The thresholds and memories behind the scores were chosen on seeds 100 to 102.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import click
import torch

from benchmarks.hostile import RIDERS
from benchmarks.robustness import BATCH_SIZE, CPU, HONEST, NUM_WORKERS, make_shards, swap
from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.shard import Shard
from mdgan.engine.stages.free_riders import FreeRiders
from mdgan.engine.stages.handovers import Handovers
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swaps import draw_swap, swap_every
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import build_model, num_parameters
from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.gan.settings import resolve_kappa


class Case(NamedTuple):
    """One run. With `hides` free riders change a bit of every discriminator that they hand over."""

    kind: str
    partition: str
    num_riders: int
    seed: int
    iterations: int
    hides: bool = False


class Outcome(NamedTuple):
    """The server's verdicts in one run.

    Attributes:
        caught: the iterations in which the server found free riders.
        accused: the honest workers that the server took for free riders.
        highest: the highest score that an honest worker ever had.
        share: of scoring in the processor time of training, in percent.
    """

    caught: list[int]
    accused: list[int]
    highest: float
    share: float


def run(case: Case) -> Outcome:
    """Trains one case and scores its workers."""
    torch.set_num_threads(1)
    dataset = dataset_file.load("digits", None)
    values = {
        "world_size": NUM_WORKERS + 1,
        "batch_size": BATCH_SIZE,
        "iterations": case.iterations,
        "partition": case.partition,
        "seed": case.seed,
    }
    settings = MDGANSettings.read(values, dataset.defaults)
    shards = make_shards(dataset, settings)
    workers = {
        n: make_worker(n, settings, dataset.models, shard, CPU) for n, shard in enumerate(shards, 1)
    }
    drawn = torch.randperm(NUM_WORKERS, generator=generator_for(case.seed, "who is hostile"))
    riders = set((drawn[: case.num_riders] + 1).tolist())
    for n in riders:
        workers[n] = RIDERS[case.kind](workers[n], derive_seed(case.seed, "hostile", n))
    return score(settings, dataset, shards, workers, riders, hides=case.hides)


def score(
    settings: MDGANSettings,
    dataset: DatasetFile,
    shards: Sequence[Shard],
    workers: dict[int, Worker],
    riders: set[int],
    *,
    hides: bool,
) -> Outcome:
    """Trains as Hardy et al., Algorithm 1, and scores the workers after every iteration."""
    learner = make_generator_learner(settings, dataset.models, CPU)
    aggregation, handovers = Aggregation(settings.aggregation), Handovers()
    scores, host_of = FreeRiders(BATCH_SIZE, handovers), {n: n for n in workers}
    kappa = resolve_kappa(settings.kappa, NUM_WORKERS)
    assignment, every = assign(sorted(workers), kappa), swap_interval(settings, dataset, shards)
    judged, first_guilty = {n: choice.judge for n, choice in assignment.items()}, dict[int, int]()
    highest, spent, begin = 0.0, 0.0, time.thread_time()
    for i in range(1, settings.training.iterations + 1):
        generated, feedbacks = learner.generate(kappa), {}
        for n, worker in workers.items():
            worker.learn(generated[assignment[n].train])
            feedbacks[n] = worker.feedback(generated[assignment[n].judge]).feedback
        aggregation.update_gradient(learner, feedbacks, assignment, kappa)
        learner.step()
        swaps = i % every == 0
        since = time.thread_time()
        scores.look(generated.images, judged, feedbacks, swap_follows=swaps)
        first_guilty |= dict.fromkeys(scores.guilty() - first_guilty.keys(), i)
        now = scores.scores
        spent += time.thread_time() - since
        highest = max([highest, *(each for n, each in now.items() if n not in riders)])
        if swaps:
            number = i // every - 1
            moves = draw_swap(settings.swaps.swap, settings.training.seed, number, sorted(workers))
            scores.swapped(moves)
            given_digests = {n: workers[n].discriminator.digest() for n in moves}
            swap(settings, workers, number)
            taken_digests = {n: workers[n].discriminator.digest() for n in moves.values()}
            if hides:
                taken_digests = {n: f"{digest} and a bit" for n, digest in taken_digests.items()}
            since = time.thread_time()
            handovers.note_swap(moves, given_digests, taken_digests, host_of)
            spent += time.thread_time() - since
    share = 100 * spent / (time.thread_time() - begin)
    caught = [i for n, i in first_guilty.items() if n in riders]
    return Outcome(caught, sorted(first_guilty.keys() - riders), highest, share)


def swap_interval(settings: MDGANSettings, dataset: DatasetFile, shards: Sequence[Shard]) -> int:
    """Iterations between swaps, as in a run: fewer where workers hold different classes."""
    size = len(dataset.open(Path())) / NUM_WORKERS
    weights = num_parameters(build_model(dataset.models.discriminator, 0))
    return swap_every(settings, size, [shard.class_counts() for shard in shards], weights)


def in_words(kind: str, partition: str, num_riders: int, outcomes: Sequence[Outcome]) -> str:
    iterations = sorted(i for each in outcomes for i in each.caught)
    when = "–"
    if iterations:
        when = f"{statistics.median(iterations):.0f} ({iterations[0]} to {iterations[-1]})"
    num_accused = sum(len(each.accused) for each in outcomes)
    highest = max(each.highest for each in outcomes)
    return (
        f"| {kind} | {partition} | {num_riders} | {len(iterations)} of "
        f"{num_riders * len(outcomes)} | {when} | {num_accused} of "
        f"{(NUM_WORKERS - num_riders) * len(outcomes)} | {highest:.1f} | "
        f"{statistics.median(each.share for each in outcomes):.2f} |"
    )


@click.command()
@click.option("--iterations", default=400, show_default=True)
@click.option("--seeds", default=3, show_default=True, help="Runs of each kind of free rider.")
@click.option("--honest-seeds", default=10, show_default=True, help="Runs without free riders.")
@click.option("--first-seed", default=0, show_default=True)
@click.option("--riders", default="2,3", show_default=True, help="How many of the ten workers.")
@click.option("--kinds", default=",".join(RIDERS), show_default=True)
@click.option("--partitions", default="iid,sorted", show_default=True)
@click.option(
    "--hides",
    is_flag=True,
    help="Free riders change a bit of every discriminator that they hand over.",
)
@click.option("--jobs", default=2, show_default=True, help="Runs at the same time.")
def main(
    iterations: int,
    seeds: int,
    honest_seeds: int,
    first_seed: int,
    riders: str,
    kinds: str,
    partitions: str,
    hides: bool,
    jobs: int,
) -> None:
    """Counts found free riders and accused honest workers on digits."""
    print(
        f"digits, {NUM_WORKERS} workers, b = {BATCH_SIZE}, {iterations} iterations, seeds from "
        f"{first_seed}\n"
        "| kind | partition | of ten | found | in iteration | honest accused | highest honest | "
        "% of the time |\n"
        "|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    rows = [(HONEST, scheme, 0) for scheme in partitions.split(",") if honest_seeds]
    for kind in kinds.split(",") if kinds else ():
        rows += [
            (kind, scheme, int(n)) for scheme in partitions.split(",") for n in riders.split(",")
        ]
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawning) as pool:
        pending = []
        for row in rows:
            count = honest_seeds if row[0] == HONEST else seeds
            seeds_of_row = range(first_seed, first_seed + count)
            cases = [Case(*row, seed, iterations, hides) for seed in seeds_of_row]
            pending.append([pool.submit(run, case) for case in cases])
        for row, futures in zip(rows, pending, strict=True):
            print(in_words(*row, [future.result() for future in futures]), flush=True)


if __name__ == "__main__":
    main()
