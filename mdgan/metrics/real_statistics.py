"""What a worker tells the server about its real samples: sums, which the server adds up.

No sample leaves its worker. Sums over very few samples still tell much about them: a sum over one
sample is that sample's features.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.metrics.classes import class_histogram, score_from_sums
from mdgan.metrics.distances import Moments, frechet_distance, why_no_distance
from mdgan.metrics.extractor import Extractor, Features


@dataclass
class RealStatistics:
    """Sums over real samples, in two halves; the distance between these is the floor of any FID.

    Attributes:
        halves: the moments of each half of the samples. A hash of its position in the shard decides
            a sample's half, so that the order of the data (by class, by writer) plays no part.
        class_histogram: int64 [K], number of samples predicted to be of each class.
        probability_sum: float64 [K], Σ_x p(y|x).
        negative_entropy_sum: float64 scalar, Σ_x Σ_y p(y|x) log p(y|x).
    """

    halves: tuple[Moments, Moments]
    class_histogram: Tensor
    probability_sum: Tensor
    negative_entropy_sum: Tensor

    @classmethod
    def empty(cls, extractor: Extractor) -> "RealStatistics":
        """The statistics of no sample."""
        d, num_classes = extractor.num_features, extractor.num_classes
        nothing = Moments.of(torch.zeros(0, d, dtype=torch.float64))
        return cls(
            halves=(nothing, nothing),
            class_histogram=torch.zeros(num_classes, dtype=torch.int64),
            probability_sum=torch.zeros(num_classes, dtype=torch.float64),
            negative_entropy_sum=torch.zeros((), dtype=torch.float64),
        )

    def add(self, features: Features, first_position: int) -> None:
        """Adds samples of a shard.

        Args:
            first_position: the position of the first of them; positions decide the halves.

        Raises:
            BadInput: they are of another extractor.
        """
        halves = halves_of(first_position, len(features))
        first, second = (Moments.of(features.values[halves == half]) for half in (0, 1))
        p = features.probabilities
        if p is None:
            p = torch.zeros(len(features), 0, dtype=torch.float64)
        histogram = class_histogram(p) if p.shape[1] else torch.zeros(0, dtype=torch.int64)
        total = self + RealStatistics((first, second), histogram, p.sum(0), torch.xlogy(p, p).sum())
        self.halves = total.halves
        self.class_histogram = total.class_histogram
        self.probability_sum = total.probability_sum
        self.negative_entropy_sum = total.negative_entropy_sum

    def __add__(self, other: "RealStatistics") -> "RealStatistics":
        if (self.num_features, self.num_classes) != (other.num_features, other.num_classes):
            raise BadInput(
                f"statistics of {other.num_features} features and {other.num_classes} classes "
                f"cannot be added to those of {self.num_features} and {self.num_classes}; give "
                "every rank the same extractor"
            )
        return RealStatistics(
            halves=(self.halves[0] + other.halves[0], self.halves[1] + other.halves[1]),
            class_histogram=self.class_histogram + other.class_histogram,
            probability_sum=self.probability_sum + other.probability_sum,
            negative_entropy_sum=self.negative_entropy_sum + other.negative_entropy_sum,
        )

    @property
    def whole(self) -> Moments:
        """The moments of all samples."""
        return self.halves[0] + self.halves[1]

    @property
    def num_samples(self) -> int:
        """How many samples, n, of both halves."""
        return self.halves[0].num_samples + self.halves[1].num_samples

    @property
    def num_features(self) -> int:
        """Length d of a feature vector."""
        return self.halves[0].num_features

    @property
    def num_classes(self) -> int:
        """How many classes, K; 0 if the extractor has none."""
        return len(self.class_histogram)

    def why_no_floor(self) -> str | None:
        """Says why the two halves cannot be compared; None if they can."""
        reasons = (why_no_distance(half, "in one half of the real samples") for half in self.halves)
        return next((reason for reason in reasons if reason), None)

    def floor(self) -> float:
        """The Fréchet distance between the halves; no generator can be expected to get below it."""
        return frechet_distance(*self.halves)

    def inception_score(self) -> float:
        """The exact Inception score of all real samples; there must be a sample, and classes."""
        return score_from_sums(
            self.num_samples, self.probability_sum, float(self.negative_entropy_sum)
        )

    def tensors(self) -> dict[str, Tensor]:
        """The statistics as float64 and int64 tensors, to be sent or stored."""
        tensors = {
            "class_histogram": self.class_histogram,
            "probability_sum": self.probability_sum,
            "negative_entropy_sum": self.negative_entropy_sum,
        }
        for name, half in zip(("first", "second"), self.halves, strict=True):
            tensors[f"{name}.num_samples"] = torch.tensor(half.num_samples)
            tensors[f"{name}.total"] = half.total
            tensors[f"{name}.outer"] = half.outer
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "RealStatistics":
        """The statistics from what `tensors` returned; the tensors are copied.

        Raises:
            BadInput: one is missing, of another type or shape, or does not fit the others.
        """
        try:
            num_classes, d = len(tensors["class_histogram"]), len(tensors["first.total"])
            _check(tensors, num_classes, d)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"damaged statistics of real samples ({error}); compute them again"
            ) from error
        own = {name: tensor.clone() for name, tensor in tensors.items()}
        first, second = (
            Moments(int(own[f"{h}.num_samples"]), own[f"{h}.total"], own[f"{h}.outer"])
            for h in ("first", "second")
        )
        return cls(
            halves=(first, second),
            class_histogram=own["class_histogram"],
            probability_sum=own["probability_sum"],
            negative_entropy_sum=own["negative_entropy_sum"],
        )


def _check(tensors: Mapping[str, Tensor], num_classes: int, d: int) -> None:
    expected: dict[str, tuple[torch.dtype, list[int]]] = {
        "class_histogram": (torch.int64, [num_classes]),
        "probability_sum": (torch.float64, [num_classes]),
        "negative_entropy_sum": (torch.float64, []),
    }
    for half in ("first", "second"):
        expected[f"{half}.num_samples"] = (torch.int64, [])
        expected[f"{half}.total"] = (torch.float64, [d])
        expected[f"{half}.outer"] = (torch.float64, [d, d])
    for name, (dtype, shape) in expected.items():
        tensor = tensors[name]
        if tensor.dtype != dtype or list(tensor.shape) != shape:
            raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {dtype} {shape}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not finite")
        if dtype == torch.int64 and (tensor < 0).any():
            raise ValueError(f"{name} is below 0")
        if dtype == torch.int64 and (tensor < 0).any():
            raise ValueError(f"{name} is negative")
    num_samples = int(tensors["first.num_samples"] + tensors["second.num_samples"])
    if num_classes and int(tensors["class_histogram"].sum()) != num_samples:
        raise ValueError(f"class_histogram does not add up to {num_samples} samples")


def halves_of(first_position: int, count: int) -> Tensor:
    """Which half samples at consecutive positions of a shard belong to, int64 [count] of 0 and 1.

    The lowest bit of SplitMix64 (Steele, Lea and Flood 2014): as good as a coin, and
    the same on every machine however the shard is cut into pieces.
    """
    z = np.arange(first_position + 1, first_position + count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy(((z ^ (z >> np.uint64(31))) & np.uint64(1)).astype(np.int64))
