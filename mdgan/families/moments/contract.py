"""What workers tell once, and what G learns from it: one interface for features and for pairs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.exact_sum import PartialSum
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.privacy.noise import with_noise

SUM = "SUM"  # host → server: the sums
Pieces = Iterable[tuple[Samples, Tensor]]
"""Samples, some at a time, and the weight of each, [b]."""


class Lesson(ABC):
    """What the server knows of all samples: G learns from it, step after step."""

    @abstractmethod
    def step(self, generator: Generator, batch_size: int) -> float:
        """One step of G; returns the loss before it."""

    def review(self, _shown: nn.Module) -> Mapping[str, Any]:
        """What the report says of a generator beside what was told: an event's fields, or none."""
        return {}


def descend(generator: Generator, loss: Tensor) -> float:
    """Steps to w' = opt(w; ∇_w J); returns J before it."""
    gradients = list(torch.autograd.grad(loss, generator.parameters))
    finite_or_zero(gradients, 1.0)
    generator.put_gradients(gradients)
    generator.step()
    return float(loss.detach())


class NoisySums(NamedTuple):
    """What all workers have told together."""

    sums: Tensor  # float64, of the statistic's shape
    num_samples: int
    variance: float  # of the noise in each number, in units of `Statistic.length`


class Statistic(ABC):
    """A sum over samples, which workers tell instead of them."""

    @property
    def identity(self) -> str:
        """What must be equal at the server and at all hosts, beside settings."""
        return ""

    @property
    def meaning(self) -> str:
        """What sums follow from beside the samples."""
        return f"{self.identity} {self.fields()}"

    @property
    def length(self) -> float:
        """By how much one sample changes the length of the sum at most."""
        return 1.0

    @property
    @abstractmethod
    def form(self) -> AnswerForm:
        """How a worker's sum travels."""

    @property
    def most_numbers(self) -> int:
        """How many numbers a worker tells at most."""
        return prod(self.form.shape)

    @abstractmethod
    def about(self) -> str:
        """What a worker tells, in words."""

    def to(self, _device: torch.device) -> Self:
        """The same on a device."""
        return self

    def fit_to(self, _noise: float) -> Self:
        """What the server asks for, given the deviation of the noise in all sums."""
        return self

    def fields(self) -> dict[str, Any]:
        """What hosts must be told of that, beside what follows from settings."""
        return {}

    def asked(self, _fields: Mapping[str, Any]) -> Self:
        """What a host is asked for by such fields; ValueError in words if they make no sense."""
        return self

    def put_into(self, generator: nn.Module) -> None:
        """Keeps with G's weights what its samples follow from."""
        del generator

    def kept_in(self, _generator: nn.Module) -> Self:
        """What `put_into` has kept."""
        return self

    def noisy(self, sums: Tensor, sigma: float, key: bytes) -> Tensor:
        """A worker's sums on a lattice, with noise; sigma in units of `length`, the key is its own.

        What is given is written to.
        """
        return with_noise(sums.flatten(), self.length, sigma, key).view_as(sums)

    def added_up(self, singles: Mapping[int, Tensor], sums: Sequence[PartialSum]) -> Tensor:
        """S, float64, from what workers have told alone and in sums of several."""
        arithmetic = self.form.arithmetic
        parts = [arithmetic.steps(singles[n]) / arithmetic.scale for n in sorted(singles)]
        parts += [part.total.double() for part in sums]
        return torch.stack(parts).sum(0).cpu()

    @abstractmethod
    def sums(self, pieces: Pieces) -> Tensor:
        """Σ over samples, each times its weight, float64 of the form's shape, on the CPU."""

    @abstractmethod
    def lengths(self, samples: Samples) -> Tensor:
        """How long what each sample adds is, float [b], before it is cut."""

    @abstractmethod
    def lesson(self, told: NoisySums, device: torch.device) -> Lesson:
        """What G learns from."""
