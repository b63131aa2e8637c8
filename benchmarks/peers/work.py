"""What Flower, pfl and the bare loop do alike: a client's local training, as users write it.

A client begins with the models of the round and with fresh optimizers, and trains as `mdgan train
--algorithm fl-gan --clients` does: two batches from one forward pass of G, a pass of D over a real
batch and one over a generated batch with a backward pass each, a step of D, G's gradient through D,
a step of G; the same fused Adam with the same learning rates. A client with fewer than b samples
trains on smaller batches. All that mdgan does beyond this (models that are not finite do not count,
losses of each client, sums that do not depend on their order) only mdgan does.

Every process has one thread: more would only be in the way of the others.
"""

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _digits() -> ModuleType:
    """`datasets/digits.py`, without the rest of mdgan."""
    path = Path(__file__).parents[2] / "datasets" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


digits = _digits()


class Work(NamedTuple):
    """The same for all.

    Attributes:
        clients: how many there are.
        cohort: how many of them train in a round.
        rounds: how many.
        iterations: of a client in a round.
        batch_size: b.
        file: with the images, and the samples of each client.
    """

    clients: int
    cohort: int
    rounds: int
    iterations: int
    batch_size: int
    file: str

    @staticmethod
    def read(text: str) -> "Work":
        """What `json.dumps` of the same wrote."""
        return Work(*json.loads(text))


class Shards:
    """The data of all clients, numbered from 0.

    Args:
        file: as written by `write`.
    """

    def __init__(self, file: str) -> None:
        with np.load(file) as arrays:
            self._images = torch.from_numpy(arrays["images"])
            self._parts = np.split(arrays["samples"], np.cumsum(arrays["sizes"])[:-1])

    @staticmethod
    def write(file: Path, images: Tensor, parts: list[Tensor]) -> None:
        """Writes images, float32 [n, C, H, W], and for each client int64 [m], which it owns."""
        samples, sizes = torch.cat(parts).numpy(), np.array([len(part) for part in parts])
        np.savez(file, images=images.numpy(), samples=samples, sizes=sizes)

    def __getitem__(self, client: int) -> Tensor:
        return self._images[torch.from_numpy(self._parts[client])]


class GAN(nn.Module):
    """Both models of the digits."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = digits.Generator()
        self.discriminator = digits.Discriminator()


def train(gan: GAN, images: Tensor, iterations: int, batch_size: int) -> None:
    """Local training of one client.

    Args:
        gan: what it begins with; changed in place.
        images: of the client, float32 [m, C, H, W].
        iterations: how many.
        batch_size: b.
    """
    generator, discriminator = gan.generator.train(), gan.discriminator.train()
    step_g, step_d = (
        torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.999), fused=True)
        for model, lr in (
            (generator, 5e-4),
            (discriminator, 1e-3),
        )
    )
    weights = list(generator.parameters())
    batch_size = min(batch_size, len(images))
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(iterations):
        generated = generator(torch.randn(2 * batch_size, digits.Z_DIM))
        judged, fake = generated[:batch_size], generated[batch_size:].detach()
        while len(order) < batch_size:
            order = torch.cat([order, torch.randperm(len(images))])
        real, order = images[order[:batch_size]], order[batch_size:]
        step_d.zero_grad()
        F.softplus(-discriminator(real)).mean().backward()  # type: ignore[no-untyped-call] # torch
        F.softplus(discriminator(fake)).mean().backward()  # type: ignore[no-untyped-call] # torch
        step_d.step()
        loss = F.softplus(-discriminator(judged)).mean()
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        step_g.step()


def clock(file: str) -> Callable[[], None]:
    """What to call after each round: it writes the time of day."""
    times = Path(file).open("w", buffering=1)  # noqa: SIM115 # open until the process ends

    def note() -> None:
        times.write(f"{time.time()}\n")

    return note
