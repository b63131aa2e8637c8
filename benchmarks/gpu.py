"""Checks a GPU: its tests, then CIFAR-10's models in one table, then one scored run.

    python -m benchmarks.gpu [--data-dir FOLDER] [--minutes 8]
    python -m benchmarks.gpu --device cpu --iterations 6    # tries this program without a GPU

The table has iterations a second, b = 10 a worker: one process, torch's DistributedDataParallel in
one process, and MD-GAN with 4 and 10 workers on one machine, in turn and all at once. `--data-dir`
names a folder with CIFAR-10; without it the pictures are noise, and nothing is scored. Each figure
is printed when it is known, the most important ones first. What does not fit into `--minutes`, or
is cut off by Ctrl-C or SIGTERM, stays empty in the table, which is printed in any case.

Ends with status 2 where there is no GPU, with 1 if something fails or is cut off, else with 0.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import torch

from benchmarks.training import HERE

DDP = "DistributedDataParallel, 1 process"
TRAININGS = {
    "1 process": "--algorithm standalone",
    "MD-GAN, 4 workers": "--world-size 5 --workers-per-host 4",
    "MD-GAN, 4 workers at once": "--world-size 5 --workers-per-host 4 --vectorize",
    "MD-GAN, 10 workers": "--world-size 11 --workers-per-host 10",
    "MD-GAN, 10 workers at once": "--world-size 11 --workers-per-host 10 --vectorize",
    DDP: "",
}
VARIANTS = {
    "fp32": "",
    "bf16": "--precision bf16",
    "bf16, channels_last": "--precision bf16 --set channels_last=true",
    "compile": "--set compile=true",
}
_QUIET = "--transport memory --sample-interval 0 --eval-interval 0 --checkpoint-interval 0"
_SCORED = "--world-size 11 --workers-per-host 10 --vectorize --batch-size 32 --iterations 2000"
_RATE = re.compile(r"\(([0-9.,]+) it/s\)")
_MOST_SECONDS = 75


class CutOffError(Exception):
    """The time is over, or the user ended this program."""


class Check:
    """What remains of the time, and the flags that all trainings share."""

    def __init__(self, *, device: str, iterations: int, data_dir: Path | None, seconds: float):
        self.device, self.iterations = device, iterations
        self.end = time.monotonic() + seconds
        data = f"cifar10 --data-dir {data_dir}" if data_dir else "cifar10_noise"
        self.flags = f"--dataset {data} --datasets-dir {HERE / 'datasets'} --device {device}"

    def output_of(self, command: Sequence[str], *, shown: bool = False) -> str:
        """What a program printed; raises RuntimeError if it fails, CutOffError without time."""
        remaining = self.end - time.monotonic()
        if remaining < 5:
            raise CutOffError
        pipe = None if shown else subprocess.PIPE
        process = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        try:
            out, errors = process.communicate(timeout=min(remaining, _MOST_SECONDS))
        except subprocess.TimeoutExpired:
            raise RuntimeError("took too long") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        if process.returncode:
            raise RuntimeError(f"{(errors or 'failed').strip().splitlines()[-1]:.100}")
        return f"{out}{errors}"

    def mdgan(self, flags: str) -> str:
        """What a command of mdgan printed."""
        return self.output_of([sys.executable, "-m", "mdgan", *flags.split()])

    def rate(self, training: str, variant: str, folder: Path) -> float:
        """Iterations a second of one training."""
        if training == DDP:
            run = {
                "dataset": "cifar10_noise",
                "batch_sizes": [10],
                "iterations": self.iterations,
                "device": self.device,
                "bf16": "bf16" in variant,
                "channels_last": "channels_last" in variant,
                "compiled": "compile" in variant,
            }
            program = [sys.executable, "-m", "benchmarks.ddp", json.dumps(run)]
            return 1 / float(self.output_of(program).split()[0])
        settings = f"{TRAININGS[training]} {VARIANTS[variant]} --batch-size 10 {_QUIET}"
        length = f"--iterations {self.iterations} --out {folder}"
        rates = _RATE.findall(self.mdgan(f"train {self.flags} {settings} {length}"))
        if not rates:
            raise RuntimeError("printed no rate")
        return float(rates[-1].replace(",", ""))


def as_table(rates: Mapping[tuple[str, str], str]) -> str:
    """Iterations a second by training (rows) and variant (columns), in Markdown."""
    head = f"| iterations/s | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}\n"
    rows = (
        f"| {training} | {' | '.join(rates.get((training, name), '') for name in VARIANTS)} |\n"
        for training in TRAININGS
    )
    return head + "".join(rows)


def score(check: Check, folder: Path) -> bool:
    """Trains MD-GAN at full width with ten workers on CIFAR-10; prints its scores, or why none."""
    run = folder / "scored"
    flags = f"{check.flags} {_SCORED} {_QUIET} --precision bf16 --out {run}"
    try:
        print(check.mdgan(f"train {flags}").strip().splitlines()[-1], flush=True)
        print(check.mdgan(f"evaluate {run} --device {check.device} -n 2048"), flush=True)
    except RuntimeError as error:
        print(f"the scored run {error}", flush=True)
        return False
    return True


def measure(check: Check, *, scored: bool) -> bool:
    """Prints each figure and at last the table; returns whether all of it is there."""
    rates: dict[tuple[str, str], str] = {}
    complete = True
    with tempfile.TemporaryDirectory() as folder:
        try:
            for variant in VARIANTS:
                for training in TRAININGS:
                    run = Path(folder) / f"{len(rates)}"
                    try:
                        rates[training, variant] = f"{check.rate(training, variant, run):.1f}"
                    except RuntimeError as error:
                        rates[training, variant], complete = f"{error}", False
                    print(f"{training}, {variant}: {rates[training, variant]}", flush=True)
                if variant == "bf16" and scored:
                    complete = score(check, Path(folder)) and complete
        except CutOffError:
            print("Cut off: what is missing was not measured.", flush=True)
            complete = False
        finally:
            print(f"\n{as_table(rates)}", flush=True)
    return complete


def _cut_off(_signal: int, _frame: object) -> None:
    raise CutOffError


@click.command(help=__doc__)
@click.option("--data-dir", type=click.Path(exists=True, path_type=Path))
@click.option("--minutes", type=click.FloatRange(min=0), default=8.0, show_default=True)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--iterations", type=click.IntRange(min=4), default=200, show_default=True)
def main(data_dir: Path | None, minutes: float, device: str, iterations: int) -> None:
    """See the head of this file."""
    on_gpu = device == "cuda"
    if on_gpu and not torch.cuda.device_count():
        print("gpu-check: no CUDA GPU found here", file=sys.stderr)
        sys.exit(2)
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, _cut_off)
    check = Check(device=device, iterations=iterations, data_dir=data_dir, seconds=60 * minutes)
    complete = True
    if on_gpu:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
        try:
            check.output_of([sys.executable, "-m", "pytest", "-m", "gpu", "-q"], shown=True)
        except (RuntimeError, CutOffError) as error:
            print(f"tests: {error or 'cut off'}", flush=True)
            complete = False
    sys.exit(not (measure(check, scored=data_dir is not None) and complete))


if __name__ == "__main__":
    main()
