"""Measures how much each optimization of ParaGAN's table 2 adds to the ones before.

    python -m benchmarks.ladder [--batch-size 32] [--workers 1] [--rounds 2]

Trains by ParaGAN's synchronous updates CIFAR-10's models without BatchNorm, on noise from slow
storage (`datasets/cifar10_slow.py`). The rungs: no optimization; channels-last, then real and
generated samples in one pass (both are layout transformations); bf16 (mixed precision). All rungs
of a round take turns. Run it on an otherwise idle machine.
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
    "channels-last": ("--set", "channels_last=true"),
    "merged halves": ("--merge-halves",),
    "bf16": ("--precision", "bf16"),
}


@click.command()
@click.option("--batch-size", default=32, show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--iterations", default=100, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(batch_size: int, workers: int, iterations: int, rounds: int) -> None:
    """Prints real samples a second for every rung, and its gain over the rung before."""
    size = ("--world-size", str(workers + 1), "--batch-size", str(batch_size))
    seconds_of: dict[str, list[float]] = {rung: [] for rung in RUNGS}
    for _ in range(rounds):
        flags: tuple[str, ...] = ()
        for rung, more in RUNGS.items():
            flags = (*flags, *more)
            with tempfile.TemporaryDirectory() as folder:
                case = Case(rung, (*COMMON, *size, *flags), iterations)
                seconds_of[rung].append(measure(case, Path(folder)).iteration_seconds)
    before = 0.0
    for rung, seconds in seconds_of.items():
        rate = workers * batch_size / statistics.median(seconds)
        print(f"{rung:16} {rate:8.1f} samples/s {100 * (rate / (before or rate) - 1):+6.1f} %")
        before = rate


if __name__ == "__main__":
    main()
