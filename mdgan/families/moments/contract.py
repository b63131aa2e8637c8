"""The interface of both statistics, features and pairs: workers send sums, G learns from these."""

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
"""A worker's samples, b at a time, and the weight of each sample, [b]."""


class Lesson(ABC):
    """What the server has learnt of all samples, in the form in which steps of G use it."""

    @abstractmethod
    def step(self, generator: Generator, batch_size: int) -> float:
        """Takes one step of G; returns the loss before it."""

    def review(self, _shown: nn.Module) -> Mapping[str, Any]:
        """Compares a generator with the sums, for the report: an event's fields, or none."""
        return {}


def descend(generator: Generator, loss: Tensor) -> float:
    """Steps to w' = opt(w; ∇_w J); returns J before it."""
    gradients = list(torch.autograd.grad(loss, generator.parameters))
    finite_or_zero(gradients, 1.0)
    generator.put_gradients(gradients)
    generator.step()
    return float(loss.detach())


class NoisySums(NamedTuple):
    """The sum over all workers that answered, with noise."""

    sums: Tensor  # float64, of the statistic's shape
    num_samples: int
    variance: float  # of the noise in each number, in units of `Statistic.length`²


class Statistic(ABC):
    """A sum over samples, which workers send instead of samples."""

    @property
    def identity(self) -> str:
        """A text that must be equal at the server and at all hosts; settings are checked apart."""
        return ""

    @property
    def meaning(self) -> str:
        """A text of all that the sums follow from besides the samples."""
        return f"{self.identity} {self.fields()}"

    @property
    def length(self) -> float:
        """The sensitivity: the largest length of what one sample adds to the sum."""
        return 1.0

    @property
    @abstractmethod
    def form(self) -> AnswerForm:
        """The form in which a host sends a worker's sum."""

    @property
    def most_numbers(self) -> int:
        """The most numbers that a worker's sum has."""
        return prod(self.form.shape)

    @abstractmethod
    def about(self) -> str:
        """The worker's sum in words: how many numbers, of what."""

    def to(self, _device: torch.device) -> Self:
        """The same statistic on a device."""
        return self

    def fit_to(self, _noise: float) -> Self:
        """The statistic that the server asks for, given the deviation of the noise in S."""
        return self

    def fields(self) -> dict[str, Any]:
        """The fields of the question by which hosts learn the outcome of `fit_to`."""
        return {}

    def asked(self, _fields: Mapping[str, Any]) -> Self:
        """The statistic that such fields ask a host for; ValueError, in words, if they are bad."""
        return self

    def put_into(self, generator: nn.Module) -> None:
        """Saves what G needs of the statistic in G's buffers, beside its weights."""
        del generator

    def kept_in(self, _generator: nn.Module) -> Self:
        """The statistic that `put_into` saved in G."""
        return self

    def noisy(self, sums: Tensor, sigma: float, key: bytes) -> Tensor:
        """A worker's sums on a lattice, with noise of σ · `length` by its key; changes `sums`."""
        return with_noise(sums.flatten(), self.length, sigma, key).view_as(sums)

    def added_up(self, singles: Mapping[int, Tensor], sums: Sequence[PartialSum]) -> Tensor:
        """S, float64, of the sums of single workers, and of those that hosts have added up."""
        arithmetic = self.form.arithmetic
        parts = [arithmetic.steps(singles[n]) / arithmetic.scale for n in sorted(singles)]
        parts += [part.total.double() for part in sums]
        return torch.stack(parts).sum(0).cpu()

    @abstractmethod
    def sums(self, pieces: Pieces) -> Tensor:
        """A worker's sum, each sample times its weight: float64 of the form's shape, on the CPU."""

    @abstractmethod
    def lengths(self, samples: Samples) -> Tensor:
        """The length of what each sample adds, float [b], before it is cut."""

    @abstractmethod
    def lesson(self, noisy: NoisySums, device: torch.device) -> Lesson:
        """The lesson that G learns from these sums."""
