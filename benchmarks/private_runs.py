"""Measures what privacy costs a whole run: seconds and bytes of an iteration.

    python -m benchmarks.private_runs [--workers 4] [--models default,acgan] [--rounds 3]

Trains digits with a process for each worker, in turn without privacy, with batches by Poisson
sampling, with differential privacy, with secure aggregation, and with both; once with the models of
digits, and once with a convolutional discriminator that has GroupNorm. κ is the one that secure
aggregation takes, in all of them. Prints medians, and how many times as long as without privacy.
Run it on an otherwise idle machine.
"""

import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.training import Case, measure
from mdgan.gan.settings import resolve_kappa
from mdgan.privacy.secure_settings import LEAST_PARTIES
from mdgan.records.recorded_run import RecordedRun

MODELS = {
    "default": (),
    "acgan": ("--architecture", "acgan", "--width", "4", "--norm", "group"),
}
PRIVATE = ("--dp-epsilon", "10", "--dp-delta", "0.0001")
SECURE = ("--secure-aggregation",)
WAYS = {
    "plain": (),
    "poisson": ("--batch-sampling", "poisson"),
    "dp": PRIVATE,
    "secure": SECURE,
    "dp, secure": (*PRIVATE, *SECURE),
}


class Found(NamedTuple):
    """One run, a mean over its iterations.

    Attributes:
        seconds: of an iteration.
        sent: bytes that leave the server.
        received: bytes that reach it.
    """

    seconds: float
    sent: float
    received: float


def run(name: str, flags: tuple[str, ...], iterations: int) -> Found:
    """Trains once, with ledgers of its own."""
    with tempfile.TemporaryDirectory() as ledgers, tempfile.TemporaryDirectory() as folder:
        kept = ("--dp-ledger", ledgers) if PRIVATE[0] in flags else ()
        figures = measure(Case(name, (*flags, *kept), iterations), Path(folder))
        (path,) = Path(folder).iterdir()
        last = RecordedRun.read(path).traces["server"].traffic[-1]
    sent, received = (sum(each.values()) / last.iteration for each in (last.sent, last.received))
    return Found(figures.iteration_seconds, sent, received)


@click.command()
@click.option("--workers", default=4, show_default=True)
@click.option("--models", default=",".join(MODELS), show_default=True)
@click.option("--ways", default=";".join(WAYS), show_default=True)
@click.option("--iterations", default=400, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(workers: int, models: str, ways: str, iterations: int, rounds: int) -> None:
    """Trains in every way, in turns."""
    kappa = str(max(1, min(resolve_kappa("auto", workers), workers // LEAST_PARTIES)))
    common = (
        *("--world-size", str(workers + 1), "--kappa", kappa, "--swap-interval", "0"),
        *("--checkpoint-interval", "0", "--threads", "1"),
    )
    names = ways.split(";")
    for model in models.split(","):
        found: dict[str, list[Found]] = {way: [] for way in names}
        for _ in range(rounds):
            for way in names:
                found[way].append(run(way, (*common, *MODELS[model], *WAYS[way]), iterations))
        print(f"digits, {model} models, {workers} workers, κ = {kappa}", flush=True)
        plain = statistics.median(each.seconds for each in found[names[0]])
        for way, each in found.items():
            seconds = statistics.median(one.seconds for one in each)
            sent, received = (statistics.median(one[n] for one in each) for n in (1, 2))
            print(
                f"  {way:12} {1e3 * seconds:7.2f} ms {seconds / plain:6.2f} × "
                f"{sent / 1e3:8.1f} kB out {received / 1e3:8.1f} kB in",
                flush=True,
            )


if __name__ == "__main__":
    main()
