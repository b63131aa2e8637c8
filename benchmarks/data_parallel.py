"""Measures how data-parallel training scales, beside one process and beside torch's DDP.

    python -m benchmarks.data_parallel [--batch-sizes 32,64] [--workers 1,2] [--rounds 2]

CIFAR-10's models without BatchNorm, on noise. Weak scaling: every worker has b samples, and the
efficiency is the time of one process with b samples divided by that of N workers. Strong scaling: N
workers share b samples, and the efficiency is that time divided by N times theirs. Every process
has one thread; all runs of a round are made in turn. Run it on an otherwise idle machine that has a
core for each worker.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import ddp
from benchmarks.training import HERE, Case, measure

DATASET = "cifar10_plain"
FLAGS = (
    *("--dataset", DATASET, "--datasets-dir", str(HERE / "datasets"), "--threads", "1"),
    *("--checkpoint-interval", "0", "--kappa", "1"),
)


def standalone(b: int, iterations: int) -> float:
    """Seconds an iteration of one process."""
    return _seconds("standalone", (*FLAGS, "--batch-size", str(b)), iterations)


def paragan(b: int, num_workers: int, iterations: int) -> float:
    """Seconds an iteration of mdgan, a process for each worker."""
    flags = (*FLAGS, "--algorithm", "paragan", "--world-size", str(num_workers + 1))
    return _seconds("paragan", (*flags, "--global-batch-size", str(b)), iterations)


def torch_ddp(b: int, num_workers: int, iterations: int) -> float:
    """Seconds an iteration of DDP, a process for each worker."""
    return ddp.measure(ddp.Run(DATASET, [b // num_workers] * num_workers, iterations))


def _seconds(name: str, flags: tuple[str, ...], iterations: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return measure(Case(name, flags, iterations), Path(folder)).iteration_seconds


def _cases(
    b: int, workers: Sequence[int], iterations: int
) -> dict[tuple[str, int, str], Callable[[], float]]:
    """What is measured, by kind of scaling, N, and what trains."""
    cases: dict[tuple[str, int, str], Callable[[], float]] = {}
    for n in workers:
        for kind, batch in (("weak", n * b), ("strong", b)):
            cases[kind, n, "mdgan"] = partial(paragan, batch, n, iterations)
            cases[kind, n, "torch DDP"] = partial(torch_ddp, batch, n, iterations)
    return cases


@click.command()
@click.option("--batch-sizes", default="32,64", show_default=True)
@click.option("--workers", default="1,2", show_default=True)
@click.option("--iterations", default=60, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(batch_sizes: str, workers: str, iterations: int, rounds: int) -> None:
    """Prints seconds an iteration and efficiencies."""
    print(f"{'':5} {'b':>4} {'N':>3}  {'':16} {'seconds':>8} {'efficiency':>10}")
    for b in map(int, batch_sizes.split(",")):
        cases = _cases(b, [int(n) for n in workers.split(",")], iterations)
        alone: list[float] = []
        found: dict[tuple[str, int, str], list[float]] = {case: [] for case in cases}
        for _ in range(rounds):
            alone.append(standalone(b, iterations))
            for case, run in cases.items():
                found[case].append(run())
        one = statistics.median(alone)
        print(f"{'':5} {b:4} {'':>3}  {'one process':16} {one:8.4f}", flush=True)
        for (kind, n, name), seconds in found.items():
            taken = statistics.median(seconds)
            efficiency = one / taken if kind == "weak" else one / (n * taken)
            print(f"{kind:6} {b:3} {n:3}  {name:16} {taken:8.4f} {efficiency:10.2f}", flush=True)


if __name__ == "__main__":
    main()
