"""Sums that do not depend on which process adds up what, and in which order.

A host that carries many workers adds up their answers before it sends them. Rounded sums would then
depend on which workers share a host, and so would the result of a run. Therefore every addend is
first rounded to a whole number of small steps, as float64: sums are then exact, in any order and
any grouping. With steps of 2^-50, feedback costs below 5·10⁻¹⁶ a worker, where float32 itself
rounds a feedback of 10⁻⁴ to 7·10⁻¹².

A single answer needs no sum: it is taken as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

STEPS_PER_UNIT = 2.0**50
_PART = 1 << 15
"""On a CPU so many values are computed at a time, which its cache holds until they are done."""


class PartialSum(NamedTuple):
    """Σ F_n over two or more workers of one host; float32 if a codec that loses sent it."""

    workers: tuple[int, ...]
    total: Tensor


class FixedPoint(NamedTuple):
    """Counts answers in whole numbers of steps, so that sums are exact in any order.

    Attributes:
        scale: steps of a unit, a power of 2.
        largest: sums below this one are exact.
    """

    scale: float
    largest: float

    def steps(self, answer: Tensor, weight: float = 1.0) -> Tensor:
        """w_n · F_n as a whole number of steps, float64, a new tensor."""
        # A product with a power of 2 is exact, so weights may be multiplied by it first.
        return answer.to(torch.float64, copy=True).mul_(weight * self.scale).round_()

    def add_up(self, answers: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
        """Σ w_n · F_n by worker, float64; at least one, each weighs 1 unless weights say more."""
        return self._summed(torch.float64, answers, weights, self.scale)

    def in_steps(self, answers: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
        """As `add_up`, int64: the number of steps; Σ |w_n · F_n| must be below `largest`."""
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


def put_together(singles: Iterable[Tensor], sums: Iterable[Tensor]) -> Tensor | None:
    """Σ F_n of single answers, float32, and of `FEEDBACK`'s sums: float64; None of nothing."""
    singles, sums = list(singles), list(sums)
    if len(singles) == 1 and not sums:
        return singles[0].double()
    addends = (FEEDBACK.steps(answer).div_(FEEDBACK.scale) for answer in singles)
    parts = [*addends, *(total.double() for total in sums)]
    return torch.stack(parts).sum(0) if parts else None


def in_place_sum(addends: Iterable[Tensor]) -> Tensor:
    """The sum, which the first one becomes; one is there at a time."""
    rest = iter(addends)
    total = next(rest)
    for addend in rest:
        total += addend
    return total


def part_by_part(
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
