"""Compares the predictions of `mdgan plan` with runs.

    python -m benchmarks.planning [--workers 4,10] [--megabits 0,100,20] [-- FLAGS OF THE RUN]

Runs CIFAR-10's models with b = 10, unless the flags after `--` say otherwise. For each case it
makes a plan, a run, and another plan. It prints the mean prediction of both plans beside the median
iteration of the run's second half. A number of Mbit/s other than 0 limits the links as
`bandwidth.py` does, with 4 workers, and needs root. Run it on an otherwise idle machine.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks import bandwidth
from benchmarks.training import HERE, Case, measure

UNITS = {"ms": 1e-3, "s": 1.0}
FLAGS = ("--dataset", "cifar10_noise", "--batch-size", "10", "--swap-interval", "0")
FOLDER = ("--datasets-dir", str(HERE / "datasets"))


def predicted(flags: Sequence[str], num_workers: int, megabits: int) -> float:
    """Seconds of an iteration as `mdgan plan` predicts them; 0 Mbit/s for no limit."""
    limit = ["--bandwidth", str(megabits)] if megabits else []
    command = [sys.executable, "-m", "mdgan", "plan", *FOLDER, *flags, *limit]
    command += ["--world-size", str(num_workers + 1)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"all of it +([\d.]+) (ms|s)\b", output)
    assert match is not None, output
    return float(match[1]) * UNITS[match[2]]


def seconds_of_run(flags: Sequence[str], num_workers: int, megabits: int) -> float:
    """Seconds of an iteration in a run."""
    if megabits:
        return bandwidth.measure(flags, megabits, 20).iteration_seconds
    size = ("--checkpoint-interval", "0", "--world-size", str(num_workers + 1))
    with tempfile.TemporaryDirectory() as folder:
        return measure(Case("run", (*FOLDER, *flags, *size), 40), Path(folder)).iteration_seconds


@click.command()
@click.option("--workers", default="4,10", show_default=True)
@click.option("--megabits", default="0,100,20", show_default=True, help="0: not limited.")
@click.argument("flags", nargs=-1)
def main(workers: str, megabits: str, flags: Sequence[str]) -> None:
    """Compares plans with runs; FLAGS are those of a run."""
    flags = flags or FLAGS
    cases = [(size, 0) for size in map(int, workers.split(","))]
    cases = cases if "0" in megabits.split(",") else []
    cases += [(4, rate) for rate in map(int, megabits.split(",")) if rate]
    for size, rate in cases:
        before = predicted(flags, size, rate)
        took = seconds_of_run(flags, size, rate)
        plan = statistics.fmean((before, predicted(flags, size, rate)))
        links = f"links of {rate} Mbit/s" if rate else "no limit"
        print(
            f"{size} workers, {links:22} foretold {plan:.4f} s, measured {took:.4f} s, "
            f"ratio {plan / took:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
