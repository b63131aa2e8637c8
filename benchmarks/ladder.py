"""Measures what each optimization of ParaGAN's table 2 adds: one after the other is switched on.

    python -m benchmarks.ladder [--batch-size 32] [--workers 1] [--rounds 2]

ParaGAN's synchronous updates with CIFAR-10's models without BatchNorm, on noise from slow storage
(`datasets/cifar10_slow.py`). The rungs: nothing; pictures are read ahead by as many threads as the
tuner finds right (data pipelining); channels-last, and real and generated samples in one pass
(layout transformation); bf16 (mixed precision). All rungs of a round are measured in turn. Run it
on an otherwise idle machine.
"""

import statistics
import tempfile
from pathlib import Path

import click

from benchmarks.training import HERE, Case, measure

COMMON = (
    *("--dataset", "cifar10_slow", "--datasets-dir", str(HERE / "datasets"), "--threads", "1"),
    *("--algorithm", "paragan", "--kappa", "1", "--checkpoint-interval", "0"),
)
RUNGS = {
    "nothing": (),
    "channels-last": (
        "--set",
        "channels_last=true",
    ),
    "merged halves": ("--merge-halves",),
    "bf16": ("--precision", "bf16"),
}


@click.command()
@click.option("--batch-size", default=32, show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--iterations", default=100, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(batch_size: int, workers: int, iterations: int, rounds: int) -> None:
    """Prints the real samples a second of every rung, and what it adds to the one before."""
    size = ("--world-size", str(workers + 1), "--batch-size", str(batch_size))
    found: dict[str, list[float]] = {rung: [] for rung in RUNGS}
    for _ in range(rounds):
        flags: tuple[str, ...] = ()
        for rung, more in RUNGS.items():
            flags = (*flags, *more)
            with tempfile.TemporaryDirectory() as folder:
                case = Case(rung, (*COMMON, *size, *flags), iterations)
                found[rung].append(measure(case, Path(folder)).iteration_seconds)
    before = 0.0
    for rung, seconds in found.items():
        rate = workers * batch_size / statistics.median(seconds)
        print(f"{rung:16} {rate:8.1f} samples/s {100 * (rate / (before or rate) - 1):+6.1f} %")
        before = rate


if __name__ == "__main__":
    main()
