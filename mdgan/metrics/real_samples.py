"""The real samples that generators are compared with, as far as one process has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics, describe_all, describe_held_out
from mdgan.samples.contract import HeldOut, SampleKind


@dataclass(frozen=True)
class RealSamples:
    """What generators are compared with, as far as it is here.

    Attributes:
        make_extractor: finds or trains the network; raises BadInput if it cannot.
        held_out: the features of samples that the server may hold, if there are any.
        kind: of the samples; the server says what all sites have learnt of it.
        held_out_images: reads held-out samples by their places, float32 [n, *shape].
        held_out_samples: reads all of them, for a kind of sample that judges by itself.
        real_is_held_out: whether held-out samples stand for all real ones.
        shards: described here rather than by hosts, where there are none.
    """

    make_extractor: Callable[[], Extractor]
    held_out: Callable[[Extractor], Features | None]
    held_out_images: Callable[[Tensor], Tensor]
    held_out_samples: Callable[[], HeldOut | None]
    kind: SampleKind
    real_is_held_out: bool = False
    shards: Sequence[Shard] = ()

    def describe(self, extractor: Extractor, held_out: Features | None) -> RealStatistics | None:
        """The statistics of all real samples; None if hosts describe them."""
        if self.real_is_held_out:
            return describe_held_out(held_out, extractor)
        return describe_all(self.shards, extractor) if self.shards else None
