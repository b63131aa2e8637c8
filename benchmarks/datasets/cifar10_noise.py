"""CIFAR-10's shapes and models on noise: speed does not depend on what the pictures show."""

from pathlib import Path

import torch
from torch import Tensor

from mdgan.data import InMemoryPartitioner
from mdgan.data.dataset_file import load

_CIFAR10 = load("cifar10", None)

SHAPE = _CIFAR10.shape
Z_DIM = _CIFAR10.models.z_dim
Generator = _CIFAR10.models.generator
Discriminator = _CIFAR10.models.discriminator


class Partitioner(InMemoryPartitioner):
    """5,000 samples of noise in ten classes."""

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (5000, *SHAPE), generator=random, dtype=torch.uint8)
        return pixels, torch.arange(5000) % 10
