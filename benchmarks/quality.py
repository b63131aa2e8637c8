"""Measures the quality of digits: standalone and MD-GAN after the same number of iterations.

    python -m benchmarks.quality [--iterations I] [--seeds S] [--at-once P] [--keep DIR]

For every configuration it prints the scores, mean and standard deviation over the seeds, and the
command. Scores do not depend on how many runs share the machine.
"""

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

SCORES = ("fid", "inception_score", "precision", "coverage", "classes_covered", "class_kl")


@dataclass(frozen=True)
class Case:
    """One configuration."""

    name: str
    command: tuple[str, ...]


def cases() -> list[Case]:
    alone = [
        Case(f"standalone, b = {b}", ("standalone", "--batch-size", str(b))) for b in (10, 100)
    ]
    for num_workers in (4, 10):
        for partition in ("iid", "sorted"):
            for swap in (True, False):
                flags = ["train", "--transport", "memory", "--world-size", str(num_workers + 1)]
                flags += ["--batch-size", "10", "--partition", partition]
                flags += [] if swap else ["--swap-interval", "0"]
                name = f"{num_workers} workers, {partition}, {'swap' if swap else 'no swap'}"
                alone.append(Case(name, tuple(flags)))
    return alone


def run(case: Case, iterations: int, seed: int, folder: Path) -> dict[str, Any]:
    """Trains one configuration with one seed; returns its last scores."""
    out = folder / f"{case.name.replace(', ', '-').replace(' ', '-')}-{seed}"
    flags = ["--iterations", str(iterations), "--eval-interval", str(iterations)]
    flags += ["--sample-interval", "0", "--threads", "1", "--seed", str(seed), "--out", str(out)]
    command = [sys.executable, "-m", "mdgan", *case.command, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{case.name}: {ended.stderr}"
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    (scores,) = [record for record in records if record.get("event") == "scores"]
    return dict(scores)


def in_words(name: str, records: Sequence[dict[str, Any]]) -> str:
    """One row: mean ± standard deviation of every score."""
    cells = []
    for score in SCORES:
        values = [record["scores"][score] for record in records]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        cells.append(f"{statistics.mean(values):6.2f} ±{spread:5.2f}")
    return f"{name:28} " + "  ".join(f"{cell:>15}" for cell in cells)


@click.command()
@click.option("--iterations", default=3000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--at-once", default=2, show_default=True, help="Runs at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder to keep the runs in.")
def main(iterations: int, seeds: int, at_once: int, keep: Path | None) -> None:
    """Compares standalone and MD-GAN on digits."""
    print(f"{iterations} iterations, seeds 0 to {seeds - 1}")
    print(f"{'':28} " + "  ".join(f"{score:>15}" for score in SCORES), flush=True)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(at_once) as pool:
        folder = keep or Path(temporary)
        futures = {
            case: [pool.submit(run, case, iterations, seed, folder) for seed in range(seeds)]
            for case in cases()
        }
        last: dict[str, Any] = {}
        for case, pending in futures.items():
            records = [future.result() for future in pending]
            last = records[0]
            print(in_words(case.name, records), flush=True)
    print(
        f"real data: FID {last['real']['fid']:.2f}, score {last['real']['inception_score']:.2f}; "
        f"{last['n']} generated samples against "
        f"{last['n_real']} real ones; {last['extractor']['name']}, "
        f"{100 * last['extractor']['accuracy']:.1f} % right on test samples"
    )
    for case in cases():
        print(f"{case.name:28} mdgan {shlex.join(case.command)} --iterations {iterations} --seed S")


if __name__ == "__main__":
    main()
