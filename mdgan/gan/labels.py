"""Samples with their classes, and how the classes of generated samples are drawn.

A model is conditional if it has the attribute `num_classes`, K. Then G is called with z and y, D
with x and y, where y are labels, int64 [b] in [0, K).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Known(NamedTuple):
    """By what an account of privacy knows one sample."""

    # What tells its unit from others, whatever a sample is called and wherever it is: samples of
    # equal content are one unit, such as the rows of a person.
    content: bytes
    row: bytes = b""  # where units are persons, the sample itself, by which other runs may know it
    alias: bytes = b""  # the same without what says whose it is, which other samples may equal
    before: bytes = b""  # how ledgers of version 2 knew it; empty if that was by its content
    source: bytes = b""  # the file that it lies in, if others may lie there later
    given: bytes = b""  # what its file says, if another map of the site would make another of it


@dataclass(frozen=True)
class Samples:
    """Some samples, real or generated, [.., C, H, W] in [−1, 1]."""

    images: Tensor
    labels: Tensor | None = None
    """y, int64 [..], the class of each; None where models do not know classes."""

    def __len__(self) -> int:
        return len(self.images)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Samples":
        """What a function makes of the images, and of the labels if there are any."""
        return Samples(change(self.images), None if self.labels is None else change(self.labels))

    def __getitem__(self, places: "int | slice | list[int]") -> "Samples":
        """Some of them, chosen by the first dimension of both."""
        return self.each(lambda part: part[places])

    def of(self, images: Tensor) -> "Samples":
        """Other images of the same classes."""
        return Samples(images, self.labels)

    def to(self, device: torch.device) -> "Samples":
        """The same on a device."""
        return self.each(lambda part: part.to(device))

    def and_then(self, others: "Samples") -> "Samples":
        """These and others in one batch; both have labels, or neither has."""
        images = torch.cat([self.images, others.images])
        if self.labels is None or others.labels is None:
            return Samples(images)
        return Samples(images, torch.cat([self.labels, others.labels]))

    @classmethod
    def stacked(cls, batches: Sequence["Samples"]) -> "Samples":
        """Batches of the same size in one tensor, [R, b, C, H, W]; all have labels, or none has."""
        labels = [batch.labels for batch in batches if batch.labels is not None]
        images = torch.stack([batch.images for batch in batches])
        return cls(images, torch.stack(labels) if labels else None)

    def padded(self, size: int) -> "Samples":
        """These, and behind them images of zeros of class 0, `size` in all."""
        missing = size - len(self)
        nothing = self.each(lambda part: part.new_zeros(missing, *part.shape[1:]))
        return self.and_then(nothing) if missing else self

    def flattened(self) -> "Samples":
        """The samples of several batches, [n, b, C, H, W], in one: [n b, C, H, W]."""
        return self.each(lambda part: part.flatten(0, 1))

    def detach(self) -> "Samples":
        """The same images without their graph."""
        return self.of(self.images.detach())

    def without_labels(self) -> "Samples":
        """The images alone."""
        return Samples(self.images)


def num_classes_of(model: nn.Module) -> int | None:
    """K of a conditional model; None for a model that is not."""
    return getattr(model, "num_classes", None)


def inputs(first: Tensor, labels: Tensor | None) -> tuple[Tensor, ...]:
    """What a model is called with: z or x, and y if it is conditional."""
    return (first,) if labels is None else (first, labels)


def call(model: nn.Module, first: Tensor, labels: Tensor | None) -> Any:
    """What a model makes of z or x, and of y if it is conditional."""
    return model(*inputs(first, labels))


# How often each class is drawn is given by counts, int64 [K]: of samples, or 1 for each class.


def label_counts(num_classes: int, held: Iterable[Sequence[int]]) -> Tensor:
    """How many samples of each class workers hold together, int64 [K]; 1 each if they say nothing.

    Args:
        held: what each says of class 0, 1, …; what it says of classes from K on does not count.
    """
    total = torch.zeros(num_classes, dtype=torch.int64)
    for counts in held:
        known = torch.tensor(counts[:num_classes], dtype=torch.int64)
        total[: len(known)] += known
    return total if total.any() else uniform_counts(num_classes)


def uniform_counts(num_classes: int) -> Tensor:
    """1 for each of K classes, int64 [K]."""
    return torch.ones(num_classes, dtype=torch.int64)


def draw_labels(counts: Tensor, num_samples: int, random: torch.Generator) -> Tensor:
    """Draws n classes in proportion to int64 counts [K], not all 0, the same everywhere: [n]."""
    ends = counts.cumsum(0)
    drawn = torch.randint(int(ends[-1]), (num_samples,), generator=random)
    return torch.searchsorted(ends, drawn, right=True)


def even_labels(counts: Tensor, num_samples: int) -> Tensor:
    """Classes in proportion to counts, int64 [K], as evenly as can be; nothing is drawn.

    The j-th sample of a class with share p comes at (j + ½)/p, as in the divisor method of Webster;
    with equal counts 0, 1, …, K − 1, 0, 1, …. The first labels are the same whatever n is.
    """
    shares = counts.double() / counts.sum()
    enough = (shares * (num_samples + len(counts) / 2)).ceil().long() + (counts > 0)
    classes = torch.arange(len(counts)).repeat_interleave(enough)
    earlier = torch.arange(len(classes)) - (enough.cumsum(0) - enough)[classes]
    return classes[((earlier + 0.5) / shares[classes]).argsort(stable=True)[:num_samples]]


def shares_of(counts: Tensor, variance: float) -> Tensor:
    """Each class's part of all samples, by counts with noise, float64 [K] of 0 or more.

    As far as counts differ no more than noise makes them, classes count as equally frequent (James
    and Stein 1961).

    Args:
        variance: of the noise in each count.
    """
    number, mean = len(counts), float(counts.mean())
    if mean <= 0:
        return torch.full((number,), 1 / number, dtype=torch.float64)
    spread = float((counts - mean).square().sum()) / max(1, number - 3)
    keeps = max(0.0, 1 - variance / spread) if spread > 0 else 0.0
    return (mean + keeps * (counts - mean)) / (mean * number)
