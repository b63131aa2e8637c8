"""Times a round in mdgan, Flower, pfl and a bare loop, in turn on this machine.

    make peers                                                     # once
    python -m benchmarks.peers [--work 20:1:iid,100:0.1:iid,1000:0.1:fegan:10,100] [--repeats 2]

Prints for each work and way the median seconds of a round after warming up, over all repeats and of
each repeat; the seconds that all processes together computed in a round, which other programs
disturb least; seconds from the command to the first round (the end of that round minus a median
round); and the memory of all processes together (PSS, which counts shared pages once). Run it on an
otherwise idle machine.

A work is CLIENTS:FRACTION:PARTITION of the digits; spaces separate works. All ways train on the
same shards, but each draws its own cohorts, noise and order of samples.
"""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import click
import psutil
import torch

from benchmarks.peers.work import Shards, Work
from benchmarks.training import ends_with_this, memory
from mdgan.data.dataset_file import load
from mdgan.data.partition import partition
from mdgan.data.settings import parse_partition

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WARM_UP = 3
WORKS = "20:1:iid 100:0.1:iid 1000:0.1:fegan:10,100"


@dataclass(frozen=True)
class Way:
    """One program with its settings.

    Attributes:
        peer: name of the module that does the work; empty for mdgan.
        processes: number of those that train.
        flags: of `mdgan train`.
    """

    peer: str = ""
    processes: int = 1
    flags: tuple[str, ...] = ()


WAYS = {
    "bare loop": Way("bare"),
    "mdgan, 1 slot": Way(flags=("--slots", "1")),
    "mdgan, 2 slots": Way(flags=("--slots", "2")),
    "mdgan, 2 slots, vectorized": Way(flags=("--slots", "2", "--vectorize")),
    "Flower, 1 actor": Way("with_flower"),
    "Flower, 2 actors": Way("with_flower", 2),
    "pfl, 1 process": Way("with_pfl"),
    "pfl, 2 processes": Way("with_pfl", 2),
}


@dataclass
class Figures:
    """The measurements of one way.

    Attributes:
        rounds: by repeat, the seconds of each round after warming up.
        starts: seconds from the command until the first round begins.
        pss_bytes: memory of all processes; the most of any repeat.
        processes: their number.
        cores: by repeat, how many cores all processes together kept busy after warming up.
        refused: the reason why mdgan refused the settings; empty if it did not.
    """

    rounds: list[list[float]] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    pss_bytes: int = 0
    processes: int = 0
    cores: list[float] = field(default_factory=list)
    refused: str = ""

    @property
    def median(self) -> float:
        """Seconds of a round."""
        return statistics.median(second for rounds in self.rounds for second in rounds)


def command(
    way: Way, work: Work, share: str, scheme: str, folder: Path, peers: Path
) -> tuple[list[str], Callable[[], list[float]]]:
    """The command of a way, and a function that reads the times of day at which rounds ended."""
    times = folder / "times"
    if not way.peer:
        flags = f"--algorithm fl-gan --dataset digits --clients {work.clients} --threads 1 --seed 0"
        flags += f" --participation {share} --partition {scheme} --batch-size {work.batch_size}"
        flags += f" --round-iterations {work.iterations} --eval-interval 0 --sample-interval 0"
        flags += f" --iterations {work.rounds * work.iterations} --checkpoint-interval 0"
        run = folder / "run"
        words = [sys.executable, "-m", "mdgan", "train", *flags.split(), *way.flags]
        return [*words, "--out", str(run)], lambda: _rounds_of(run / "metrics.jsonl")
    python, words = [str(peers / "bin" / "python")], ["-m"]
    if way.peer == "with_pfl" and way.processes > 1:
        words = ["-m", "torch.distributed.run", "--nproc-per-node", str(way.processes), "--module"]
    words += ["benchmarks.peers.peer", way.peer, json.dumps(work), str(way.processes), str(times)]
    return python + words, lambda: [float(line) for line in _lines(times)]


def measure(started: list[str], done: Callable[[], list[float]], rounds: int) -> Figures:
    """Runs one way once.

    Args:
        started: the command.
        done: reads the times at which rounds have ended so far.
        rounds: number of rounds of the run.
    """
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    figures, begin = Figures(), time.time()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            started, stdout=output, stderr=output, env={**os.environ, **quiet}, cwd=ROOT
        )
        computed: list[tuple[float, float]] = []
        with ends_with_this(process):
            while process.poll() is None:
                time.sleep(0.25)
                number = len(done())
                with contextlib.suppress(psutil.Error):  # one of them may have just ended
                    if number >= WARM_UP and (not computed or number > 0.75 * rounds):
                        computed.append((time.time(), _computed(process.pid)))
                    if number > rounds / 2 and not figures.pss_bytes:
                        figures.pss_bytes, figures.processes = memory(process.pid)
        output.seek(0)
        last = output.read().decode(errors="replace").strip().splitlines()[-15:]
    if process.returncode == 2 and last and "mdgan" in started:
        figures.refused = last[-1]
        return figures
    times = done()
    if process.returncode or len(times) != rounds:
        raise click.ClickException("\n".join([f"{' '.join(started)} failed:", *last]))
    figures.rounds = [[after - before for before, after in pairwise(times)]]
    figures.rounds[0] = figures.rounds[0][WARM_UP - 1 :]
    figures.starts = [times[0] - begin - figures.median]
    inside = [(at, seconds) for at, seconds in computed if at <= times[-1]]
    if len(inside) > 1:
        (begin, before), (end, after) = inside[0], inside[-1]
        figures.cores = [(after - before) / (end - begin)]
    return figures


