"""Measures what privacy costs in a whole run: seconds and bytes of an iteration.

    python -m benchmarks.private_runs [--workers 4] [--models default,acgan] [--rounds 3]

Trains digits with a process for each worker. The ways take turns: without privacy, with batches by
Poisson sampling, with differential privacy, with secure aggregation, and with both. All ways run
with the models of digits, and with a convolutional discriminator that has GroupNorm. All have the κ
that secure aggregation takes. Prints medians, and their ratios to runs without privacy. Run it on
an otherwise idle machine.
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


class Cost(NamedTuple):
    """The cost of a run's iteration.

    Attributes:
        seconds: the median of the second half of the run.
        sent: bytes that the server sends, a mean over the run.
        received: bytes that the server receives, a mean over the run.
    """

    seconds: float
    sent: float
    received: float


def run(name: str, flags: tuple[str, ...], iterations: int) -> Cost:
    """Trains once, with new ledgers."""
    with tempfile.TemporaryDirectory() as ledgers, tempfile.TemporaryDirectory() as folder:
        ledger = ("--dp-ledger", ledgers) if PRIVATE[0] in flags else ()
        figures = measure(Case(name, (*flags, *ledger), iterations), Path(folder))
        (path,) = Path(folder).iterdir()
        last = RecordedRun.read(path).traces["server"].traffic[-1]
    sent, received = (sum(each.values()) / last.iteration for each in (last.sent, last.received))
    return Cost(figures.iteration_seconds, sent, received)


@click.command()
@click.option("--workers", default=4, show_default=True)
@click.option("--models", default=",".join(MODELS), show_default=True)
@click.option("--ways", default=";".join(WAYS), show_default=True)
@click.option("--iterations", default=400, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(workers: int, models: str, ways: str, iterations: int, rounds: int) -> None:
    """Trains in every way, in turns, and prints a row for each."""
    kappa = str(max(1, min(resolve_kappa("auto", workers), workers // LEAST_PARTIES)))
    common = (
        *("--world-size", str(workers + 1), "--kappa", kappa, "--swap-interval", "0"),
        *("--checkpoint-interval", "0", "--threads", "1"),
    )
    names = ways.split(";")
    for model in models.split(","):
        costs: dict[str, list[Cost]] = {way: [] for way in names}
        for _ in range(rounds):
            for way in names:
                costs[way].append(run(way, (*common, *MODELS[model], *WAYS[way]), iterations))
        print(f"digits, {model} models, {workers} workers, κ = {kappa}", flush=True)
        plain = statistics.median(each.seconds for each in costs[names[0]])
        for way, each in costs.items():
            seconds = statistics.median(one.seconds for one in each)
            sent, received = (statistics.median(one[n] for one in each) for n in (1, 2))
            print(
                f"  {way:12} {1e3 * seconds:7.2f} ms {seconds / plain:6.2f} × "
                f"{sent / 1e3:8.1f} kB out {received / 1e3:8.1f} kB in",
                flush=True,
            )


if __name__ == "__main__":
    main()
