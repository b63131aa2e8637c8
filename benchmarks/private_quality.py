"""Measures how privacy lowers quality and the success of attacks: digits, for several ε.

    python -m benchmarks.private_quality [--seeds 3] [--at-once 2] [--only "4 workers, ε = 10"]

Trains 1, 4 and 10 workers in several ways: with mdgan's defaults; with the settings that were
chosen for privacy, without noise (ε = ∞: Poisson sampling and cut gradients) and with the noise
that ε needs; and with `--algorithm moments`. Then it attacks each run with `mdgan audit`. Prints
scores, and the AUC with which attacks tell training samples from others: by the discriminators (the
mean over them), and by the generator's distances in features and in pixels. Each figure is mean ±
deviation over the seeds, and does not depend on how many runs share the machine. Workers of private
runs disclose sums over features, and all runs use one classifier that was trained on workers'
samples, so that one network scores all runs against the same samples.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isnan, nan
from pathlib import Path

import click
from torch import Tensor, nn

from mdgan.data.dataset_file import load
from mdgan.metrics.chosen import cached_classifier
from mdgan.records.audit import read_audit

PLAIN = (
    *("train", "--transport", "memory", "--sample-interval", "0", "--threads", "1"),
    *("--extractor", f"{__file__}:ClassifierOfDigits"),
)
CHOSEN = ("--iterations", "1000", "--dp-clip", "3", "--dp-disclose", "features")
BOUNDED = ("--dp-delta", "0.0001")
MOMENTS = (
    *("--algorithm", "moments", "--architecture", "md-gan-mlp", "--iterations", "1500"),
    *("--dp-disclose", "features", *BOUNDED),
)
WAYS = {
    "default": ("--iterations", "3500"),
    "default, as short": ("--iterations", "1000"),
    "ε = ∞": (*CHOSEN, "--dp-noise", "0"),
    **{f"ε = {e}": (*CHOSEN, *BOUNDED, "--dp-epsilon", str(e)) for e in (10, 3, 1)},
    **{f"moments, ε = {e}": (*MOMENTS, "--dp-epsilon", str(e)) for e in (10, 3, 1)},
    **{
        f"moments, shared noise, ε = {e}": (
            *MOMENTS,
            *("--dp-epsilon", str(e), "--secure-aggregation", "--workers-per-host", "1"),
        )
        for e in (10, 3, 1)
    },
}
WORKERS = (1, 4, 10)
COLUMNS = ("FID", "coverage", "discriminators", "features", "pixels")


class ClassifierOfDigits(nn.Module):
    """The classifier that scores runs without privacy."""

    def __init__(self) -> None:
        super().__init__()
        digits, folder = load("digits", None), Path()
        held_out = digits.open_held_out(folder)
        self.network = cached_classifier(digits, digits.open(folder), held_out).network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features [n, 64] and logits [n, 10] of float32 [n, 1, 8, 8]."""
        output: tuple[Tensor, Tensor] = self.network(images)
        return output


def mdgan(*command: str) -> None:
    """Runs a command, which must succeed."""
    ended = subprocess.run(
        [sys.executable, "-m", "mdgan", *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"mdgan {' '.join(command)}: {ended.stderr}"


def run(num_workers: int, way: str, seed: int, folder: Path) -> list[float]:
    """Trains once, then attacks; returns the values of `COLUMNS`."""
    out = folder / f"{num_workers}-{list(WAYS).index(way)}-{seed}"
    flags = WAYS[way]
    iterations = flags[flags.index("--iterations") + 1]
    if BOUNDED[0] in flags:  # each run has its own ledger
        flags += ("--dp-ledger", f"{out}-ledger")
    flags += ("--world-size", str(num_workers + 1), "--eval-interval", iterations)
    mdgan(*PLAIN, *flags, "--seed", str(seed), "--out", str(out))
    mdgan("audit", str(out), "--steps", "0")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    (scores,) = [row["scores"] for row in rows if row.get("event") == "scores"]
    audit = read_audit(out)
    assert audit is not None
    auc = statistics.fmean([judged.of_all.auc for judged in audit.discriminators] or [nan])
    near = {copy.space: copy.membership.auc for copy in audit.generator}
    return [scores["fid"], scores["coverage"], auc, near["features"], near["pixels"]]


def in_words(name: str, results: Sequence[Sequence[float]]) -> str:
    """One row: mean ± standard deviation."""
    cells = []
    for values in zip(*results, strict=True):
        if any(map(isnan, values)):  # there are no discriminators
            cells.append("-")
            continue
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        cells.append(f"{statistics.mean(values):6.2f} ±{spread:5.2f}")
    return f"{name:28} " + "  ".join(f"{cell:>14}" for cell in cells)


@click.command()
@click.option("--seeds", default=3, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--at-once", default=2, show_default=True, help="Runs at the same time.")
@click.option("--only", default="", help="Rows to run, separated by semicolons; by default all.")
def main(seeds: int, first_seed: int, at_once: int, only: str) -> None:
    """Trains digits with each ε, then attacks each run."""
    rows = {f"{n} workers, {way}": (n, way) for n in WORKERS for way in WAYS}
    names = only.split(";") if only else list(rows)
    print(f"{'':28} " + "  ".join(f"{column:>14}" for column in COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        pending = {
            name: [
                pool.submit(run, *rows[name], seed, Path(folder))
                for seed in range(first_seed, first_seed + seeds)
            ]
            for name in names
        }
        for name, futures in pending.items():
            print(in_words(name, [future.result() for future in futures]), flush=True)
    for name in names:
        print(f"{name:28} mdgan {' '.join((*PLAIN, *WAYS[rows[name][1]]))}")


if __name__ == "__main__":
    main()
