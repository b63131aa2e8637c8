"""Measures what checkpoints and a deadline cost while nothing fails.

    python -m benchmarks.resilience [--repeats 4]

Trains on digits with 4 workers, alternately with both and without either (a checkpoint every 100
iterations, a deadline of 5 median answer times). Prints the speed of every run and the ratio of the
medians. All runs have pings, screening and counted answers. Run it on an otherwise idle machine.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.training import Case, measure

ITERATIONS = 1000
EACH = ("--workers-per-host", "1")


CASES = (
    Case("without", (*EACH, "--checkpoint-interval", "0"), ITERATIONS),
    Case("with", (*EACH, "--checkpoint-interval", "100", "--deadline", "5x"), ITERATIONS),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=4)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            for case in CASES:
                figures = measure(case, Path(folder) / str(repeat))
                seconds.setdefault(case.name, []).append(figures.iteration_seconds)
                rate = 1 / figures.iteration_seconds
                print(f"{case.name:8} {1e3 * figures.iteration_seconds:7.2f} ms {rate:7.1f} it./s")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"median {name:8} {1e3 * median:7.2f} ms {1 / median:7.1f} it./s")
    print(f"with / without: {medians['with'] / medians['without']:.3f}")


if __name__ == "__main__":
    main()
