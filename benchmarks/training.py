"""Measures start-up, speed and memory of whole runs over real processes, as users start them.

    python -m benchmarks.training [--quick]

Prints one row for each configuration: seconds from the command to the first iteration, the speed of
the second half of the run, seconds of the whole run, and the memory of all processes together (PSS,
which counts shared pages once). Run it on an otherwise idle machine.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """One configuration to measure."""

    name: str
    flags: tuple[str, ...]
    iterations: int


@dataclass(frozen=True)
class Figures:
    """The figures of one run."""

    first_iteration_seconds: float
    iteration_seconds: float
    whole_seconds: float
    pss_bytes: int
    processes: int
    server_seconds: float = 0.0
    """Seconds that the server computes in an iteration, on all its threads."""


def cases(*, quick: bool) -> list[Case]:
    cifar = ["--dataset", "cifar10_noise", "--datasets-dir", str(HERE / "datasets")]
    cifar += ["--batch-size", "10"]
    return [
        Case("digits, 4 workers", ("--world-size", "5"), 300 if quick else 2000),
        Case(
            "digits, 4 workers, scored",
            ("--world-size", "5", "--eval-interval", "100" if quick else "500"),
            300 if quick else 2000,
        ),
        Case("digits, standalone", (), 300 if quick else 2000),
        *(
            Case(
                f"CIFAR-10 shapes, b = 10, {n} workers", (*cifar, "--world-size", str(n + 1)), count
            )
            for n, count in ((4, 60), (10, 40), (20, 30))
            if not (quick and n > 4)
        ),
    ]


def measure(case: Case, folder: Path) -> Figures:
    algorithm = "standalone" if "standalone" in case.name else "train"
    out = folder / case.name.replace(" ", "-").replace(",", "")
    interval = str(max(1, case.iterations // 20))
    flags = ["--iterations", str(case.iterations), "--log-interval", interval]
    flags += ["--sample-interval", "0", "--eval-interval", "0"]
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "mdgan", algorithm, *flags, *case.flags, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    first = None
    server_seconds: list[tuple[float, float]] = []
    pss_bytes = processes = 0
    with ends_with_this(process):
        while process.poll() is None:
            time.sleep(0.05 if first is None else 0.5)
            done = iterations_done(out)
            if done and first is None:
                first = time.monotonic() - begin - (done[-1]["seconds"] - done[0]["seconds"])
            if done and done[-1]["iteration"] > case.iterations / 2 and not pss_bytes:
                pss_bytes, processes = memory(process.pid)
            if pss_bytes and algorithm == "train":
                # The process may have just ended.
                with contextlib.suppress(psutil.Error, ValueError):
                    server_seconds.append((done[-1]["iteration"], server_cpu_seconds(process.pid)))
    whole = time.monotonic() - begin
    assert process.returncode == 0, f"{case.name} ended with status {process.returncode}"
    assert first is not None
    done = iterations_done(out)
    half = done[len(done) // 2 :]
    speed = (half[-1]["seconds"] - half[0]["seconds"]) / (
        half[-1]["iteration"] - half[0]["iteration"]
    )
    server = 0.0
    if len(server_seconds) > 1 and server_seconds[-1][0] > server_seconds[0][0]:
        (begin, before), (end, after) = server_seconds[0], server_seconds[-1]
        server = (after - before) / (end - begin)
    return Figures(first, speed, whole, pss_bytes, processes, server)


@contextlib.contextmanager
def ends_with_this(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Ends a measured program if this one is interrupted inside the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def iterations_done(run: Path) -> list[dict[str, float]]:
    path = run / "metrics.jsonl"
    if not path.exists():
        return []
    complete, _, _ = path.read_text().rpartition("\n")  # the last line may be incomplete
    records = [json.loads(line) for line in complete.splitlines()]
    return [record for record in records if "event" not in record]


def memory(launcher: int) -> tuple[int, int]:
    """The PSS of a launcher and its ranks, in bytes, and the number of these processes."""
    parent, sizes = psutil.Process(launcher), []
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a slot, or a trial, that has ended
            sizes.append(process.memory_full_info().pss)
    return sum(sizes), len(sizes)


def server_cpu_seconds(launcher: int) -> float:
    """Seconds that the server's process has computed so far; it is forked before the hosts."""
    server = min(psutil.Process(launcher).children(), key=lambda child: child.pid)
    times = server.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    print(f"{'':38} {'first it.':>9} {'s/it.':>8} {'it./s':>7} {'whole':>7} {'PSS':>8}  processes")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(quick="--quick" in sys.argv[1:]):
            run = measure(case, Path(folder))
            print(
                f"{case.name:38} {run.first_iteration_seconds:7.1f} s {run.iteration_seconds:8.4f} "
                f"{1 / run.iteration_seconds:7.1f} {run.whole_seconds:5.0f} s "
                f"{run.pss_bytes / 2**20:5.0f} MB  {run.processes}",
                flush=True,
            )


if __name__ == "__main__":
    main()
