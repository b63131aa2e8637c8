"""Compares rows a second through a worker's discriminator with those of a bare loop.

    python -m benchmarks.tables.bare [--iterations 400] [--rounds 3] [--batch-size 256]

Both train the models of `--architecture table` on `breast-cancer` with one thread. G makes two
batches in one pass; D takes a step on real and generated rows with R1 = 1; G takes a step through
D. A user would write the bare loop by hand. Ours is `mdgan train` with a server and a worker in one
process. They take turns, and the fastest round of each counts.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import torch
import torch.nn.functional as F

from mdgan.data.dataset_file import load
from mdgan.data.settings import DataSettings
from mdgan.data.shard import Shard
from mdgan.gan.randomness import generator_for
from mdgan.models.registry import architecture


def bare(iterations: int, batch_size: int) -> float:
    """Iterations a second of the bare loop."""
    dataset = load("breast-cancer", None).prepared(DataSettings.read({}))
    source = dataset.open(Path())
    shard = Shard(source, torch.arange(len(source)), generator_for(0))
    dataset.kind.learn(shard.counts().double())
    entry = architecture("table")
    models = entry.make(dataset.shape, dataset.num_classes or 0, entry.width, dataset.kind)
    generator, discriminator = models.generator(), models.discriminator()
    steps = [
        torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.0, 0.99), fused=True)
        for model in (generator, discriminator)
    ]
    rows = shard.taken(torch.arange(len(shard)))
    assert rows.labels is not None
    begin = time.perf_counter()
    for _ in range(iterations):
        labels = torch.randint(2, (2 * batch_size,))
        made = generator(torch.randn(2 * batch_size, models.z_dim), labels)
        fake, of_fake = made[:batch_size].detach(), labels[:batch_size]
        chosen = torch.randint(len(rows), (batch_size,))
        real = rows.images[chosen].requires_grad_()
        discriminator.zero_grad()
        verdict = discriminator(real, rows.labels[chosen])
        (slope,) = torch.autograd.grad(verdict.sum(), real, create_graph=True)
        penalty = slope.square().sum() / batch_size / 2
        loss = F.softplus(-verdict).mean() + penalty
        loss = loss + F.softplus(discriminator(fake, of_fake)).mean()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        steps[1].step()
        generator.zero_grad()
        judged = discriminator(made[batch_size:], labels[batch_size:])
        F.softplus(-judged).mean().backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        steps[0].step()
    return iterations / (time.perf_counter() - begin)


def ours(iterations: int, batch_size: int) -> float:
    """Iterations a second of `mdgan train`, without its start."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "mdgan", "train", "--dataset", "breast-cancer"),
            *("--world-size", "2", "--transport", "memory", "--threads", "1"),
            *("--iterations", str(iterations), "--batch-size", str(batch_size)),
            *("--eval-interval", "0", "--out", f"{folder}/run"),
        ]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
    rate = re.search(r"\(([0-9.]+) it/s\)", ended.stdout + ended.stderr)
    assert rate is not None, ended.stderr
    return float(rate[1])


@click.command()
@click.option("--iterations", default=400, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--batch-size", default=256, show_default=True)
def main(iterations: int, rounds: int, batch_size: int) -> None:
    """Measures both in turn, and prints rows a second."""
    torch.set_num_threads(1)
    speeds = [(bare(iterations, batch_size), ours(iterations, batch_size)) for _ in range(rounds)]
    by_hand, run = (max(column) * batch_size for column in zip(*speeds, strict=True))
    print(f"bare loop {by_hand:,.0f} rows/s, mdgan {run:,.0f} rows/s: {run / by_hand:.2f}")


if __name__ == "__main__":
    main()
