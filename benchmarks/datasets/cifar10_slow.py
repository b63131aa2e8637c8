"""The noise of `cifar10_plain.py`, each picture read from storage that is slow.

A picture takes as long as is drawn for it: log-normally distributed, 4 ms in the median.
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
        """Waits for each picture in turn."""
        time.sleep(sum(_SECONDS[index] for index in indices.tolist()))
        return super().images(indices)

    def try_reading(self, _index: int) -> Seen:
        """Tries nothing before training, so says nothing of a sample."""
        return {}
