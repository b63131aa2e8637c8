"""Measures seconds an iteration of the ways to add gradients up (`--all-reduce`).

    python -m benchmarks.rings [--workers 2,4] [--iterations 60] [--rounds 2]

ParaGAN on digits and on CIFAR-10's models on noise, each worker in a process with one thread. All
runs of a round are made in turn. On one machine no link is a bottleneck, so what shows is what the
ways cost besides.
"""

import statistics
import tempfile
from pathlib import Path

import click

from benchmarks.training import HERE, Case, measure

WAYS = ("star", "ring", "fast", "fast-bf16")
MODELS = {
    "digits": ("--dataset", "digits"),
    "cifar10": ("--dataset", "cifar10_noise", "--datasets-dir", str(HERE / "datasets")),
}


def seconds(model: str, way: str, num_workers: int, iterations: int) -> float:
    """Of an iteration."""
    flags = (
        *("--algorithm", "paragan", "--world-size", str(num_workers + 1), "--threads", "1"),
        *("--checkpoint-interval", "0", "--all-reduce", way, *MODELS[model]),
    )
    with tempfile.TemporaryDirectory() as folder:
        return measure(Case(way, flags, iterations), Path(folder)).iteration_seconds


@click.command()
@click.option("--workers", default="2,4", show_default=True)
@click.option("--iterations", default=60, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(workers: str, iterations: int, rounds: int) -> None:
    """Prints medians."""
    print(f"{'':8} {'N':>3}  {'':10} {'milliseconds':>12}")
    for model in MODELS:
        for n in map(int, workers.split(",")):
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(rounds):
                for way in WAYS:
                    found[way].append(seconds(model, way, n, iterations))
            for way, each in found.items():
                taken = 1e3 * statistics.median(each)
                print(f"{model:8} {n:3}  {way:10} {taken:12.1f}", flush=True)


if __name__ == "__main__":
    main()
