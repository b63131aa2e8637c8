"""Measures what hostile workers do to the digits under each rule of `--aggregation`.

    python -m benchmarks.robustness [--iterations I] [--seeds S] [--first-seed F] [--kappa K]

Trains MD-GAN with ten workers, three of them hostile (see `hostile.py`), in one process without any
transport, and scores generators as `mdgan evaluate` does. A run's FID is the mean over five
generators from its last fifth, because the FID of single ones differs by a quarter. For every
attack under every rule it prints the FID's mean ± standard deviation over the seeds, and its ratio
to the FID of ten honest workers under `mean`.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import click
import torch
from torch import nn

from benchmarks.hostile import ATTACKS
from mdgan.data import dataset_file
from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partition import partition
from mdgan.data.shard import Shard
from mdgan.engine.server.hosts import Strikes
from mdgan.engine.stages.screen import Screening
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign
from mdgan.families.mdgan.build import make_generator_learner, make_worker
from mdgan.families.mdgan.messages import OUTPUTS, feedback_form
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.swaps import draw_swap, swap_every
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.gan.settings import resolve_kappa
from mdgan.metrics.chosen import cached_classifier
from mdgan.metrics.real_statistics import describe_all
from mdgan.metrics.scores import score_generator

NUM_WORKERS = 10
NUM_HOSTILE = 3
BATCH_SIZE = 10
NUM_SAMPLES = 10_000
NUM_SCORED = 5
HONEST = "none"
RULES = ("mean", "median", "krum:3")
CPU = torch.device("cpu")


class Case(NamedTuple):
    """One run."""

    attack: str
    rule: str
    kappa: int | str
    seed: int
    iterations: int


class Outcome(NamedTuple):
    """The figures of one run."""

    fid: float
    milliseconds: float  # an iteration


def run(case: Case) -> Outcome:
    """Trains one case, and scores generators during its last fifth."""
    torch.set_num_threads(1)
    dataset = dataset_file.load("digits", None)
    settings = settings_of(case, dataset)
    shards = make_shards(dataset, settings)
    workers = make_workers(case, dataset, settings, shards)
    learner = make_generator_learner(settings, dataset.models, CPU)
    apart = case.iterations // 5 // NUM_SCORED
    scored = {case.iterations - apart * number for number in range(NUM_SCORED)}
    fids, seconds, begin = [], 0.0, time.monotonic()
    for i in train(settings, dataset, learner, workers):
        if i in scored:
            seconds += time.monotonic() - begin
            fids.append(fid(learner.model, dataset, shards, case.seed))
            begin = time.monotonic()
    return Outcome(statistics.mean(fids), 1e3 * seconds / case.iterations)


def settings_of(case: Case, dataset: DatasetFile) -> MDGANSettings:
    values = {
        "world_size": NUM_WORKERS + 1,
        "batch_size": BATCH_SIZE,
        "iterations": case.iterations,
        "aggregation": case.rule,
        "kappa": case.kappa,
        "partition": "iid",
        "seed": case.seed,
    }
    return MDGANSettings.read(values, dataset.defaults)


def make_shards(dataset: DatasetFile, settings: MDGANSettings) -> list[Shard]:
    source = dataset.open(Path())
    parts = partition(source.labels, settings.data.partition, NUM_WORKERS, settings.training.seed)
    return [
        Shard(source, part, generator_for(settings.training.seed, "shard", n))
        for n, part in enumerate(parts, start=1)
    ]


def make_workers(
    case: Case, dataset: DatasetFile, settings: MDGANSettings, shards: Sequence[Shard]
) -> dict[int, Worker]:
    """Makes ten workers, of which three are hostile; the seed decides which."""
    workers = {
        n: make_worker(n, settings, dataset.models, shard, CPU) for n, shard in enumerate(shards, 1)
    }
    drawn = torch.randperm(NUM_WORKERS, generator=generator_for(case.seed, "who is hostile"))
    for n in (drawn[:NUM_HOSTILE] + 1).tolist() if case.attack != HONEST else []:
        workers[n] = ATTACKS[case.attack](workers[n], derive_seed(case.seed, "hostile", n))
    return workers


def train(
    settings: MDGANSettings,
    dataset: DatasetFile,
    learner: GeneratorLearner,
    workers: dict[int, Worker],
) -> Iterator[int]:
    """Trains as Hardy et al., Algorithm 1; yields the number of each finished iteration."""
    aggregation = Aggregation(settings.aggregation)
    screening = Screening(feedback_form(settings, dataset.shape), Strikes(1))
    kappa = resolve_kappa(settings.kappa, NUM_WORKERS)
    assignment = assign(sorted(workers), kappa)
    every = swap_every(settings, len(dataset.open(Path())) / NUM_WORKERS)
    for i in range(1, settings.training.iterations + 1):
        generated = learner.generate(kappa)
        feedbacks, verdicts = {}, {}
        for n, worker in workers.items():
            worker.learn(generated[assignment[n].train])
            feedbacks[n], _, verdicts[n] = worker.feedback(generated[assignment[n].judge])
            assert screening.refuse(n, feedbacks[n]) is None, "the server should not notice lies"
        beside = {OUTPUTS: verdicts}
        aggregation.update_gradient(learner, feedbacks, assignment, kappa, beside)
        learner.step()
        if i % every == 0:
            swap(settings, workers, i // every - 1)
        yield i


def swap(settings: MDGANSettings, workers: dict[int, Worker], number: int) -> None:
    moves = draw_swap(settings.swaps.swap, settings.training.seed, number, sorted(workers))
    states = {giver: workers[giver].discriminator.state() for giver in moves}
    for giver, taker in moves.items():
        workers[taker].discriminator.load_state(states[giver])


def fid(generator: nn.Module, dataset: DatasetFile, shards: Sequence[Shard], seed: int) -> float:
    folder = Path()
    extractor = cached_classifier(dataset, dataset.open(folder), dataset.open_held_out(folder))
    real = describe_all(shards, extractor)
    scores = score_generator(
        generator,
        extractor,
        real,
        None,
        z_dim=dataset.models.z_dim,
        num_samples=NUM_SAMPLES,
        seed=seed,
    )
    return float(scores.scores["fid"])


def in_words(row: tuple[str, str, int | str], outcomes: Sequence[Outcome], honest: float) -> str:
    attack, rule, kappa = row
    fids = [outcome.fid for outcome in outcomes]
    spread = statistics.stdev(fids) if len(fids) > 1 else 0.0
    each = ", ".join(f"{value:.2f}" for value in fids)
    pace = statistics.mean(outcome.milliseconds for outcome in outcomes)
    return (
        f"{attack:9} {rule:15} κ = {kappa:<4}  FID {statistics.mean(fids):7.2f} ± {spread:5.2f}  "
        f"{statistics.mean(fids) / honest:6.2f} × honest  {pace:5.1f} ms an iteration  ({each})"
    )


@click.command()
@click.option("--iterations", default=2500, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Runs at the same time.")
@click.option("--kappa", default="auto", show_default=True, help="κ of the runs that are attacked.")
@click.option("--attacks", default=",".join(ATTACKS), show_default=True)
@click.option("--rules", default=",".join(RULES), show_default=True)
def main(
    iterations: int,
    seeds: int,
    first_seed: int,
    jobs: int,
    kappa: str,
    attacks: str,
    rules: str,
) -> None:
    """Compares rules of aggregation under attack, on digits."""
    print(
        f"digits, {NUM_WORKERS} workers, b = {BATCH_SIZE}, {NUM_HOSTILE} hostile, "
        f"{iterations} iterations, seeds {first_seed} to {first_seed + seeds - 1}",
        flush=True,
    )
    kappa_of_attacked: int | str = kappa if kappa == "auto" else int(kappa)
    rows: list[tuple[str, str, int | str]] = [(HONEST, "mean", "auto")]
    for attack in [HONEST, *attacks.split(",")]:
        rows += [(attack, rule, kappa_of_attacked) for rule in rules.split(",")]
    rows = list(dict.fromkeys(rows))
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawning) as pool:
        pending = [
            [
                pool.submit(run, Case(*row, seed, iterations))
                for seed in range(first_seed, first_seed + seeds)
            ]
            for row in rows
        ]
        honest = 0.0
        for row, futures in zip(rows, pending, strict=True):
            outcomes = [future.result() for future in futures]
            honest = honest or statistics.mean(outcome.fid for outcome in outcomes)
            print(in_words(row, outcomes, honest), flush=True)


if __name__ == "__main__":
    main()
