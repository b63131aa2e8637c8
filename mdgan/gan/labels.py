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
    """The bytes by which an account of privacy recognises one sample."""

    # Identifies the sample's unit, whatever its name or place: samples of equal content are one
    # unit, such as the rows of a person.
    content: bytes
    row: bytes = b""  # the sample itself, where units are persons; other runs may use it as a unit
    alias: bytes = b""  # the row without its person, so that rows of several persons may be equal
    before: bytes = b""  # the content as ledgers of version 2 have it; empty if it is the same
    source: bytes = b""  # the file of the sample, if the file may hold other samples later
    given: bytes = b""  # what the file says, if another map of the site would read it otherwise


@dataclass(frozen=True)
class Samples:
    """Some samples, real or generated, [.., C, H, W] in [−1, 1]."""

    images: Tensor
    labels: Tensor | None = None
    """y, int64 [..], the class of each; None where models do not know classes."""

    def __len__(self) -> int:
        return len(self.images)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Samples":
        """Applies a function to the images, and to the labels if there are any."""
        return Samples(change(self.images), None if self.labels is None else change(self.labels))

    def __getitem__(self, places: "int | slice | list[int]") -> "Samples":
        """The samples at some places of the first dimension."""
        return self.each(lambda part: part[places])

    def of(self, images: Tensor) -> "Samples":
        """Other images of the same classes."""
        return Samples(images, self.labels)

    def to(self, device: torch.device) -> "Samples":
        """The same samples on a device."""
        return self.each(lambda part: part.to(device))

    def and_then(self, others: "Samples") -> "Samples":
        """Appends other samples; both have labels, or neither has."""
        images = torch.cat([self.images, others.images])
        if self.labels is None or others.labels is None:
            return Samples(images)
        return Samples(images, torch.cat([self.labels, others.labels]))

    @classmethod
    def stacked(cls, batches: Sequence["Samples"]) -> "Samples":
        """Stacks batches of the same size, [R, b, C, H, W]; all have labels, or none has."""
        labels = [batch.labels for batch in batches if batch.labels is not None]
        images = torch.stack([batch.images for batch in batches])
        return cls(images, torch.stack(labels) if labels else None)

    def padded(self, size: int) -> "Samples":
        """Appends images of zeros of class 0, up to `size` samples."""
        missing = size - len(self)
        nothing = self.each(lambda part: part.new_zeros(missing, *part.shape[1:]))
        return self.and_then(nothing) if missing else self

    def flattened(self) -> "Samples":
        """Makes several batches, [n, b, C, H, W], one: [n b, C, H, W]."""
        return self.each(lambda part: part.flatten(0, 1))

    def detach(self) -> "Samples":
        """The same images without their graph."""
        return self.of(self.images.detach())

    def without_labels(self) -> "Samples":
        """The images alone."""
        return Samples(self.images)


def num_classes_of(model: nn.Module) -> int | None:
    """K of a conditional model; None if the model is not conditional."""
    return getattr(model, "num_classes", None)


def inputs(first: Tensor, labels: Tensor | None) -> tuple[Tensor, ...]:
    """The arguments of a model: z or x, and y if it is conditional."""
    return (first,) if labels is None else (first, labels)


def call(model: nn.Module, first: Tensor, labels: Tensor | None) -> Any:
    """Calls a model with z or x, and with y if it is conditional."""
    return model(*inputs(first, labels))


# Classes are drawn in proportion to counts, int64 [K]: of samples, or 1 for each class.


def label_counts(num_classes: int, counts_of_workers: Iterable[Sequence[int]]) -> Tensor:
    """Adds up how many samples of each class workers hold, int64 [K]; 1 each if there are none.

    Args:
        counts_of_workers: each worker's counts of class 0, 1, …; those from class K on are ignored.
    """
    total = torch.zeros(num_classes, dtype=torch.int64)
    for counts in counts_of_workers:
        of_classes = torch.tensor(counts[:num_classes], dtype=torch.int64)
        total[: len(of_classes)] += of_classes
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
    """Spreads classes as evenly as possible in proportion to counts, int64 [K], without drawing.

    The j-th sample of a class with share p comes at (j + ½)/p, as in the divisor method of Webster;
    equal counts give 0, 1, …, K − 1, 0, 1, …. The first labels are the same whatever n is.
    """
    shares = counts.double() / counts.sum()
    enough = (shares * (num_samples + len(counts) / 2)).ceil().long() + (counts > 0)
    classes = torch.arange(len(counts)).repeat_interleave(enough)
    earlier = torch.arange(len(classes)) - (enough.cumsum(0) - enough)[classes]
    return classes[((earlier + 0.5) / shares[classes]).argsort(stable=True)[:num_samples]]


def shares_of(counts: Tensor, variance: float) -> Tensor:
    """Estimates each class's share of all samples from noisy counts, float64 [K], at least 0.

    Shrinks the counts towards their mean, wholly if they differ no more than noise makes them
    (James and Stein 1961).

    Args:
        variance: of the noise in each count.
    """
    number, mean = len(counts), float(counts.mean())
    if mean <= 0:
        return torch.full((number,), 1 / number, dtype=torch.float64)
    spread = float((counts - mean).square().sum()) / max(1, number - 3)
    keeps = max(0.0, 1 - variance / spread) if spread > 0 else 0.0
    return (mean + keeps * (counts - mean)) / (mean * number)
