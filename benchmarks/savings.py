"""Measures how inexact arithmetic and messages change quality: digits, 4 workers.

    python -m benchmarks.savings [--iterations I] [--seeds S] [--at-once P]

All configurations train for equally many iterations. Prints the scores of each, mean and standard
deviation over the seeds. Scores do not depend on how many runs share the machine. `versus.py`
(precision) and `bandwidth.py` (messages) measure the speed that the savings gain.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.quality import SCORES, Case, in_words, run

SAVINGS = {
    "plain": "",
    "bf16": "--precision bf16",
    "fp16": "--precision fp16",
    "stale": "--stale 1",
    "bf16 images and feedback": "--wire images=bf16,feedback=bf16",
    "int8 images": "--wire images=int8",
    "int8 feedback": "--wire feedback=int8",
    "int8 images and feedback": "--wire images=int8,feedback=int8",
    "a tenth of feedback": "--wire feedback=topk:0.1",
    "a hundredth of feedback": "--wire feedback=topk:0.01",
}
PLAIN = (*("train", "--transport", "memory", "--world-size", "5", "--batch-size", "10"),)


@click.command()
@click.option("--iterations", default=3000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--at-once", default=2, show_default=True, help="Runs at the same time.")
@click.option("--only", default="", help="Savings to try, separated by commas; by default all.")
def main(iterations: int, seeds: int, at_once: int, only: str) -> None:
    """Trains digits with each saving."""
    names = only.split(",") if only else list(SAVINGS)
    print(f"{iterations} iterations, seeds 0 to {seeds - 1}")
    print(f"{'':28} " + "  ".join(f"{score:>15}" for score in SCORES), flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        pending = {
            name: [
                pool.submit(
                    run,
                    Case(name, (*PLAIN, *SAVINGS[name].split())),
                    iterations,
                    seed,
                    Path(folder),
                )
                for seed in range(seeds)
            ]
            for name in names
        }
        for name, futures in pending.items():
            print(in_words(name, [future.result() for future in futures]), flush=True)
    for name in names:
        print(f"{name:28} mdgan {' '.join(PLAIN)} {SAVINGS[name]} --iterations I --seed S")


if __name__ == "__main__":
    main()
