"""Small data and extractors whose features are known, for the tests of this folder."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mdgan.data import InMemoryPartitioner
from mdgan.errors import BadInput
from mdgan.metrics.extractor import Extractor, Features

SHAPE = (1, 4, 4)


class Stripes(InMemoryPartitioner):
    """Noisy stripes: upright ones are class 0, level ones 1, a plain grey 2."""

    num_samples = 90
    num_classes = 3
    seed = 0

    def __init__(self) -> None:
        super().__init__(Path())

    def read(self, _data_dir: Path) -> tuple[Tensor, Tensor]:
        upright = torch.tensor([-1.0, 1.0, -1.0, 1.0]).repeat(4, 1)
        kinds = torch.stack([upright, upright.T, torch.zeros(4, 4)])
        labels = torch.arange(self.num_samples) % self.num_classes
        noise = torch.randn(
            self.num_samples, 4, 4, generator=torch.Generator().manual_seed(self.seed)
        )
        return (0.6 * kinds[labels] + 0.1 * noise).clamp(-1, 1).unsqueeze(1), labels


class MoreStripes(Stripes):
    num_samples = 30
    seed = 1


class OneClass(Stripes):
    num_classes = 1


class Network(nn.Module):
    """Any function of images as a network."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> object:
        return self.function(images)


def extractor_of(
    function: Callable[[Tensor], object] = lambda images: images.flatten(1),
    num_features: int = 16,
    num_classes: int = 0,
    num_at_once: int = 7,
) -> Extractor:
    """An extractor that is a function; by default pixels are features."""
    return Extractor(
        kind="file",
        name="pixels",
        sha256="0" * 64,
        shape=SHAPE,
        num_features=num_features,
        num_classes=num_classes,
        accuracy=None,
        network=Network(function).eval(),
        num_at_once=num_at_once,
    )


def refusal_of(call: Callable[[], object]) -> str:
    """What the user reads, which must be one line."""
    with pytest.raises(BadInput) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def normal(num_samples: int, num_features: int = 6, seed: int = 0, shift: float = 0.0) -> Tensor:
    """Correlated normal features, float64 [n, d]."""
    random = torch.Generator().manual_seed(seed)
    mixing = torch.randn(
        num_features, num_features, generator=torch.Generator().manual_seed(99), dtype=torch.float64
    )
    drawn = torch.randn(num_samples, num_features, generator=random, dtype=torch.float64)
    return drawn @ mixing + shift


def with_classes(values: Tensor, num_classes: int = 4) -> Features:
    """Features whose first K values are the logits."""
    return Features(values, (3 * values[:, :num_classes]).softmax(1))


def some(features: Features, indices: Tensor) -> Features:
    """The features of some of the samples."""
    chosen = None if features.probabilities is None else features.probabilities[indices]
    return Features(features.values[indices], chosen)
