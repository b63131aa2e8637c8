"""Small conditional models, and workers and learners that train them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.families.mdgan.algorithm import GeneratorLearner
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.gan.regularizers.contract import Regularizer
from tests.unit.gan import small

NUM_CLASSES = 3


class ConditionalGenerator(nn.Module):
    num_classes = NUM_CLASSES

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Embedding(NUM_CLASSES, small.Z_DIM)
        self.layers = small.make_generator()

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        images: Tensor = self.layers(z + self.classes(y))
        return images


class Projection(nn.Module):
    """D(x, y) → one logit."""

    num_classes = NUM_CLASSES

    def __init__(self) -> None:
        super().__init__()
        self.layers = small.make_model()[:-1]
        self.logit = nn.Linear(10, 1)
        self.classes = nn.Embedding(NUM_CLASSES, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        features = self.layers(x)
        logits: Tensor = self.logit(features) + (features * self.classes(y)).sum(1, keepdim=True)
        return logits


class Auxiliary(nn.Module):
    """D(x, y) → one logit, and those of the classes."""

    num_classes = NUM_CLASSES

    def __init__(self) -> None:
        super().__init__()
        self.layers = small.make_model()[:-1]
        self.logit = nn.Linear(10, 1)
        self.tell = nn.Linear(10, NUM_CLASSES)

    def forward(self, x: Tensor, _y: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layers(x)
        return self.logit(features), self.tell(features)


KINDS: dict[str, type[nn.Module]] = {"projection": Projection, "auxiliary": Auxiliary}


def make(kind: type[nn.Module], seed: int = 0) -> nn.Module:
    with RandomState(seed, small.CPU).in_place():
        return kind()


class LabelledData(small.RealData):
    """Images with classes."""

    def next_batch(self, batch_size: int) -> Samples:
        images = super().next_batch(batch_size).images
        return Samples(images, torch.randint(NUM_CLASSES, (batch_size,), generator=self._random))


def make_worker(
    kind: type[nn.Module], seed: int = 0, regularizers: Iterable[Regularizer] = (), **rules: Any
) -> Worker:
    return small.make_worker(
        seed, model=make(kind, seed), data=LabelledData(seed), regularizers=regularizers, **rules
    )


def make_learner(
    seed: int = 0, kind: type[GeneratorLearner] = GeneratorLearner
) -> GeneratorLearner:
    return small.make_learner(seed, model=make(ConditionalGenerator, seed), kind=kind)


def samples(seed: int, num: int = small.BATCH_SIZE) -> Samples:
    labels = torch.randint(NUM_CLASSES, (num,), generator=generator_for(seed, "labels"))
    return Samples(small.images(seed, num), labels)
