"""What members of a ring add up, and how it becomes the mean: in whole steps, or rounded.

Rough sums are of gradients alone; buffers are averaged exactly whatever becomes of gradients.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mdgan.families.data_parallel.replica import GradientVector
from mdgan.families.data_parallel.settings import ROUGH
from mdgan.gan.weighted_mean import mean_of_steps, sum_in_steps, total_weight

_ROUGH = dict(zip(ROUGH, (torch.float32, torch.bfloat16), strict=True))
"""What is added up instead of whole steps."""


class Sums:
    """How the vectors of all members are added up."""

    def __init__(self, all_reduce: str) -> None:
        self._rough = _ROUGH.get(all_reduce)

    def addends(
        self, like: GradientVector, vectors: Mapping[int, Tensor], weights: Mapping[int, float]
    ) -> list[Tensor]:
        """What one member adds: the rough part and the exact one, int64, either maybe empty."""
        cut = 0 if self._rough is None else like.num_gradient_blocks
        dtype = self._rough or torch.float32
        blocks, width = like.shape
        if not vectors:
            exact = torch.zeros(blocks - cut, width, dtype=torch.int64)
            return [torch.zeros(cut, width, dtype=dtype), exact]
        first, *others = vectors
        rough = vectors[first][:cut] * weights[first]
        for worker in others:
            rough.add_(vectors[worker][:cut], alpha=weights[worker])
        exact = sum_in_steps({n: vector[cut:] for n, vector in vectors.items()}, weights)
        return [rough.to(dtype).cpu(), exact.cpu()]

    def mean(self, sums: Sequence[Tensor], weights: Mapping[int, float]) -> list[Tensor] | None:
        """The mean of what `addends` gives; None if a rough sum is beyond its type."""
        rough, exact = sums
        total = total_weight(weights)
        mean = rough.float().div_(total)
        is_finite = torch.linalg.vector_norm(mean).isfinite()
        return [mean, mean_of_steps(exact, total)] if is_finite else None
