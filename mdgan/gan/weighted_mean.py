"""Weighted means of tensors that do not depend on the order or the place of addition.

As with sums of feedback (`exact_sum.py`), a host adds up the tensors of the workers that it
carries, and every addend is first rounded to a multiple of 2⁻⁴⁴ as float64: sums below 512 in
absolute value are then exact in any order. Weights that add up to 1 keep sums below the largest
value of any addend. What rounding costs is below 3·10⁻¹⁴, where float32 itself rounds a value of
10⁻⁶ to 6·10⁻¹⁴. Beyond 512 the order of addition shows in the last bits of float64.

A single tensor is its own mean, bit for bit, whatever its weight.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from mdgan.gan.exact_sum import FixedPoint, PartialSum, in_place_sum, part_by_part

MOST_EXACT = 512.0
"""Sums below this one are exact."""
WEIGHTED = FixedPoint(2.0**44, MOST_EXACT)
_PART = 1 << 15
"""So many values are computed at a time, which the processor's cache holds until they are done."""
weighted_sum, sum_in_steps = WEIGHTED.add_up, WEIGHTED.in_steps


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


class MeanOfRows:
    """Means of tensors on the CPU, as `average` computes them, in place and part by part.

    Numpy calls a kernel sooner than torch does, and it rounds in the same way.
    """

    def __init__(self) -> None:
        self._space = np.empty((2, _PART))

    def write(self, into: Tensor, rows: Sequence[Tensor], weights: Mapping[int, float]) -> None:
        """Puts Σ w_k · x_k / Σ w_k in place.

        Args:
            into: [n] float32 or float64.
            rows: x_k, [n] float32 each, in increasing order of workers.
            weights: w_k of these workers, and of no others.
        """
        if len(rows) == 1:
            into.copy_(rows[0])
            return
        mean, arrays, divisor = into.numpy(), [row.numpy() for row in rows], total_weight(weights)
        factors = [weights[worker] * WEIGHTED.scale for worker in sorted(weights)]
        for begin in range(0, len(mean), _PART):
            part = slice(begin, begin + _PART)
            total, addend = self._space[:, : len(mean[part])]
            for n, (array, factor) in enumerate(zip(arrays, factors, strict=True)):
                steps = addend if n else total
                np.multiply(array[part], factor, out=steps, dtype=np.float64)
                np.rint(steps, out=steps)
                if n:
                    total += addend
            total *= 1.0 / WEIGHTED.scale
            if divisor != 1.0:
                total /= divisor
            mean[part] = total


def total(
    tensors: Mapping[int, Tensor],
    sums: Sequence[PartialSum],
    weights: Mapping[int, float],
    divisor: float = 1.0,
) -> Tensor:
    """Σ w_k · x_k / divisor over all workers that answered, at least one; see `average`."""
    workers = sorted(tensors)
    factors = [weights[worker] for worker in workers]

    def add_up(*parts: Tensor) -> Tensor:
        addends = map(WEIGHTED.steps, parts, factors)  # of the first parts
        added = (part.double() * WEIGHTED.scale for part in parts[len(workers) :])
        return in_place_sum(chain(addends, added)).div_(WEIGHTED.scale).div_(divisor)

    given = [*(tensors[worker] for worker in workers), *(part.total for part in sums)]
    return part_by_part(torch.float64, given, add_up)


def total_weight(weights: Mapping[int, float]) -> float:
    """Σ w_k, added up in increasing order of workers: the same wherever it is computed."""
    return sum(weights[worker] for worker in sorted(weights))
