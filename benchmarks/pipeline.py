"""Measures how long training waits for pictures on slow storage, with several ways to read ahead.

    python -m benchmarks.pipeline [--batches N] [--rounds R] [--record FILE]

The reading time of each picture is drawn from a seed: log-normally distributed, 4 ms in the median.
The seed also draws when bursts come, in which all reading takes eight times as long. An iteration
sleeps 25 ms instead of computing, so that the processor's load hardly matters. The ways take turns
in each round. Takes about 20 s a way and round.

`--record` writes how long training waited for each batch: in bursts, while the storage gets slower
and recovers, and in a stall. The tests of the tuner read such a file.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from mdgan.data.fetching import Fetcher, Range
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard

BATCH_SIZE = 16
SHAPE = (3, 64, 64)
COMPUTE_SECONDS = 0.025
MEDIAN_SECONDS, SIGMA = 0.004, 0.5
BURST_EVERY_SECONDS, BURST_SECONDS, BURST_FACTOR = 2.0, 1.0, 8.0
PICTURES = 5000

TUNED = Range(1, 32), Range(2 * BATCH_SIZE, 32 * BATCH_SIZE)
WAYS: dict[str, tuple[Range, Range]] = {
    "none": (Range(1, 1), Range(0, 0)),
    **{
        f"fixed, {threads} threads": (
            Range(threads, threads),
            Range(4 * BATCH_SIZE, 4 * BATCH_SIZE),
        )
        for threads in (2, 4, 32)
    },
    "tuned": TUNED,
}

Slower = Callable[[float], float]
"""From seconds since the beginning to the factor by which reading takes longer."""


class SlowStorage(Partitioner):
    """Grey pictures behind a link that is slow and sometimes congested."""

    read_one_by_one = True

    def __init__(self, seed: int, slower: Slower) -> None:
        self.labels = torch.zeros(PICTURES, dtype=torch.int64)
        drawn = np.random.default_rng(seed).lognormal(np.log(MEDIAN_SECONDS), SIGMA, PICTURES)
        self._seconds: list[float] = drawn.tolist()
        self._slower = slower
        self._began = time.monotonic()

    def images(self, indices: Tensor) -> Tensor:
        """Waits as long as the pictures take one after another."""
        for index in indices.tolist():
            time.sleep(self._seconds[index] * self._slower(time.monotonic() - self._began))
        return torch.zeros(len(indices), *SHAPE)


def bursts(seed: int) -> Slower:
    """Bursts that come at random, some seconds apart."""
    drawn = random.Random(seed)
    starts = [0.0]
    while starts[-1] < 3600:
        starts.append(starts[-1] + BURST_SECONDS + drawn.expovariate(1 / BURST_EVERY_SECONDS))

    def slower(seconds: float) -> float:
        congested = any(start <= seconds < start + BURST_SECONDS for start in starts[1:])
        return BURST_FACTOR if congested else 1.0

    return slower


def drift(seconds: float) -> float:
    """Storage that slows down to a fifth of its speed, then recovers."""
    return 1 + 4 * max(0.0, 1 - abs(seconds - 4) / 2)


def stall(seconds: float) -> float:
    """Storage that stalls: reading that begins in one tenth of a second takes 100 times as long."""
    return 100.0 if 3 <= seconds < 3.1 else 1.0


class CountingFetcher(Fetcher):
    """A fetcher that remembers how many threads read."""

    def __init__(self, threads: Range, buffer: Range) -> None:
        super().__init__(threads, buffer)
        self.threads: list[int] = []

    def look(self) -> None:
        """Appends the number of threads that read now."""
        self.threads.append(self._tuner.threads if self.buffer else 0)


def train(
    threads: Range, buffer: Range, batches: int, slower: Slower
) -> tuple[list[tuple[float, float]], list[int]]:
    """Draws batches as training would.

    Returns:
        For every batch the seconds of waiting for it and the seconds since the batch before; and
        for every batch the number of threads that read.
    """
    source = SlowStorage(1, slower)
    waits = []
    with closing(CountingFetcher(threads, buffer)) as fetcher:
        shard = Shard(source, torch.arange(PICTURES), torch.Generator().manual_seed(0), fetcher)
        shard.next_batch(BATCH_SIZE)
        last = time.monotonic()
        for _ in range(batches):
            time.sleep(COMPUTE_SECONDS)
            began = time.monotonic()
            shard.next_batch(BATCH_SIZE)
            now = time.monotonic()
            waits.append((now - began, now - last))
            last = now
            fetcher.look()
    return waits, fetcher.threads


def record(file: Path) -> None:
    """Writes traces of four threads that read ahead while the storage behaves in several ways."""
    kinds = {"bursts": bursts(1), "drift": drift, "stall": stall}
    four, ahead = Range(4, 4), Range(2 * BATCH_SIZE, 2 * BATCH_SIZE)
    traces = {
        name: [[round(1e3 * s, 1) for s in pair] for pair in train(four, ahead, 200, slower)[0]]
        for name, slower in kinds.items()
    }
    file.write_text(json.dumps(traces) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.record)
        return
    waits_of: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    threads: dict[str, list[int]] = {way: [] for way in WAYS}
    for number in range(arguments.rounds):
        for way, ranges in WAYS.items():
            waits, used = train(*ranges, arguments.batches, bursts(number))
            waits_of[way] += waits
            threads[way] += used
    print("| reading ahead | pictures/s | p50 of waiting | p99 | mean threads | most |")
    print("|---|---|---|---|---|---|")
    for way, waits in waits_of.items():
        rate = BATCH_SIZE * len(waits) / sum(passed for _, passed in waits)
        middle, late = np.percentile([1e3 * waited for waited, _ in waits], [50, 99])
        waiting = f"{middle:.1f} ms | {late:.0f} ms"
        read_by = f"{mean(threads[way]):.1f} | {max(threads[way])}"
        print(f"| {way} | {rate:.0f} | {waiting} | {read_by} |")


if __name__ == "__main__":
    main()
