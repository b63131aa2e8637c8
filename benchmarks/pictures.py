"""Measures how ten workers with b = 10 compare with one process with b = 100, on other pictures.

    python -m benchmarks.pictures [--source NAME]… [--iterations I] [--seeds S] [--folder] [FLAG…]

The sources are in `benchmarks.picture_sources`: some are for choosing settings, others only for
judging them. Flags at the end go to both runs, such as `--architecture md-gan-cnn`. For every
source it prints FID and coverage of both, their quotients and seconds of an
iteration. As many generated samples are judged by all workers together as by the one process.
With `--folder` the pictures are half as large and files of their own, for `--dataset folder`.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.picture_sources import SOURCES, write, write_as_folder

_NUM_WORKERS = 10
_ALONE = "--algorithm standalone --batch-size 100"
_TOGETHER = (
    f"--transport memory --vectorize --world-size {_NUM_WORKERS + 1} --batch-size 10 "
    "--partition iid"
)


class Found(NamedTuple):
    """The last scores of a run, and what an iteration took."""

    fid: float
    coverage: float
    seconds: float


def train(flags: Sequence[str], out: Path) -> Found:
    """Runs `mdgan train`, and returns what came of it."""
    command = [sys.executable, "-m", "mdgan", "train", *flags, "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [record["scores"] for record in records if record.get("event") == "scores"][-1]
    last = [record for record in records if "event" not in record][-1]
    seconds = last["seconds"] / last["iteration"]
    return Found(scores["fid"], scores["coverage"], seconds)


def _mean(found: Sequence[Found]) -> Found:
    return Found(*map(statistics.mean, zip(*found, strict=True)))


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--source", "names", multiple=True, type=click.Choice([*SOURCES]))
@click.option("--iterations", default=3000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--folder", "as_folder", is_flag=True, help="As files of 16×16 pixels.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    names: Sequence[str], iterations: int, seeds: int, as_folder: bool, flags: Sequence[str]
) -> None:
    """Compares one process with ten workers on pictures that are made here."""
    with tempfile.TemporaryDirectory() as temporary:
        for name in names or SOURCES:
            source, folder = SOURCES[name], Path(temporary) / name
            if as_folder:
                write_as_folder(name, folder)
                common = ["--dataset", "folder", "--data-dir", str(folder / "training")]
                common += ["--held-out", str(folder / "held-out"), *flags]
            else:
                write(name, folder)
                common = ["--dataset", source.dataset, "--data-dir", str(folder), *flags]
            common += ["--iterations", str(iterations), "--eval-interval", str(iterations)]
            common += ["--checkpoint-interval", "0", "--sample-interval", "0", "--threads", "1"]
            found = {}
            for how in (_ALONE, _TOGETHER):
                runs = [
                    train(
                        [*how.split(), *common, "--seed", str(seed)], folder / f"{len(how)}-{seed}"
                    )
                    for seed in range(seeds)
                ]
                found[how] = _mean(runs)
            alone, together = found[_ALONE], found[_TOGETHER]
            covered = together.coverage / alone.coverage if alone.coverage else math.nan
            used = "chooses" if source.is_for_choosing else "judges"
            print(
                f"{name} ({used}): one process FID {alone.fid:.1f}, coverage {alone.coverage:.2f}; "
                f"ten workers {together.fid:.1f}, {together.coverage:.2f}: "
                f"{together.fid / alone.fid:.2f} and {covered:.2f} "
                f"times as much; {together.seconds:.3f} s an iteration",
                flush=True,
            )


if __name__ == "__main__":
    main()
