"""Sums that do not depend on which process adds up what, and in which order.

A host that carries many workers adds up their answers before it sends them. Rounded sums would then
depend on which workers share a host, and so would the result of a run. Therefore every addend is
first rounded to a multiple of 2^-50, as float64: sums below 8 in absolute value are then exact, in
any order and any grouping. What that costs is below 5·10⁻¹⁶ a worker, where float32 itself rounds a
feedback of 10⁻⁴ to 7·10⁻¹².

A single answer needs no sum: it is taken as it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

STEPS_PER_UNIT = 2.0**50
MOST_EXACT = 8.0
"""Sums below this one are exact."""

AddUp = Callable[[Mapping[int, Tensor], Mapping[int, float]], Tensor]
"""From some workers' answers and weights to a sum."""


class PartialSum(NamedTuple):
    """Σ F_n over two or more workers of one host; float32 if a codec that loses sent it."""

    workers: tuple[int, ...]
    total: Tensor


class FixedPoint(NamedTuple):
    """How answers are counted in whole numbers of steps, so that sums are exact in any order.

    Attributes:
        scale: steps of a unit.
        largest: values below this one can be added up.
        add_up: to a float64.
        in_steps: to an int64, the number of steps of the same sum.
    """

    scale: float
    largest: float
    add_up: AddUp
    in_steps: AddUp


def addend(answer: Tensor) -> Tensor:
    """One worker's F_n, float32 [b, C, H, W], as it goes into a sum: a copy, float64."""
    return answer.double().mul_(STEPS_PER_UNIT).round_().div_(STEPS_PER_UNIT)


def summed(answers: Mapping[int, Tensor], _weights: Mapping[int, float] | None = None) -> Tensor:
    """Σ F_n of two workers or more, float64 [b, C, H, W]; all weigh the same."""
    first, *others = answers.values()
    total = addend(first)
    for answer in others:
        total += addend(answer)
    return total


def summed_in_steps(
    answers: Mapping[int, Tensor], _weights: Mapping[int, float] | None = None
) -> Tensor:
    """As `summed`, of one worker or more: int64, the number of steps of 2⁻⁵⁰."""
    first, *others = (a.double().mul_(STEPS_PER_UNIT).round_().long() for a in answers.values())
    for answer in others:
        first += answer
    return first


FEEDBACK = FixedPoint(STEPS_PER_UNIT, MOST_EXACT, summed, summed_in_steps)


def put_together(singles: Iterable[Tensor], sums: Iterable[Tensor]) -> Tensor | None:
    """Σ F_n of single answers, float32, and of sums by `summed`: float64; None of nothing."""
    singles, sums = list(singles), list(sums)
    if len(singles) == 1 and not sums:
        return singles[0].double()
    parts = [*map(addend, singles), *(total.double() for total in sums)]
    return torch.stack(parts).sum(0) if parts else None
