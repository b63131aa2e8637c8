"""torchmetrics' metrics given features instead of images, quietly and repeatably."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from mdgan.gan.randomness import RandomState
from mdgan.metrics.extractor import CPU


class Precomputed(nn.Module):
    """Stands where a metric wants a network, and passes on the features that it is given.

    Attributes:
        num_features: d, which FrechetInceptionDistance asks for.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        """Features [n, d], as they are."""
        return features


@contextmanager
def quietly(seed: int) -> Iterator[None]:
    """For the block, torchmetrics draws from a seed of its own and its UserWarnings are not shown.

    It warns of the memory that it will use and of the spread over a single split.
    """
    with RandomState(seed, CPU).in_place(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
