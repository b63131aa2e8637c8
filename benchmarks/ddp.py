"""Synchronous data-parallel GAN training as torch has it: DistributedDataParallel over gloo.

Every process has one thread, and both networks in DDP. In an iteration the discriminator takes a
step on a real and a generated batch, then the generator takes one through the discriminator on the
same generated batch. torch's example of a DCGAN does the same, as do ParaGAN's synchronous updates
with `--kappa 1`. `benchmarks/data_parallel.py` measures it beside mdgan. As a program it prints the
seconds of an iteration: `python -m benchmarks.ddp '{"dataset": …, "batch_sizes": …}'`.
"""

import json
import multiprocessing
import socket
import statistics
import sys
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
    """The settings of one run.

    Attributes:
        dataset: a dataset file's name.
        batch_sizes: b of each process.
        iterations: of the run.
        apart: whether processes exchange nothing, which no program that exchanges gradients beats.
        device: cpu, or cuda for all processes.
        bf16: whether layers compute in bfloat16 (autocast).
        channels_last: whether models and pictures lie in memory pixel by pixel.
        compiled: whether torch.compile compiles the models.
    """

    dataset: str
    batch_sizes: Sequence[int]
    iterations: int
    apart: bool = False
    device: str = "cpu"
    bf16: bool = False
    channels_last: bool = False
    compiled: bool = False


def train(run: Run, rank: int, port: int, parent: Connection) -> None:
    """Trains in one process; rank 0 sends its parent the times at which iterations ended."""
    torch.set_num_threads(1)
    world, b = len(run.batch_sizes), run.batch_sizes[rank]
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    torch.manual_seed(0)
    dataset = load(run.dataset, str(HERE / "datasets"))
    layout = torch.channels_last if run.channels_last else torch.contiguous_format
    made = [
        model.to(run.device).to(memory_format=layout)
        for model in (dataset.models.generator(), dataset.models.discriminator())
    ]
    generator, discriminator = (
        model if run.apart else DistributedDataParallel(model) for model in made
    )
    if run.compiled:
        generator.compile()
        discriminator.compile()
    steps = [torch.optim.Adam(m.parameters(), lr=LR, betas=BETAS, fused=True) for m in made]
    torch.manual_seed(rank)
    source = dataset.open(Path())
    shard = torch.arange(rank, len(source), world)
    done = []
    precision = torch.autocast(run.device, torch.bfloat16, enabled=run.bf16)
    for _ in range(run.iterations):
        real = source.images(shard[torch.randperm(len(shard))[:b]])
        real = real.to(run.device, memory_format=layout)
        noise = torch.randn(b, dataset.models.z_dim, device=run.device)
        with precision:
            fake = generator(noise)
            loss = _judged(discriminator, real, 1.0) + _judged(discriminator, fake.detach(), 0.0)
        steps[1].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        steps[1].step()
        steps[0].zero_grad()
        made[1].requires_grad_(False)
        with precision:
            loss = _judged(made[1], fake, 1.0)
        loss.backward()  # type: ignore[no-untyped-call] # as above
        made[1].requires_grad_(True)
        steps[0].step()
        if run.device == "cuda":
            torch.cuda.synchronize()
        done.append(time.monotonic())
    if rank == 0:
        parent.send_bytes(json.dumps(done).encode())
    dist.barrier()


def _judged(model: nn.Module, images: Tensor, as_real: float) -> Tensor:
    logits: Tensor = model(images)
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, as_real))


def measure(run: Run) -> float:
    """Runs once; returns seconds an iteration, the median of the run's second half."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe()
    family = [
        spawning.Process(target=train, args=(run, rank, port, sender))
        for rank in range(len(run.batch_sizes))
    ]
    for process in family:
        process.start()
    sender.close()  # else this process would wait forever for one that failed
    done: list[float] = json.loads(receiver.recv_bytes())
    for process in family:
        process.join()
        assert process.exitcode == 0, process
    half = done[len(done) // 2 - 1 :]
    return statistics.median(after - before for before, after in pairwise(half))


if __name__ == "__main__":
    print(measure(Run(**json.loads(sys.argv[1]))))
