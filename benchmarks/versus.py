"""Compares whole runs with MD-GAN as published (`published.py`) and with the arithmetic's limit.

    python -m benchmarks.versus [--workers 4,10,20] [--precision bf16] [--as-shipped] [--rounds 3]

Each round of each N measures the published algorithm with one thread a process, mdgan, and the
limit (`limit.py`). Prints seconds an iteration and until the first one, memory, and the ratios of
each round, then their medians. With `--as-shipped` it also runs the published algorithm once with
as many threads as torch takes by itself. Run it on an otherwise idle machine.
"""

import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks import limit, published
from benchmarks.published import Measured
from benchmarks.training import HERE, Case
from benchmarks.training import measure as measure_ours

ITERATIONS = {4: 40, 10: 30, 20: 20, 40: 12}
GIB = 2**30


@dataclass(frozen=True)
class Round:
    """One round: seconds an iteration and until the first one, and gibibytes.

    Attributes:
        num_workers: N.
        precision: of mdgan and of the limit; the published algorithm has only fp32.
        published: figures of MD-GAN as published, with one thread a process.
        ours: figures of mdgan with a process for each worker.
        limit: of the arithmetic, in seconds an iteration.
    """

    num_workers: int
    precision: str
    published: Measured
    ours: Measured
    limit: float

    def ratios(self) -> dict[str, float]:
        """Ratios of published to ours, and the efficiency, which is limit / ours."""
        theirs, ours = self.published, self.ours
        return {
            "speed": theirs.iteration_seconds / ours.iteration_seconds,
            "efficiency": self.limit / ours.iteration_seconds,
            "start-up": theirs.first_iteration_seconds / ours.first_iteration_seconds,
            "memory": theirs.pss_bytes / ours.pss_bytes,
        }


def run_ours(dataset: str, num_workers: int, iterations: int, precision: str) -> Measured:
    """Measures mdgan with a process for each worker."""
    flags = ["--dataset", dataset, "--datasets-dir", str(HERE / "datasets")]
    flags += ["--batch-size", str(published.BATCH_SIZE), "--world-size", str(num_workers + 1)]
    flags += ["--swap-interval", "0", "--checkpoint-interval", "0", "--precision", precision]
    flags += ["--workers-per-host", "1"]  # as published
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_ours(Case("ours", tuple(flags), iterations), Path(folder))
    return Measured(figures.first_iteration_seconds, figures.iteration_seconds, figures.pss_bytes)


def one_round(dataset: str, num_workers: int, precision: str) -> Round:
    """Measures the published algorithm, mdgan and the limit, one after the other."""
    iterations = ITERATIONS.get(num_workers, 20)
    return Round(
        num_workers,
        precision,
        published.measure(dataset, num_workers, iterations, threads=1),
        run_ours(dataset, num_workers, iterations, precision),
        limit.measure(dataset, num_workers, {"precision": precision}),
    )


def in_words(name: str, figures: published.Measured) -> str:
    return (
        f"  {name:22} {figures.iteration_seconds:7.4f} s an iteration, the first after "
        f"{figures.first_iteration_seconds:5.1f} s, {figures.pss_bytes / GIB:5.2f} GB"
    )


def ratios_in_words(ratios: dict[str, float]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())


@click.command()
@click.option("--dataset", default="cifar10_noise", show_default=True)
@click.option("--workers", default="4,10,20", show_default=True)
@click.option("--precision", default="fp32", show_default=True)
@click.option("--rounds", default=1, show_default=True)
@click.option(
    "--as-shipped",
    is_flag=True,
    help="Also run the published algorithm with torch's number of threads.",
)
@click.option("--json", "saved", type=click.Path(path_type=Path), help="File for the rounds.")
def main(
    dataset: str, workers: str, precision: str, rounds: int, as_shipped: bool, saved: Path | None
) -> None:
    """Compares whole runs with the published algorithm and with the limit."""
    everything: list[Round] = []
    for size in map(int, workers.split(",")):
        print(f"{dataset}, {size} workers, b = {published.BATCH_SIZE}, {precision}", flush=True)
        if as_shipped:
            few = max(4, ITERATIONS.get(size, 20) // 5)
            figures = published.measure(dataset, size, few, threads=0)
            print(in_words("published, as shipped", figures), flush=True)
        results: list[Round] = []
        for _ in range(rounds):
            results.append(one_round(dataset, size, precision))
            print(in_words("published, one thread", results[-1].published))
            print(in_words("mdgan", results[-1].ours))
            print(f"  {'limit':22} {results[-1].limit:7.4f} s an iteration")
            print(f"  published / mdgan: {ratios_in_words(results[-1].ratios())}", flush=True)
        names = results[0].ratios()
        medians = {n: statistics.median(one.ratios()[n] for one in results) for n in names}
        print(f"  median of {rounds}: {ratios_in_words(medians)}", flush=True)
        everything += results
    if saved is not None:
        saved.write_text(json.dumps([asdict(one) for one in everything], indent=1) + "\n")


if __name__ == "__main__":
    main()
