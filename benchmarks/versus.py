"""Whole runs over processes beside MD-GAN as published, and beside what the arithmetic costs alone.

    python -m benchmarks.versus [--workers 4,10,20] [--as-shipped]

For every N in turn: the published algorithm with a thread a process (and, if asked for, with as
many as torch takes by itself), then ours, then the limit. Prints seconds an iteration and until the
first one, memory, and the ratios. Run it on an otherwise idle machine.
"""

import tempfile
from pathlib import Path

import click

from benchmarks import limit, published
from benchmarks.training import HERE, Case
from benchmarks.training import measure as measure_ours

ITERATIONS = {4: 40, 10: 30, 20: 20, 40: 12}


def ours(dataset: str, num_workers: int, iterations: int) -> published.Measured:
    """A run as users start it, with a process for each worker."""
    flags = ["--dataset", dataset, "--datasets-dir", str(HERE / "datasets")]
    flags += ["--batch-size", str(published.BATCH_SIZE), "--world-size", str(num_workers + 1)]
    flags += ["--swap-interval", "0", "--checkpoint-interval", "0"]
    with tempfile.TemporaryDirectory() as folder:
        found = measure_ours(Case("ours", tuple(flags), iterations), Path(folder))
    return published.Measured(
        found.first_iteration_seconds, found.iteration_seconds, found.pss_bytes
    )


def in_words(name: str, found: published.Measured) -> str:
    return (
        f"  {name:24} {found.iteration_seconds:8.4f} s an iteration, the first after "
        f"{found.first_iteration_seconds:5.1f} s, {found.pss_bytes / 2**20:6.0f} MB"
    )


@click.command()
@click.option("--dataset", default="cifar10_noise", show_default=True)
@click.option("--workers", default="4,10,20", show_default=True)
@click.option("--as-shipped", is_flag=True, help="Also with the threads that torch takes itself.")
def main(dataset: str, workers: str, as_shipped: bool) -> None:
    """Compares whole runs with the published algorithm and with the limit."""
    for size in map(int, workers.split(",")):
        iterations = ITERATIONS.get(size, 20)
        print(f"{dataset}, {size} workers, b = {published.BATCH_SIZE}", flush=True)
        if as_shipped:
            found = published.measure(dataset, size, max(4, iterations // 5), threads=0)
            print(in_words("published, as shipped", found), flush=True)
        theirs = published.measure(dataset, size, iterations, threads=1)
        print(in_words("published, one thread", theirs), flush=True)
        mine = ours(dataset, size, iterations)
        print(in_words("mdgan", mine), flush=True)
        least = limit.measure(dataset, size)
        print(f"  {'limit':24} {least:8.4f} s an iteration")
        print(
            f"  published / mdgan {theirs.iteration_seconds / mine.iteration_seconds:.2f}, "
            f"limit / mdgan {least / mine.iteration_seconds:.2f}, "
            f"start-up {theirs.first_iteration_seconds / mine.first_iteration_seconds:.1f}, "
            f"memory {theirs.pss_bytes / mine.pss_bytes:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
