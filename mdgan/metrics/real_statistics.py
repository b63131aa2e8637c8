"""Statistics of real samples that workers send to the server: sums, never a sample."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.metrics.distances import Moments, class_histogram, score_from_sums
from mdgan.metrics.extractor import Extractor, Features
from mdgan.samples.contract import HeldOut, SampleKind
from mdgan.spelling import flag

_PIECE = 32


class RealStatistics:
    """Sums over real samples.

    Args:
        sums: `class_histogram`, int64 [K], number of samples predicted to be of each class;
            `probability_sum`, float64 [K], Σ_x p(y|x); `negative_entropy_sum`, float64 [],
            Σ_x Σ_y p(y|x) log p(y|x); and `num_samples`, `total` and `outer` of `Moments`.
    """

    def __init__(self, sums: Mapping[str, Tensor]) -> None:
        self._sums = dict(sums)

    @classmethod
    def empty(cls, extractor: Extractor) -> "RealStatistics":
        """The statistics of no sample."""
        kinds = _expected(extractor.num_classes, extractor.num_features)
        return cls({name: torch.zeros(shape, dtype=kind) for name, (kind, shape) in kinds.items()})

    def add(self, features: Features) -> None:
        """Adds samples of a shard."""
        p = features.probabilities
        if p is None:
            p = torch.zeros(len(features), 0, dtype=torch.float64)
        moments = Moments.of(features.values)
        sums = {
            "class_histogram": class_histogram(p) if p.shape[1] else torch.zeros(0).long(),
            "probability_sum": p.sum(0),
            "negative_entropy_sum": torch.xlogy(p, p).sum(),
            "num_samples": torch.tensor(moments.num_samples),
            "total": moments.total,
            "outer": moments.outer,
        }
        self._sums = (self + RealStatistics(sums))._sums

    def __add__(self, other: "RealStatistics") -> "RealStatistics":
        if (self.num_features, self.num_classes) != (other.num_features, other.num_classes):
            raise BadInput(
                f"statistics of {other.num_features} features and {other.num_classes} classes "
                f"cannot be added to those of {self.num_features} and {self.num_classes}",
                way_out="give every rank the same extractor",
            )
        return RealStatistics({name: each + other._sums[name] for name, each in self._sums.items()})

    @property
    def class_histogram(self) -> Tensor:
        """int64 [K], number of samples predicted to be of each class."""
        return self._sums["class_histogram"]

    @property
    def moments(self) -> Moments:
        """The moments of all samples."""
        return Moments(self.num_samples, self._sums["total"], self._sums["outer"])

    @property
    def num_samples(self) -> int:
        """How many samples, n."""
        return int(self._sums["num_samples"])

    @property
    def num_features(self) -> int:
        """Length d of a feature vector."""
        return len(self._sums["total"])

    @property
    def num_classes(self) -> int:
        """How many classes, K; 0 if the extractor has none."""
        return len(self.class_histogram)

    def inception_score(self) -> float:
        """The exact Inception score of all real samples; there must be a sample, and classes."""
        entropies = float(self._sums["negative_entropy_sum"])
        return score_from_sums(self.num_samples, self._sums["probability_sum"], entropies)

    def tensors(self) -> dict[str, Tensor]:
        """The statistics as float64 and int64 tensors, to be sent or stored."""
        return dict(self._sums)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "RealStatistics":
        """The statistics from what `tensors` returned; the tensors are copied."""
        try:
            kinds = _expected(len(tensors["class_histogram"]), len(tensors["total"]))
            for name, (dtype, shape) in kinds.items():
                tensor = tensors[name]
                if tensor.dtype != dtype or list(tensor.shape) != shape:
                    what = f"{tensor.dtype} {list(tensor.shape)}, not {dtype} {shape}"
                    raise ValueError(f"{name} is {what}")
                if not tensor.isfinite().all():
                    raise ValueError(f"{name} is not finite")
                if dtype == torch.int64 and (tensor < 0).any():
                    raise ValueError(f"{name} is below 0")
            statistics = cls({name: tensors[name].clone() for name in kinds})
            num_samples = statistics.num_samples
            if statistics.num_classes and int(statistics.class_histogram.sum()) != num_samples:
                raise ValueError(f"class_histogram is not of {num_samples} samples")
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"damaged statistics of real samples ({error})", way_out="compute them again"
            ) from error
        return statistics


def _expected(num_classes: int, d: int) -> dict[str, tuple[torch.dtype, list[int]]]:
    return {
        "class_histogram": (torch.int64, [num_classes]),
        "probability_sum": (torch.float64, [num_classes]),
        "negative_entropy_sum": (torch.float64, []),
        "num_samples": (torch.int64, []),
        "total": (torch.float64, [d]),
        "outer": (torch.float64, [d, d]),
    }


def added_up(shards: Iterable[Shard], extractor: Extractor) -> Iterator[RealStatistics]:
    """The statistics of all shards, before the first piece of samples and after each."""
    total = RealStatistics.empty(extractor)
    yield total
    for shard in shards:
        for piece in shard.pieces(_PIECE):
            total.add(extractor(piece))
            yield total


def describe_all(shards: Iterable[Shard], extractor: Extractor) -> RealStatistics:
    """The statistics of several shards together, all at once."""
    *_, total = added_up(shards, extractor)
    return total


def describe_held_out(held_out: Features | None, extractor: Extractor) -> RealStatistics:
    """The statistics of the samples that the server may hold."""
    if held_out is None:
        raise BadInput(
            "workers tell nothing of their samples, and the server holds none",
            way_out=f"give {flag('held_out', 'FOLDER')}, or {flag('dp_disclose', 'features')}",
        )
    real = RealStatistics.empty(extractor)
    real.add(held_out)
    return real


@dataclass(frozen=True)
class RealSamples:
    """The real samples that this machine can compare generated ones with."""

    make_extractor: Callable[[], Extractor]  # raises BadInput if it finds and trains no network
    held_out: Callable[[Extractor], Features | None]  # features of held-out samples, if any
    held_out_images: Callable[[Tensor], Tensor]  # from positions to float32 [n, *shape]
    held_out_samples: Callable[[], HeldOut | None]  # all, for a kind that judges by itself
    kind: SampleKind  # of the samples, with what all sites have learnt about it
    real_is_held_out: bool = False  # whether held-out samples stand for all real ones
    shards: Sequence[Shard] = ()  # of a run without hosts, whose shards are described here

    def describe(self, extractor: Extractor, held_out: Features | None) -> RealStatistics | None:
        """The statistics of all real samples; None if hosts describe them."""
        if self.real_is_held_out:
            return describe_held_out(held_out, extractor)
        return describe_all(self.shards, extractor) if self.shards else None
