"""Compares the speed of runs over this checkout's links with those of another checkout.

    python -m benchmarks.links --before CHECKOUT [--rounds 5] [--quick] [--without-tls]

Each round has three whole runs for each configuration: with the other checkout, with this one over
sockets of one machine, and with this one over TLS (the hosts are started by another command, and
dial a port of loopback). Prints seconds an iteration, seconds until the first one, and memory (PSS
of all processes, where one command starts them), and then the ratios of the medians to those of the
other checkout. Run it on an otherwise idle machine. Both checkouts run with the packages of this
environment.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.training import HERE, Case, Figures, measure

WAYS = ("before", "sockets", "TLS")


def configurations(*, quick: bool) -> list[tuple[str, int, Case]]:
    """Name, number of workers, and the case to run."""
    data = ("--dataset", "cifar10_noise", "--datasets-dir", str(HERE / "datasets"))
    cifar = (*data, "--batch-size", "10")
    works: list[tuple[str, tuple[str, ...], int, int]] = [
        *(("digits", (), n, iterations) for n, iterations in ((4, 1500), (10, 600), (20, 300))),
        ("CIFAR-10 shapes", cifar, 20, 24),
    ]
    if quick:
        works = [("digits", (), 4, 300), ("CIFAR-10 shapes", cifar, 4, 20)]
    alone = ("--workers-per-host", "1", "--swap-interval", "0", "--world-size")
    return [
        (f"{name}, {n} workers", n, Case(name, (*flags, *alone, str(n + 1)), i))
        for name, flags, n, i in works
    ]


@contextmanager
def hosts_apart(case: Case, num_workers: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """Starts the hosts by their own command; yields the flags for the server's command."""
    credentials = folder / "run.cred"
    mdgan = [sys.executable, "-m", "mdgan"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not credentials.exists():
        subprocess.run([*mdgan, "credentials", "new", str(credentials)], check=True, **quiet)  # type: ignore[call-overload] # by name
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    place = ("--master-addr", "127.0.0.1", "--master-port", port)
    links = (*place, "--credentials", str(credentials))
    ranks = ",".join(map(str, range(1, num_workers + 1)))
    interval = str(max(1, case.iterations // 20))
    common = ["--iterations", str(case.iterations), "--log-interval", interval]
    common += ["--sample-interval", "0", "--eval-interval", "0"]
    hosts = subprocess.Popen(
        [*mdgan, "train", *case.flags, *common, *links, "--ranks", ranks], **quiet
    )  # type: ignore[call-overload] # by name
    try:
        yield (*links, "--ranks", "0")
    finally:
        hosts.terminate()
        hosts.wait()


def run(way: str, before: Path, case: Case, num_workers: int, folder: Path) -> Figures:
    """Runs once in one of the ways."""
    this_checkout = Path(__file__).resolve().parents[1]
    os.chdir(before if way == "before" else this_checkout)  # `python -m` takes what lies there
    if way != "TLS":
        return measure(case, folder)
    with hosts_apart(case, num_workers, folder.parent) as flags:
        return measure(Case(case.name, (*case.flags, *flags), case.iterations), folder)


def main() -> None:
    """Prints every run, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--without-tls", action="store_true")
    arguments = parser.parse_args()
    ways = [way for way in WAYS if way != "TLS" or not arguments.without_tls]
    with tempfile.TemporaryDirectory() as name:
        for title, num_workers, case in configurations(quick=arguments.quick):
            figures_of: dict[str, list[Figures]] = {way: [] for way in ways}
            for number in range(arguments.rounds):
                for way in ways:
                    folder = Path(name) / f"{title}-{way}-{number}"
                    folder.mkdir()
                    took = run(way, arguments.before.resolve(), case, num_workers, folder)
                    figures_of[way].append(took)
                    print(
                        f"{title:26} {way:8} {1e3 * took.iteration_seconds:8.2f} ms "
                        f"{took.first_iteration_seconds:6.1f} s {took.pss_bytes / 2**20:6.0f} MB",
                        flush=True,
                    )
            for way in ways[1:]:
                ratios = [
                    statistics.median(getattr(took, figure) for took in figures_of[way])
                    / statistics.median(getattr(took, figure) for took in figures_of["before"])
                    for figure in ("iteration_seconds", "first_iteration_seconds", "pss_bytes")
                ]
                memory = f"{ratios[2]:.3f}" if way == "sockets" else "–"
                print(
                    f"{title:26} {way} : before   iteration {ratios[0]:.3f}   first "
                    f"{ratios[1]:.3f}   memory {memory}"
                )


if __name__ == "__main__":
    main()
