"""Measures what a worker's record of each sample's spent privacy costs: seconds and disk bytes.

    python -m benchmarks.accounts [--samples 1000000] [--bytes 3072] [--workers 10]

Samples are random and lie in memory. It hashes their contents, then opens and spends from the
ledgers of three runs: of one worker, of many workers, and of one worker again.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import torch

from mdgan.data.arrays import Arrays
from mdgan.data.shard import Shard
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import Ledger, look_up
from mdgan.privacy.ledger_file import FILE
from mdgan.privacy.ledger_view import Plan

PLAN = Plan("as asked", "sample", "rdp", 1.0, 0.01, 1000, 1000, 8.0)


class Noise(Arrays):
    """Random bytes instead of pictures."""

    def __init__(self, count: int, size: int) -> None:
        self._pixels = torch.randint(0, 256, (count, 1, 1, size), dtype=torch.uint8)
        self.labels = torch.zeros(count, dtype=torch.int64)


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Prints the seconds that the block took."""
    begin = time.perf_counter()
    yield
    print(f"{step:30} {time.perf_counter() - begin:8.3f} s")


@click.command()
@click.option("--samples", default=1_000_000)
@click.option("--bytes", "size", default=3072)
@click.option("--workers", default=10)
def main(samples: int, size: int, workers: int) -> None:
    """Prints a line for each step."""
    torch.set_num_threads(1)  # as before a run's processes begin
    source = Noise(samples, size)
    with timed("contents of all samples"):
        whole = Contents.of(Shard(source, torch.arange(samples), torch.Generator()))
    parts = [Contents(whole.digests[first::workers]) for first in range(workers)]
    with tempfile.TemporaryDirectory() as name:
        for shards in ([whole], parts, [whole]):
            with timed(f"{len(shards)} worker(s) begin"):
                ledgers = [Ledger(Path(name), shard, lambda _: PLAN) for shard in shards]
            with timed("a block of each"):
                for ledger in ledgers:
                    ledger.key("noise")
            for ledger in ledgers:
                ledger.close()
            with timed("a look at the first"):
                look_up(Path(name), shards[0])
            print(f"{'the file':30} {(Path(name) / FILE).stat().st_size / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
