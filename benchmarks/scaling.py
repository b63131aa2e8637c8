"""Measures runs with growing N: time and bytes of an iteration, memory and start-up.

    python -m benchmarks.scaling [--processes 1,2,4,10,20,40] [--hosted 10,100,1000]

First it runs CIFAR-10's models with a process for each worker, then those of digits with many
workers in few hosts; b = 10 in both. Right after each run it measures the limit of the arithmetic
(`limit.py`); efficiency is that limit / the measured time. "Server" is the time that the server's
process computes in an iteration, on all its threads.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks import limit
from benchmarks.training import HERE, Case, measure
from mdgan.records.recorded_run import RecordedRun


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: of the configuration.
        num_workers: N.
        processes: number of processes, the launcher included.
        iteration_seconds: as measured.
        limit_seconds: of the arithmetic alone.
        server_seconds: computed by the server's process in an iteration.
        sent: bytes that leave the server in an iteration.
        received: bytes that reach the server in an iteration.
        pss_bytes: memory of all processes.
        first_iteration_seconds: from the command to the first iteration.
    """

    name: str
    num_workers: int
    processes: int
    iteration_seconds: float
    limit_seconds: float
    server_seconds: float
    sent: float
    received: float
    pss_bytes: int
    first_iteration_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name:24} {self.num_workers:5} {self.processes:4} "
            f"{self.iteration_seconds:8.4f} s {self.limit_seconds:8.4f} s "
            f"{self.limit_seconds / self.iteration_seconds:5.2f} "
            f"{1000 * self.server_seconds:7.1f} ms {self.sent / 1000:7.0f} kB "
            f"{self.received / 1000:7.0f} kB {self.pss_bytes / 2**20:6.0f} MB "
            f"{self.first_iteration_seconds:5.1f} s"
        )


HEADER = (
    f"{'':24} {'N':>5} {'proc':>4} {'iteration':>10} {'limit':>10} {'eff.':>5} {'server':>10} "
    f"{'out':>10} {'in':>10} {'memory':>9} {'start-up':>7}"
)


def run(
    name: str,
    dataset: str,
    num_workers: int,
    iterations: int,
    *,
    workers_per_host: int = 1,
    settings: Mapping[str, object] | None = None,
) -> Row:
    """Measures one run, then its limit."""
    flags = ["--dataset", dataset, "--datasets-dir", str(HERE / "datasets"), "--batch-size", "10"]
    flags += ["--world-size", str(num_workers + 1), "--workers-per-host", str(workers_per_host)]
    flags += ["--swap-interval", "0", "--checkpoint-interval", "0"]
    for setting, value in (settings or {}).items():
        flags += [f"--{setting.replace('_', '-')}", str(value)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        figures = measure(Case(name, tuple(flags), iterations), folder)
        (path,) = folder.iterdir()
        trace = RecordedRun.read(path).traces["server"]
    last = trace.traffic[-1]
    return Row(
        name,
        num_workers,
        figures.processes,
        figures.iteration_seconds,
        limit.measure(dataset, num_workers, {**(settings or {})}),
        figures.server_seconds,
        last.sent["BATCHES"] / last.iteration,
        last.received["FEEDBACK"] / last.iteration,
        figures.pss_bytes,
        figures.first_iteration_seconds,
    )


@click.command()
@click.option("--processes", default="1,2,4,10,20,40", show_default=True)
@click.option("--hosted", default="10,100,1000", show_default=True)
@click.option(
    "--hosts", default=4, show_default=True, help="Number of hosts of the runs of --hosted."
)
@click.option("--json", "saved", type=click.Path(path_type=Path), help="File for the rows.")
def main(processes: str, hosted: str, hosts: int, saved: Path | None) -> None:
    """Measures runs of growing N."""
    rows: list[Row] = []
    print(HEADER, flush=True)
    for size in map(int, filter(None, processes.split(","))):
        rows.append(run("CIFAR-10, processes", "cifar10_noise", size, max(12, 60 - size)))
        print(rows[-1], flush=True)
    for size in map(int, filter(None, hosted.split(","))):
        # κ would grow with N, and the server's share with it.
        row = run(
            f"digits, {hosts} hosts",
            "digits",
            size,
            max(30, 3000 // size),
            workers_per_host=-(-size // hosts),
            settings={"kappa": 3},
        )
        rows.append(row)
        print(row, flush=True)
    if saved is not None:
        saved.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
