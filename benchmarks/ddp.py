"""Synchronous data-parallel GAN training as torch has it: DistributedDataParallel over gloo.

Every process has both networks in DDP and one thread. In an iteration it takes a step of the
discriminator on a real and a generated batch, then one of the generator through it and the same
generated batch, as torch's own example of a DCGAN does, and as ParaGAN's synchronous updates do
with `--kappa 1`. `benchmarks/data_parallel.py` measures it beside mdgan.
"""

import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.training import HERE
from mdgan.data.dataset_file import load

LR = 2e-4
BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class Run:
    """What to run.

    Attributes:
        dataset: a dataset file's name.
        batch_sizes: b of each process.
        iterations: how many.
        apart: whether processes train without each other, which nothing that meets can beat.
    """

    dataset: str
    batch_sizes: Sequence[int]
    iterations: int
    apart: bool = False


def train(run: Run, rank: int, port: int, told: Connection) -> None:
    """One process; that of rank 0 tells when each iteration ended."""
    torch.set_num_threads(1)
    world, b = len(run.batch_sizes), run.batch_sizes[rank]
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    torch.manual_seed(0)
    dataset = load(run.dataset, str(HERE / "datasets"))
    made = dataset.models.generator(), dataset.models.discriminator()
    generator, discriminator = (
        model if run.apart else DistributedDataParallel(model) for model in made
    )
    steps = [torch.optim.Adam(m.parameters(), lr=LR, betas=BETAS, fused=True) for m in made]
    torch.manual_seed(rank)
    source = dataset.open(Path())
    shard = torch.arange(rank, len(source), world)
    done = []
    for _ in range(run.iterations):
        real = source.images(shard[torch.randperm(len(shard))[:b]])
        fake = generator(torch.randn(b, dataset.models.z_dim))
        steps[1].zero_grad()
        loss = _judged(discriminator, real, 1.0) + _judged(discriminator, fake.detach(), 0.0)
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        steps[1].step()
        steps[0].zero_grad()
        made[1].requires_grad_(False)
        _judged(made[1], fake, 1.0).backward()  # type: ignore[no-untyped-call] # as above
        made[1].requires_grad_(True)
        steps[0].step()
        done.append(time.monotonic())
    if rank == 0:
        told.send_bytes(json.dumps(done).encode())
    dist.barrier()


def _judged(model: nn.Module, images: Tensor, as_real: float) -> Tensor:
    logits: Tensor = model(images)
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, as_real))


def measure(run: Run) -> float:
    """Seconds an iteration: the median of the second half of a run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    family = [
        spawning.Process(target=train, args=(run, rank, port, there))
        for rank in range(len(run.batch_sizes))
    ]
    for process in family:
        process.start()
    done: list[float] = json.loads(here.recv_bytes())
    for process in family:
        process.join()
        assert process.exitcode == 0, process
    half = done[len(done) // 2 - 1 :]
    return statistics.median(after - before for before, after in pairwise(half))
