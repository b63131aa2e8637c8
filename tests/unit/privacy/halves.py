"""Learners on a few samples, whose real halves are drawn by Poisson sampling."""

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor, nn

from mdgan.data import Partitioner
from mdgan.data.shard import Shard
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import make_discriminator_learner
from mdgan.gan.settings import TrainingSettings
from mdgan.privacy.canaries import Canaries
from mdgan.privacy.real_half import PoissonHalf, SeededSteps, Steps
from tests.unit.gan.small import SHAPE

CPU = torch.device("cpu")


class Few(Partitioner):
    """Samples in memory."""

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.labels = torch.zeros(len(images), dtype=torch.int64)

    def images(self, indices: Tensor) -> Tensor:
        return self._images[indices]


def make_shard(count: int, seed: int = 0) -> Shard:
    images = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return Shard(Few(images), torch.arange(count), torch.Generator())


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 10), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(10, 1)
    )


def make_worker(
    shard: Shard,
    *,
    batch_size: int = 5,
    clip: float = inf,
    noise: float = 0.0,
    steps: Steps | None = None,
    canaries: Canaries | None = None,
    model: Callable[[], nn.Module] = make_model,
) -> Worker:
    half = PoissonHalf(
        shard,
        steps or SeededSteps(b"known"),
        batch_size,
        clip=clip,
        noise=noise,
        tells_loss=True,
        canaries=canaries,
    )
    settings = TrainingSettings(batch_size=batch_size)
    return make_discriminator_learner(Worker, 1, model, settings, half, CPU, real_half=half)


def real_gradient(worker: Worker) -> Tensor:
    """The real half of the next gradient, as one vector; all zeros if there is none."""
    worker.learn_real_half()
    return torch.cat(
        [
            torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten().clone()
            for p in worker.discriminator.parameters
        ]
    )
