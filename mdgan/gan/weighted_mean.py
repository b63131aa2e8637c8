"""Weighted means of tensors that do not depend on the order or the place of addition.

As with sums of feedback (`exact_sum.py`), a host adds up the tensors of the workers that it
carries, and every addend is first rounded to a multiple of 2⁻⁴⁴ as float64: sums below 512 in
absolute value are then exact in any order. Weights that add up to 1 keep sums below the largest
value of any addend. What rounding costs is below 3·10⁻¹⁴, where float32 itself rounds a value of
10⁻⁶ to 6·10⁻¹⁴. Beyond 512 the order of addition shows in the last bits of float64.

A single tensor is its own mean, bit for bit, whatever its weight.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from mdgan.gan.exact_sum import FixedPoint, PartialSum

STEPS_PER_UNIT = 2.0**44
_PART = 1 << 15
"""On a CPU so many values are computed at a time, which its cache holds until they are done."""
MOST_EXACT = 512.0
"""Sums below this one are exact."""


def weighted_sum(tensors: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """Σ w_k · x_k, float64, of x_k by worker, float32, all of one shape; at least one."""
    return _weighted(torch.float64, tensors, weights, lambda steps: steps.div_(STEPS_PER_UNIT))


def average(
    tensors: Mapping[int, Tensor], sums: Sequence[PartialSum], weights: Mapping[int, float]
) -> Tensor:
    """Σ w_k · x_k / Σ w_k over all workers that answered, float64.

    Args:
        tensors: x_k of the workers that answered for themselves, float32.
        sums: of the tensors of the others, from `weighted_sum`.
        weights: w_k of all; those of the workers that answered add up to more than 0.
    """
    if len(tensors) == 1 and not sums:
        (tensor,) = tensors.values()
        return tensor.double()
    answered = [*tensors, *(worker for part in sums for worker in part.workers)]
    return total(
        tensors, sums, weights, total_weight({worker: weights[worker] for worker in answered})
    )


def total(
    tensors: Mapping[int, Tensor],
    sums: Sequence[PartialSum],
    weights: Mapping[int, float],
    divisor: float = 1.0,
) -> Tensor:
    """Σ w_k · x_k / divisor over all workers that answered, at least one; see `average`."""
    workers = sorted(tensors)

    def add_up(*parts: Tensor) -> Tensor:
        singles = zip(parts, (weights[worker] for worker in workers), strict=False)
        addends = (_in_steps(part, weight) for part, weight in singles)
        added = (part.double() * STEPS_PER_UNIT for part in parts[len(workers) :])
        return _sum(chain(addends, added)).div_(STEPS_PER_UNIT).div_(divisor)

    given = [*(tensors[worker] for worker in workers), *(part.total for part in sums)]
    return _part_by_part(torch.float64, given, add_up)


def total_weight(weights: Mapping[int, float]) -> float:
    """Σ w_k, added up in increasing order of workers: the same wherever it is computed."""
    return sum(weights[worker] for worker in sorted(weights))


def sum_in_steps(tensors: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """As `weighted_sum`, int64 in steps of 2⁻⁴⁴; Σ w_k · |x_k| must be below `MOST_EXACT`."""
    return _weighted(torch.int64, tensors, weights, lambda steps: steps)


WEIGHTED = FixedPoint(STEPS_PER_UNIT, MOST_EXACT, weighted_sum, sum_in_steps)


def _weighted(
    dtype: torch.dtype,
    tensors: Mapping[int, Tensor],
    weights: Mapping[int, float],
    finish: Callable[[Tensor], Tensor],
) -> Tensor:
    """What becomes of Σ w_k · x_k in steps."""
    factors = [weights[worker] for worker in tensors]

    def compute(*parts: Tensor) -> Tensor:
        return finish(_sum(map(_in_steps, parts, factors)))

    return _part_by_part(dtype, list(tensors.values()), compute)


def _in_steps(tensor: Tensor, weight: float) -> Tensor:
    """w_k · x_k as a whole number of steps, float64, a new tensor."""
    # A product with a power of 2 is exact, so weights may be multiplied by it first.
    return tensor.to(torch.float64, copy=True).mul_(weight * STEPS_PER_UNIT).round_()


def _sum(addends: Iterable[Tensor]) -> Tensor:
    """The sum, which the first one becomes; one is there at a time."""
    rest = iter(addends)
    total = next(rest)
    for addend in rest:
        total += addend
    return total


def _part_by_part(
    dtype: torch.dtype, tensors: Sequence[Tensor], compute: Callable[..., Tensor]
) -> Tensor:
    """Computes a new tensor from some of one shape, value by value."""
    first = tensors[0]
    result = torch.empty(first.shape, dtype=dtype, device=first.device)
    size = _PART if first.is_cpu else max(1, first.numel())
    cut = (torch.split(tensor.reshape(-1), size) for tensor in (result, *tensors))
    for into, *parts in zip(*cut, strict=True):
        into.copy_(compute(*parts))
    return result
