"""The local training of a client, the same in Flower, pfl and the bare loop.

A client begins with the round's models and with fresh optimizers, and trains as `mdgan train
--algorithm fl-gan --clients` does. G makes two batches in one forward pass. D takes a forward and a
backward pass over a real and a generated batch, then its step. G takes its gradient through D, then
its step. Both have the same fused Adam with the same learning rates. A client with fewer than b
samples trains on smaller batches. Only mdgan does more: it drops models that are not finite,
records the losses of each client, and its sums do not depend on their order.

Every process has one thread: more would only slow the others.
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
    """Imports `datasets/digits.py` without the rest of mdgan."""
    path = Path(__file__).parents[2] / "datasets" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


digits = _digits()


class Work(NamedTuple):
    """The work that all programs do.

    Attributes:
        clients: number of clients.
        cohort: number of clients that train in a round.
        rounds: number of rounds.
        iterations: of a client in a round.
        batch_size: b.
        file: path of the images and of each client's samples.
    """

    clients: int
    cohort: int
    rounds: int
    iterations: int
    batch_size: int
    file: str

    @staticmethod
    def read(text: str) -> "Work":
        """Reads the work that `json.dumps` has written."""
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
        """Writes images, float32 [n, C, H, W], and the indices of each client's, int64 [m]."""
        samples, sizes = torch.cat(parts).numpy(), np.array([len(part) for part in parts])
        np.savez(file, images=images.numpy(), samples=samples, sizes=sizes)

    def __getitem__(self, client: int) -> Tensor:
        return self._images[torch.from_numpy(self._parts[client])]


class GAN(nn.Module):
    """The generator and the discriminator of the digits."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = digits.Generator()
        self.discriminator = digits.Discriminator()


def train(gan: GAN, images: Tensor, iterations: int, batch_size: int) -> None:
    """Trains one client.

    Args:
        gan: the round's models; changed in place.
        images: of the client, float32 [m, C, H, W].
        iterations: number of iterations.
        batch_size: b.
    """
    generator, discriminator = gan.generator.train(), gan.discriminator.train()
    step_g, step_d = (
        torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.999), fused=True)
        for model, lr in ((generator, 5e-4), (discriminator, 1e-3))
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
    """Opens a file; returns a function that writes the time of day into it after each round."""
    times = Path(file).open("w", buffering=1)  # noqa: SIM115 # open until the process ends

    def note() -> None:
        times.write(f"{time.time()}\n")

    return note
