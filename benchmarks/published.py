"""Measures one run of MD-GAN as it was published, to compare mdgan with.

    python -m benchmarks.published --workers 4 [--iterations 30] [--threads 1]

It follows the papers (Hardy et al. 2019, Algorithm 1; Darmanger and Gombas 2024, chapter 5). The
server and every worker are spawned processes in one process group of gloo. The server sends each
worker two batches by isend, and gets its feedback by irecv. The generator takes one backward pass
for every feedback. For its feedback a discriminator takes a full backward pass, which computes the
gradients of its weights, too. There are no swaps: they are rare, and cost the same everywhere.

Prints a line of JSON: seconds from the start to the end of the first iteration, seconds an
iteration (median of the second half), and the memory of all processes together.
"""

import json
import multiprocessing
import socket
import statistics
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import click
import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.training import HERE, memory
from mdgan.data.dataset_file import DatasetFile, load

BATCH_SIZE = 10
LR = 2e-4
BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class Published:
    """The settings of the run.

    Attributes:
        dataset: a dataset file's name.
        num_workers: N.
        iterations: I.
        threads: of each process; 0 leaves the number to torch.
        port: of the process group's store.
    """

    dataset: str
    num_workers: int
    iterations: int
    threads: int
    port: int

    @property
    def kappa(self) -> int:
        """The number of batches: Darmanger and Gombas, section 5.2."""
        return max(2, self.num_workers.bit_length() - 1)

    def enter(self, rank: int) -> DatasetFile:
        """Joins the process group; returns the dataset file."""
        if self.threads:
            torch.set_num_threads(self.threads)
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{self.port}",
            rank=rank,
            world_size=self.num_workers + 1,
        )
        torch.manual_seed(rank)
        return load(self.dataset, str(HERE / "datasets"))


def serve(run: Published, launched: float, parent: Connection) -> None:
    """Trains the generator as rank 0; sends its parent the times at which iterations ended."""
    dataset = run.enter(0)
    generator = dataset.models.generator()
    optimizer = torch.optim.Adam(generator.parameters(), lr=LR, betas=BETAS)
    workers, parameters = range(1, run.num_workers + 1), list(generator.parameters())
    done = []
    for _ in range(run.iterations):
        batches = [
            generator(torch.randn(BATCH_SIZE, dataset.models.z_dim)) for _ in range(run.kappa)
        ]
        judged = {n: batches[(n - 1) % run.kappa] for n in workers}
        sending = []
        for n in workers:
            pair = torch.stack([judged[n], batches[n % run.kappa]]).detach()
            sending.append(dist.isend(pair, n))
        feedbacks = {n: torch.empty(BATCH_SIZE, *dataset.shape) for n in workers}
        receiving = [dist.irecv(feedbacks[n], n) for n in workers]
        for request in [*sending, *receiving]:
            assert request is not None
            request.wait()
        optimizer.zero_grad()
        for n in workers:
            gradients = torch.autograd.grad(
                judged[n], parameters, grad_outputs=feedbacks[n], retain_graph=True
            )
            for parameter, gradient in zip(parameters, gradients, strict=True):
                share = gradient / run.num_workers
                parameter.grad = share if parameter.grad is None else parameter.grad + share
        optimizer.step()
        done.append(time.monotonic() - launched)
    parent.send_bytes(json.dumps(done).encode())
    parent.recv_bytes()  # the parent has measured the memory
    dist.barrier()


def work(run: Published, rank: int) -> None:
    """Trains a discriminator as a worker."""
    dataset = run.enter(rank)
    source = dataset.open(Path())
    shard = torch.arange(rank - 1, len(source), run.num_workers)
    model = dataset.models.discriminator()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS)
    for _ in range(run.iterations):
        pair = torch.empty(2, BATCH_SIZE, *dataset.shape)
        dist.recv(pair, 0)
        drawn = shard[torch.randperm(len(shard))[:BATCH_SIZE]]
        optimizer.zero_grad()
        loss = _judged(model, source.images(drawn), 1.0) + _judged(model, pair[1], 0.0)
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        optimizer.step()
        judged = pair[0].requires_grad_()
        _judged(model, judged, 1.0).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        assert judged.grad is not None
        dist.send(judged.grad, 0)
    dist.barrier()


def _judged(model: nn.Module, images: Tensor, as_real: float) -> Tensor:
    logits: Tensor = model(images)
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, as_real))


@dataclass(frozen=True)
class Measured:
    """The figures of one run."""

    first_iteration_seconds: float
    iteration_seconds: float
    pss_bytes: int


def measure(dataset: str, num_workers: int, iterations: int, threads: int) -> Measured:
    """Runs the published algorithm once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    run = Published(dataset, num_workers, iterations, threads, port)
    spawning, launched = multiprocessing.get_context("spawn"), time.monotonic()
    own_end, server_end = spawning.Pipe()
    family = [spawning.Process(target=serve, args=(run, launched, server_end))]
    family += [spawning.Process(target=work, args=(run, n)) for n in range(1, num_workers + 1)]
    for process in family:
        process.start()
    done: list[float] = json.loads(own_end.recv_bytes())
    pss_bytes, _ = memory(psutil.Process().pid)
    own_end.send_bytes(b"go on")
    for process in family:
        process.join()
        assert process.exitcode == 0, process
    half = done[len(done) // 2 - 1 :]
    return Measured(
        done[0],
        statistics.median(after - before for before, after in pairwise(half)),
        pss_bytes - psutil.Process().memory_full_info().pss,
    )


@click.command()
@click.option("--dataset", default="cifar10_noise", show_default=True)
@click.option("--workers", default=4, show_default=True)
@click.option("--iterations", default=30, show_default=True)
@click.option(
    "--threads",
    default=1,
    show_default=True,
    help="Threads of each process; 0 leaves the number to torch.",
)
def main(dataset: str, workers: int, iterations: int, threads: int) -> None:
    """Runs MD-GAN as published, once."""
    print(json.dumps(asdict(measure(dataset, workers, iterations, threads))))


if __name__ == "__main__":
    main()
