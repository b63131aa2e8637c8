"""Compares MD-GAN, with and without two flags, with one process on pictures.

    python -m benchmarks.pictures [--source NAME]… [--iterations I] [--seeds S] [--batch-size b]
                                  [--rows NAME,…] [--folder] [FLAG…]

The sources are in `benchmarks.picture_sources`: some are for choosing settings, the others only
judge them. `ROWS` names the rows: one process with the same b, one with b = 100, and ten workers.
Flags at the end go to every run, such as `--architecture md-gan-cnn`. A row has FID and coverage by
seed, their ratios to those of each of both single processes, and the bytes and seconds of an
iteration. With `--folder` each picture is a file of half the size, for `--dataset folder`.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.picture_sources import SOURCES, write, write_as_folder
from mdgan.records.recorded_run import RecordedRun

_NUM_WORKERS = 10
_ALONE = "--algorithm standalone"
_TOGETHER = f"--transport memory --vectorize --world-size {_NUM_WORKERS + 1} --partition iid"
ROWS = {
    "one process": f"{_ALONE} --batch-size {{b}}",
    "one process with b = 100": f"{_ALONE} --batch-size 100",
    "MD-GAN": f"{_TOGETHER} --batch-size {{b}}",
    "step-samples": f"{_TOGETHER} --batch-size {{b}} --step-samples 48",
    "means": f"{_TOGETHER} --batch-size {{b}} --swap means",
    "both": f"{_TOGETHER} --batch-size {{b}} --step-samples 48 --swap means",
}
"""The flags of each row; the other rows are compared with the first two."""


class Figures(NamedTuple):
    """The last scores of a run, and the bytes and seconds of an iteration."""

    fid: float
    coverage: float
    num_bytes: float
    seconds: float


def train(flags: Sequence[str], out: Path) -> Figures:
    """Runs `mdgan train`, and returns its figures."""
    command = [sys.executable, "-m", "mdgan", "train", *flags, "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [record["scores"] for record in records if record.get("event") == "scores"][-1]
    last = [record for record in records if "event" not in record][-1]
    traces = RecordedRun.read(out).traces.values()
    traffic = sum(sum(trace.traffic[-1].sent.values()) for trace in traces if trace.traffic)
    return Figures(
        scores["fid"],
        scores["coverage"],
        traffic / last["iteration"],
        last["seconds"] / last["iteration"],
    )


def in_words(name: str, figures: Sequence[Figures], compared: Sequence[Sequence[Figures]]) -> str:
    """A row of the table."""
    means = [
        Figures(*map(statistics.mean, zip(*runs, strict=True))) for runs in [figures, *compared]
    ]
    mean, *others = means
    by_seed = "; ".join(f"{each.fid:.2f}, {each.coverage:.2f}" for each in figures)
    quotients = "; ".join(
        f"{mean.fid / other.fid:.2f} ×, {mean.coverage / max(other.coverage, 1e-9):.2f} ×"
        for other in others
    )
    cells = [name, by_seed, quotients, f"{mean.num_bytes / 1e6:.2f}", f"{mean.seconds:.3f}"]
    return f"| {' | '.join(cells)} |"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--source", "names", multiple=True, type=click.Choice([*SOURCES]))
@click.option("--iterations", default=1000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--batch-size", default=64, show_default=True)
@click.option(
    "--rows", default=",".join(ROWS), show_default=True, help="Rows to run after the first two."
)
@click.option(
    "--folder", "as_folder", is_flag=True, help="Write pictures as files of 16×16 pixels."
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    names: Sequence[str],
    iterations: int,
    seeds: int,
    batch_size: int,
    rows: str,
    as_folder: bool,
    flags: Sequence[str],
) -> None:
    """Compares ten workers with one process on each source of pictures."""
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
            used = "chooses" if source.is_for_choosing else "judges"
            print(
                f"\n{name} ({used}), b = {batch_size}, {iterations} iterations\n\n"
                "| | FID, coverage by seed | of one process; with b = 100 | MB | s |\n"
                "|---|---|---|---|---|",
                flush=True,
            )
            compared: list[list[Figures]] = []
            for row in dict.fromkeys([*list(ROWS)[:2], *rows.split(",")]):
                how = ROWS[row].format(b=batch_size).split()
                runs = [
                    train([*how, *common, "--seed", str(seed)], folder / f"{len(how)}-{row}-{seed}")
                    for seed in range(seeds)
                ]
                compared += [runs] if len(compared) < 2 else []
                print(in_words(row, runs, compared), flush=True)


if __name__ == "__main__":
    main()
