"""Measures how data-parallel training scales beside one process and beside torch's DDP.

    python -m benchmarks.data_parallel [--batch-sizes 32,64] [--workers 1,2] [--rounds 2]
    python -m benchmarks.data_parallel --dataset digits --batch-sizes 10 --iterations 2000

Trains CIFAR-10's models without BatchNorm on noise, or another dataset. In weak scaling every
worker has b samples: the efficiency is the time of one process with b samples divided by the time
of N workers. In strong scaling N workers share b samples: the efficiency is the time of one process
divided by N times the time of the N workers. "Apart" are bare loops that exchange nothing. Every
process has one thread, and all runs of a round take turns. Run it on an otherwise idle machine with
a core for each worker.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import ddp
from benchmarks.training import HERE, Case, measure

FLAGS = (
    *("--datasets-dir", str(HERE / "datasets"), "--threads", "1"),
    *("--checkpoint-interval", "0", "--kappa", "1"),
)


def standalone(dataset: str, b: int, iterations: int) -> float:
    """Measures one process: seconds an iteration."""
    flags = (*FLAGS, "--dataset", dataset, "--batch-size", str(b))
    return _seconds("standalone", flags, iterations)


def paragan(dataset: str, b: int, num_workers: int, iterations: int, all_reduce: str) -> float:
    """Measures mdgan with a process for each worker: seconds an iteration."""
    how = ("--algorithm", "paragan", "--all-reduce", all_reduce, "--global-batch-size", str(b))
    flags = (*FLAGS, "--dataset", dataset, "--world-size", str(num_workers + 1), *how)
    return _seconds("paragan", flags, iterations)


def torch_loop(
    dataset: str, b: int, num_workers: int, iterations: int, *, apart: bool = False
) -> float:
    """Measures bare loops, with DDP or apart, a process for each worker: seconds an iteration."""
    batches = [b // num_workers] * num_workers
    return ddp.measure(ddp.Run(dataset, batches, iterations, apart=apart))


def _seconds(name: str, flags: tuple[str, ...], iterations: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return measure(Case(name, flags, iterations), Path(folder)).iteration_seconds


def _cases(
    dataset: str, b: int, workers: Sequence[int], iterations: int
) -> dict[tuple[str, int, str], Callable[[], float]]:
    """The measurements by kind of scaling, N, and the program that trains."""
    cases: dict[tuple[str, int, str], Callable[[], float]] = {}
    for n in workers:
        for kind, batch in (("weak", n * b), ("strong", b)):
            of = dataset, batch, n, iterations
            cases[kind, n, "mdgan"] = partial(paragan, *of, "shared")
            cases[kind, n, "mdgan, star"] = partial(paragan, *of, "star")
            cases[kind, n, "mdgan, direct"] = partial(paragan, *of, "direct")
            cases[kind, n, "torch DDP"] = partial(torch_loop, *of)
            cases[kind, n, "apart"] = partial(torch_loop, *of, apart=True)
    return cases


@click.command()
@click.option("--dataset", default="cifar10_plain", show_default=True)
@click.option("--batch-sizes", default="32,64", show_default=True)
@click.option("--workers", default="1,2", show_default=True)
@click.option("--iterations", default=60, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--weak-only", is_flag=True)
def main(
    dataset: str, batch_sizes: str, workers: str, iterations: int, rounds: int, *, weak_only: bool
) -> None:
    """Prints seconds an iteration and efficiencies."""
    print(f"{'':5} {'b':>4} {'N':>3}  {'':16} {'seconds':>8} {'efficiency':>10}")
    for b in map(int, batch_sizes.split(",")):
        cases = _cases(dataset, b, [int(n) for n in workers.split(",")], iterations)
        cases = {case: run for case, run in cases.items() if case[0] == "weak" or not weak_only}
        alone: list[float] = []
        seconds_of: dict[tuple[str, int, str], list[float]] = {case: [] for case in cases}
        for _ in range(rounds):
            alone.append(standalone(dataset, b, iterations))
            for case, run in cases.items():
                seconds_of[case].append(run())
        one = statistics.median(alone)
        print(f"{'':5} {b:4} {'':>3}  {'one process':16} {one:8.4f}", flush=True)
        for (kind, n, name), seconds in seconds_of.items():
            median = statistics.median(seconds)
            efficiency = one / median if kind == "weak" else one / (n * median)
            print(f"{kind:6} {b:3} {n:3}  {name:16} {median:8.4f} {efficiency:10.2f}", flush=True)


if __name__ == "__main__":
    main()
