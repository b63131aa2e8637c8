"""Compares a host's workers one by one and all at once: milliseconds a worker and iteration.

    python -m benchmarks.vectorized [--device cuda] [--workers 10,40] [--threads 1]
    python -m benchmarks.vectorized --algorithm fl-gan --workers 10,20 --threads 1

Both forms take turns in one process, so that other load slows both alike: MD-GAN's workers in each
iteration, clients of fl-gan in each round. An iteration of MD-GAN is a local step and a feedback of
every worker, without messages. For clients only the time that the process computed counts. Other
programs disturb the figures after "least" least.
"""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import click
import torch

from benchmarks.training import HERE
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.families.federated.build import make_client
from mdgan.families.federated.host import train_at_once
from mdgan.families.federated.messages import Load
from mdgan.families.federated.round import Client
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.build import make_worker
from mdgan.families.mdgan.host import OneByOne
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.variants.stacked import StackedWorkers
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.gan.settings import resolve_kappa

WARM_UP = 3
SHARD = 100
ITERATIONS = 30


def measure(
    dataset: str, num_workers: int, batch_size: int, precision: str, device: str, seconds: float
) -> Mapping[str, list[float]]:
    """Milliseconds a worker in every iteration that fits into the time, by form."""
    file = load(dataset, str(HERE / "datasets"))
    values = {"world_size": num_workers + 1, "batch_size": batch_size, "precision": precision}
    settings, source = MDGANSettings.read({**values}), file.open(HERE)
    where, ranks = torch.device(device), range(1, num_workers + 1)

    def workers() -> dict[int, Worker]:
        shard = Shard(source, torch.arange(SHARD), generator_for(0, "shard", 1))
        return {rank: make_worker(rank, settings, file.models, shard, where) for rank in ranks}

    groups: dict[str, OneByOne] = {
        "one by one": OneByOne(workers()),
        "all at once": StackedWorkers(workers(), sample_shape=file.shape),
    }
    kappa = resolve_kappa("auto", num_workers)
    generated = torch.randn(kappa, batch_size, *file.shape).tanh().to(where)
    milliseconds: dict[str, list[float]] = {name: [] for name in groups}
    begin = now(where)
    while len(milliseconds["all at once"]) < 2 * WARM_UP or now(where) - begin < seconds:
        for name, group in groups.items():
            start = now(where)
            group.learn_real_halves()
            group.answer(Samples(generated), assign(ranks, kappa))
            milliseconds[name].append(1e3 * (now(where) - start) / num_workers)
    return {name: times[WARM_UP:] for name, times in milliseconds.items()}


def measure_clients(
    dataset: str, num_clients: int, batch_size: int, device: str, seconds: float
) -> Mapping[str, list[float]]:
    """Milliseconds a client and iteration, by form, in rounds of 30 iterations of new clients."""
    file = load(dataset, str(HERE / "datasets"))
    settings, source = FederatedSettings.read({"batch_size": batch_size}), file.open(HERE)
    where, made, rounds = torch.device(device), dict[str, list[Any]](), 0
    milliseconds: dict[str, list[float]] = {"one by one": [], "all at once": []}
    sent = torch.empty(0)

    def clients(form: str) -> list[Client]:
        shards = [
            Shard(source, torch.arange(SHARD), generator_for(0, "shard", n, rounds))
            for n in range(num_clients)
        ]
        before = made.get(form, [None] * num_clients)
        if form == "one by one":  # in a slot they use the same memory
            before = before[:1] * num_clients
        begun = [
            make_client(n, settings, file.models, shard, where, stream=(rounds,), after=before[n])
            for n, shard in enumerate(shards)
        ]
        made[form] = begun
        return begun

    begin = time.perf_counter()
    while rounds <= 2 or time.perf_counter() - begin < seconds:
        for form, times in milliseconds.items():
            start = time.process_time()
            begun = clients(form)
            sent = sent if len(sent) else begun[0].vector.read()
            if form == "one by one":
                for client in begun:
                    client.train(sent, ITERATIONS, batch_size)
            else:
                full = Load(ITERATIONS, batch_size)
                train_at_once(begun, sent, full, ITERATIONS, rehearses=not rounds)
            times.append(1e3 * (time.process_time() - start) / num_clients / ITERATIONS)
        rounds += 1
    return {form: times[1:] for form, times in milliseconds.items()}


def now(device: torch.device) -> float:
    """The time in seconds, after the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@click.command()
@click.option("--datasets", default="digits,cifar10_noise", show_default=True)
@click.option("--algorithm", type=click.Choice(["mdgan", "fl-gan"]), default="mdgan")
@click.option(
    "--workers", default="10", show_default=True, help="Numbers of workers, separated by commas."
)
@click.option("--batch-size", default=10, show_default=True)
@click.option("--precision", default="fp32", show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--threads", default="1,2", show_default=True, help="Numbers of threads, separated by commas."
)
@click.option(
    "--seconds", default=10.0, show_default=True, help="Seconds to measure for each line."
)
def main(
    datasets: str,
    algorithm: str,
    workers: str,
    batch_size: int,
    precision: str,
    device: str,
    threads: str,
    seconds: float,
) -> None:
    """Compares both forms: medians, and the fastest and slowest tenth."""
    named = torch.cuda.get_device_name() if device == "cuda" else device
    print(f"{named}, b = {batch_size}, {precision}; ms a worker: median (10 % to 90 %)")
    print(f"{'':15} {'W':>4} {'threads':>7} {'one by one':>24} {'all at once':>24} {'ratio':>6}")
    for dataset in datasets.split(","):
        for num_workers in map(int, workers.split(",")):
            for num_threads in map(int, threads.split(",")):
                torch.set_num_threads(num_threads)
                if algorithm == "mdgan":
                    milliseconds = measure(
                        dataset, num_workers, batch_size, precision, device, seconds
                    )
                else:
                    milliseconds = measure_clients(
                        dataset, num_workers, batch_size, device, seconds
                    )
                print(in_words(dataset, num_workers, num_threads, milliseconds), flush=True)


def in_words(
    dataset: str, num_workers: int, num_threads: int, milliseconds: Mapping[str, list[float]]
) -> str:
    columns, medians = [], []
    for times in milliseconds.values():
        deciles = statistics.quantiles(times, n=10, method="inclusive")
        medians.append(statistics.median(times))
        spread = f"({deciles[0]:.2f} to {deciles[-1]:.2f})"
        columns.append(f"{medians[-1]:7.2f} {spread:>16}")
    ratio = medians[0] / medians[1]
    least = [min(times) for times in milliseconds.values()]
    words = f"{dataset:15} {num_workers:4} {num_threads:7} {'  '.join(columns)} {ratio:6.2f}"
    return f"{words}; least {least[0]:.2f} and {least[1]:.2f}"


if __name__ == "__main__":
    main()
