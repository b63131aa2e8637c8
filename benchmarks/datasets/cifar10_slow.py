"""The noise of `cifar10_plain.py`, as if each picture came from slow storage.

Each picture has its own reading time, drawn once: log-normally distributed, 4 ms in the median.
"""

import time

import numpy as np
from torch import Tensor

from benchmarks.datasets.cifar10_plain import SHAPE, Z_DIM, Discriminator, Generator
from benchmarks.datasets.cifar10_plain import Partitioner as Noise
from mdgan.samples.pictures.reading import Seen

__all__ = ["SHAPE", "Z_DIM", "Discriminator", "Generator", "Partitioner"]

_SECONDS = np.random.default_rng(0).lognormal(np.log(0.004), 0.5, 5000).tolist()


class Partitioner(Noise):
    """5,000 samples of noise in ten classes."""

    read_one_by_one = True

    def images(self, indices: Tensor) -> Tensor:
        """Waits as long as the pictures take one after another."""
        time.sleep(sum(_SECONDS[index] for index in indices.tolist()))
        return super().images(indices)

    def try_reading(self, _index: int) -> Seen:
        """Reads no sample before training, so that the start is not slow."""
        return {}