def _computed(launcher: int) -> float:
    """Seconds that a process and its children have computed."""
    parent = psutil.Process(launcher)
    times = [child.cpu_times() for child in (parent, *parent.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def _lines(file: Path) -> list[str]:
    """The complete lines of a file that a process still writes."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


def _rounds_of(metrics: Path) -> list[float]:
    rows = [json.loads(line) for line in _lines(metrics) if '"event": ' in line]
    began = next((row["time"] - row["seconds"] for row in rows if "time" in row), 0.0)
    return [began + row["seconds"] for row in rows if row["event"] == "round"]


def print_table(figures_of: dict[str, Figures]) -> None:
    """Prints a row for each way, then the least seconds of each program beside mdgan's."""
    columns = f"{'':28} {'s/round':>8}  {'each repeat':20} {'computed':>8} {'start':>7}"
    print(f"{columns} {'memory':>8}  processes")
    for name, figures in figures_of.items():
        if not figures.rounds:
            print(f"{name:28}        –  {figures.refused}")
            continue
        each = " ".join(f"{statistics.median(rounds):.3f}" for rounds in figures.rounds)
        computed = figures.median * statistics.median(figures.cores) if figures.cores else math.nan
        print(
            f"{name:28} {figures.median:8.3f}  {each:20} {computed:8.3f} "
            f"{statistics.median(figures.starts):5.1f} s {figures.pss_bytes / 2**20:5.0f} MB"
            f"  {figures.processes}"
        )
    least: dict[str, float] = {}
    for name, figures in figures_of.items():
        program = name.partition(",")[0]
        if figures.rounds:
            least[program] = min(figures.median, least.get(program, figures.median))
    if "mdgan" in least:
        ratios = [
            f"{program} {s / least['mdgan']:.2f}"
            for program, s in least.items()
            if program != "mdgan"
        ]
        print(f"least seconds a round / mdgan's: {', '.join(ratios)}\n", flush=True)


@click.command()
@click.option("--work", "works", default=WORKS, show_default=True)
@click.option("--rounds", default=20, show_default=True, help=f"The first {WARM_UP} warm up.")
@click.option(
    "--iterations", default=30, show_default=True, help="Iterations of a client in a round."
)
@click.option("--batch-size", default=10, show_default=True)
@click.option(
    "--repeats", default=2, show_default=True, help="How many times all ways run in turn."
)
@click.option("--only", default="", help="Only ways whose names contain this.")
@click.option("--peers", default=str(ROOT / "build" / "peers"), show_default=True)
def main(
    works: str, rounds: int, iterations: int, batch_size: int, repeats: int, only: str, peers: str
) -> None:
    """Prints a table for each work."""
    if not (Path(peers) / "bin" / "python").exists():
        raise click.ClickException(f"{peers} is not there: `make peers` makes it")
    if rounds <= WARM_UP:
        raise click.BadParameter(f"--rounds {rounds}: the first {WARM_UP} do not count")
    dataset = load("digits", str(ROOT / "datasets")).open(Path())
    images = dataset.images(torch.arange(len(dataset)))
    for text in works.split():
        clients, share, scheme = text.split(":", 2)
        cohort = round(float(share) * int(clients))
        print(f"{cohort} of {clients} clients, {scheme}, b = {batch_size}, {iterations} iterations")
        parts = partition(dataset.labels, parse_partition(scheme), int(clients), 0)
        totals = {name: Figures() for name in WAYS if only in name}
        for _ in range(repeats):
            for name, total in totals.items():
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "work.npz"
                    Shards.write(file, images, parts)
                    work = Work(int(clients), cohort, rounds, iterations, batch_size, str(file))
                    start = command(WAYS[name], work, share, scheme, Path(folder), Path(peers))
                    figures = measure(*start, rounds)
                total.rounds += figures.rounds
                total.starts += figures.starts
                total.cores += figures.cores
                total.pss_bytes = max(total.pss_bytes, figures.pss_bytes)
                total.processes, total.refused = figures.processes, figures.refused
        print_table(totals)


if __name__ == "__main__":
    main()
