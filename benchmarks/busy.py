"""Measures a training in one process beside other programs that use all cores.

    python -m benchmarks.busy [--iterations N]

Trains MNIST's perceptron on noise in one process: alone, beside one busy loop, and beside a loop
for every core. It tries several ways in which OpenMP's threads wait for one another, each in a new
process, since OpenMP reads its variables once. Run it on an idle machine: on a busy one the column
`alone` means nothing, since mdgan then chooses as it does beside loops. Takes two minutes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses
from mdgan.settings.machine import num_cores
from tests.unit.dataset_formats import write_mnist

WAYS: dict[str, dict[str, str]] = {
    "as mdgan chooses": {},
    "spinning": {"OMP_WAIT_POLICY": "ACTIVE"},
    "OpenMP's default": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Runs as many endless loops during the block; each keeps a core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rate(folder: Path, iterations: int, threads: str, variables: dict[str, str]) -> float:
    """Trains once; returns iterations per second, the start not counted."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    flags = {"dataset": "mnist", "data-dir": folder / "data", "iterations": iterations}
    flags |= {"eval-interval": 0, "sample-interval": 0, "log-interval": 5, "threads": threads}
    command = [sys.executable, "-m", "mdgan", "standalone", "--out", str(out)]
    command += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
    first, *_, last = RecordedRun.read(out).of(Losses)
    seconds = (last.seconds or 0.0) - (first.seconds or 0.0)
    return (last.iteration - first.iteration) / seconds


def main() -> None:
    """Prints iterations per second for each way to wait and number of busy loops."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--iterations", type=int, default=60)
    iterations = parser.parse_args().iterations
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_mnist(folder / "data", 1000)
        cores = num_cores()
        print(f"{cores} cores; iterations/s of one process    alone  1 loop  {cores} loops")
        one_thread: dict[str, dict[str, str]] = {"as mdgan chooses": {}}
        for threads, ways in (("auto", WAYS), ("1", one_thread)):
            for way, variables in ways.items():
                rates = []
                for loops in (0, 1, cores):
                    with busy_cores(loops):
                        rates.append(rate(folder, iterations, threads, variables))
                columns = " ".join(f"{measured:7.1f}" for measured in rates)
                print(f"threads {threads:5} {way:28} {columns}", flush=True)


if __name__ == "__main__":
    main()
