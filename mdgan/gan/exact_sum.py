"""Sums that depend neither on which process adds what up, nor on the order.

A host that carries many workers adds up their answers before it sends them. Rounded sums would then
depend on which workers share a host, and so would the result of a run. Therefore this module first
rounds every addend to a whole number of small steps, as float64: then sums are exact, in any order
and any grouping. With steps of 2^-50, feedback is rounded by less than 5·10⁻¹⁶ a worker, while
float32 itself rounds a feedback of 10⁻⁴ to 7·10⁻¹².

Weighted means (`WEIGHTED`) round to multiples of 2⁻⁴⁴: then sums below 512 in absolute value are
exact. Weights that add up to 1 keep sums below the largest value of any addend. The rounding error
is below 3·10⁻¹⁴, while float32 itself rounds a value of 10⁻⁶ to 6·10⁻¹⁴. Above 512 the order of
addition shows in the last bits of float64.

A single answer needs no sum: its mean is the answer itself, bit for bit, whatever its weight.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

STEPS_PER_UNIT = 2.0**50
_PART = 1 << 15
"""The number of values that a CPU computes at a time, so that its cache can hold them."""


class PartialSum(NamedTuple):
    """Σ F_n over two or more workers of one host; float32 if a lossy codec encoded it."""

    workers: tuple[int, ...]
    total: Tensor


class FixedPoint(NamedTuple):
    """Counts answers in whole numbers of steps, so that sums are exact in any order."""

    scale: float  # the number of steps in 1, a power of 2
    largest: float  # sums below this value are exact

    def steps(self, answer: Tensor, weight: float = 1.0) -> Tensor:
        """w_n · F_n as a whole number of steps, float64, a new tensor."""
        # A product with a power of 2 is exact, so weights may be multiplied by it first.
        return answer.to(torch.float64, copy=True).mul_(weight * self.scale).round_()

    def add_up(self, answers: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
        """Σ w_n · F_n over at least one worker, float64; w_n is 1 for workers without a weight."""
        return self._summed(torch.float64, answers, weights, self.scale)

    def in_steps(self, answers: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
        """The sum of `add_up` in steps, int64; Σ |w_n · F_n| must be below `largest`."""
        return self._summed(torch.int64, answers, weights, 1.0)

    def _summed(
        self,
        dtype: torch.dtype,
        answers: Mapping[int, Tensor],
        weights: Mapping[int, float],
        divisor: float,
    ) -> Tensor:
        factors = [weights.get(worker, 1.0) for worker in answers]

        def compute(*parts: Tensor) -> Tensor:
            return in_place_sum(map(self.steps, parts, factors)).div_(divisor)

        return part_by_part(dtype, list(answers.values()), compute)


FEEDBACK = FixedPoint(STEPS_PER_UNIT, 8.0)
WEIGHTED = FixedPoint(2.0**44, 512.0)
weighted_sum = WEIGHTED.add_up


def put_together(singles: Iterable[Tensor], sums: Iterable[Tensor]) -> Tensor | None:
    """Adds single answers, float32, and sums of `FEEDBACK`; float64, None if there are none."""
    singles, sums = list(singles), list(sums)
    if len(singles) == 1 and not sums:
        return singles[0].double()
    addends = (FEEDBACK.steps(answer).div_(FEEDBACK.scale) for answer in singles)
    parts = [*addends, *(total.double() for total in sums)]
    return torch.stack(parts).sum(0) if parts else None


def in_place_sum(addends: Iterable[Tensor]) -> Tensor:
    """Adds all addends to the first one, in place; needs memory for one addend at a time."""
    remaining = iter(addends)
    total = next(remaining)
    for addend in remaining:
        total += addend
    return total


def part_by_part(
    dtype: torch.dtype, tensors: Sequence[Tensor], compute: Callable[..., Tensor]
) -> Tensor:
    """Computes a new tensor from tensors of one shape, value by value, in parts."""
    first = tensors[0]
    result = torch.empty(first.shape, dtype=dtype, device=first.device)
    size = _PART if first.is_cpu else max(1, first.numel())
    cut = (torch.split(tensor.reshape(-1), size) for tensor in (result, *tensors))
    for into, *parts in zip(*cut, strict=True):
        into.copy_(compute(*parts))
    return result


def average(
    tensors: Mapping[int, Tensor], sums: Sequence[PartialSum], weights: Mapping[int, float]
) -> Tensor:
    """Σ w_k · x_k / Σ w_k over all workers that answered, float64.

    Args:
        tensors: x_k of the workers whose answers came one by one, float32.
        sums: of the tensors of the other workers, from `weighted_sum`.
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

    Numpy's calls have less overhead than torch's, and numpy rounds in the same way.
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
        mean = into.numpy()
        arrays = [row.numpy() for row in rows]
        divisor = total_weight(weights)
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

    addends = [*(tensors[worker] for worker in workers), *(part.total for part in sums)]
    return part_by_part(torch.float64, addends, add_up)


def total_weight(weights: Mapping[int, float]) -> float:
    """Σ w_k, added up in increasing order of workers: the same wherever it is computed."""
    return sum(weights[worker] for worker in sorted(weights))
