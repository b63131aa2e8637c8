"""Measures an iteration on links of limited bandwidth, for each form of images and feedback.

    python -m benchmarks.bandwidth [--megabits 20,100,1000] [--dataset cifar10_noise]
    python -m benchmarks.bandwidth --megabits 10,50 examples/asynchronous-updates/*.json

Needs root: it makes three machines (network namespaces) whose links are limited both ways. One has
the server, the other two have two workers each; their processes share this machine's cores. For
every form it prints the seconds of an iteration, the bytes that the server sends and receives in
it, how long these bytes take at that bandwidth, and how much faster than with the first form the
iteration is. It measures files of `mdgan compare` instead of the forms if some are named; their
numbers of iterations do not count.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click

from benchmarks.training import HERE, iterations_done
from mdgan.launch.given import known_settings
from mdgan.settings.config_file import read_config_file
from tests import namespaces

FORMS = {
    "fp32": (),
    "bf16": ("--wire", "images=bf16", "--wire", "feedback=bf16"),
    "int8": ("--wire", "images=int8", "--wire", "feedback=int8"),
    "int8, topk:0.05": ("--wire", "images=int8", "--wire", "feedback=topk:0.05"),
    "fp32, stale": ("--stale", "1"),
    "int8, stale": ("--wire", "images=int8", "--wire", "feedback=int8", "--stale", "1"),
}
RANKS = ("0", "1,2", "3,4")
_OTHERWISE = {"iterations", "eval_interval", "sample_interval", "transport", "world_size"}


@dataclass(frozen=True)
class Figures:
    """The time and the traffic of an iteration.

    Attributes:
        iteration_seconds: the median of the second half of the run.
        sent: bytes that left the server in an iteration.
        received: bytes that reached it.
    """

    iteration_seconds: float
    sent: float
    received: float


def flags_of(configuration: Path) -> list[str]:
    """Turns a file of `mdgan compare` into flags of `mdgan train`."""
    settings = read_config_file(configuration, known_settings()).settings
    used = {name: value for name, value in settings.items() if name not in _OTHERWISE}
    return [
        part for name, value in used.items() for part in (f"--{name.replace('_', '-')}", str(value))
    ]


def measure(flags: Sequence[str], megabits: int, iterations: int) -> Figures:
    """Runs once on three machines."""
    common = ["--datasets-dir", str(HERE / "datasets"), "--world-size", "5"]
    common += ["--checkpoint-interval", "0"]
    common += ["--sample-interval", "0", "--eval-interval", "0", "--log-interval", "1"]
    common += ["--iterations", str(iterations), "--credentials", "run.cred", *flags]
    with tempfile.TemporaryDirectory() as name, namespaces.machines(len(RANKS)) as machines:
        folder = Path(name)
        mdgan = [sys.executable, "-m", "mdgan"]
        make = [*mdgan, "credentials", "new", "run.cred"]
        subprocess.run(make, cwd=folder, check=True, capture_output=True)
        for machine in machines:
            namespaces.limit_bandwidth(machine, 125 * megabits, both_ways=True)
        started = [
            subprocess.Popen(
                [
                    *(*machine.prefix, *mdgan, "train", "--ranks", ranks, *common),
                    *("--out", "run", "--master-addr", machines[0].address),
                ],
                cwd=folder,
                stdout=subprocess.DEVNULL,
            )
            for machine, ranks in zip(machines, RANKS, strict=True)
        ]
        assert [process.wait() for process in started] == [0, 0, 0]
        return _read(folder / "run")


def _read(run: Path) -> Figures:
    done = iterations_done(run)
    half = done[len(done) // 2 :]
    took = [
        (after["seconds"] - before["seconds"]) / (after["iteration"] - before["iteration"])
        for before, after in pairwise(half)
    ]
    rows = [json.loads(line) for line in (run / "trace" / "server.jsonl").read_text().splitlines()]
    last = [row for row in rows if "sent_bytes" in row][-1]
    iterations = done[-1]["iteration"]
    return Figures(
        statistics.median(took),
        sum(last["sent_bytes"].values()) / iterations,
        sum(last["received_bytes"].values()) / iterations,
    )


@click.command()
@click.argument(
    "configurations", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--dataset",
    default="cifar10_noise",
    show_default=True,
    help="Dataset on which the forms are measured.",
)
@click.option("--megabits", default="20,100,1000", show_default=True)
@click.option("--iterations", default=24, show_default=True)
@click.option(
    "--only", default="", help="Forms to measure, separated by semicolons; by default all."
)
def main(
    configurations: Sequence[Path], dataset: str, megabits: str, iterations: int, only: str
) -> None:
    """Measures every form, or every configuration, at every bandwidth."""
    if not namespaces.available():
        raise click.ClickException("needs root and `ip` to make network namespaces")
    form_flags = ["--dataset", dataset, "--batch-size", "10", "--swap-interval", "0"]
    names = only.split(";") if only else list(FORMS)
    cases = {path.stem: flags_of(path) for path in configurations} or {
        name: [*form_flags, *FORMS[name]] for name in names
    }
    for rate in map(int, megabits.split(",")):
        print(f"4 workers, links of {rate} Mbit/s", flush=True)
        first = 0.0
        for name, flags in cases.items():
            took = measure(flags, rate, iterations)
            first = first or took.iteration_seconds
            transfer = (took.sent + took.received) / (125_000 * rate)
            print(
                f"  {name:16} {took.iteration_seconds:7.4f} s an iteration, "
                f"{took.sent / 1000:6.0f} kB out, {took.received / 1000:6.0f} kB in, which take "
                f"{transfer:7.4f} s; {first / took.iteration_seconds:5.2f} x",
                flush=True,
            )


if __name__ == "__main__":
    main()
