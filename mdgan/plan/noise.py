"""Real samples for measuring, where there need be no data."""

from pathlib import Path

import torch
from torch import Tensor

from mdgan.data.images import Shape
from mdgan.data.partitioner import InMemoryPartitioner

_LEAST_SAMPLES = 64
_NUM_CLASSES = 10


class Noise(InMemoryPartitioner):
    """A few batches of noise with labels, which are not read from a disk.

    Args:
        shape: of a sample, (C, H, W).
        batch_size: b.
    """

    def __init__(self, shape: Shape, batch_size: int) -> None:
        self._shape = (max(_LEAST_SAMPLES, 2 * batch_size), *shape)
        super().__init__(Path())

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        """Draws pixels, uint8 [n, C, H, W], and labels, int64 [n]; all classes are there."""
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, self._shape, generator=random, dtype=torch.uint8)
        return pixels, torch.randperm(len(pixels), generator=random) % _NUM_CLASSES
