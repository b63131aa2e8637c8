"""Sums of feedback that do not depend on who adds up what, and in which order.

A host that carries many workers adds up their feedback on the same batch before it is sent. Rounded
sums would then depend on who sits where, and the same run on other machines would end elsewhere. So
every addend is first rounded to a multiple of 2^-50, as float64: sums below 8 in absolute value are
then exact, in any order and any grouping. What that costs is below 5·10⁻¹⁶ a worker, where float32
itself rounds a feedback of 10⁻⁴ to 7·10⁻¹².

A batch that a single worker judged has no sum: its feedback is taken as it is.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

_STEPS_PER_UNIT = 2.0**50


class FeedbackSum(NamedTuple):
    """Σ F_n of some workers of a host that judged the same batch.

    Attributes:
        workers: n, two or more.
        total: float64 [b, C, H, W]; float32 where a codec that loses something gives it back.
    """

    workers: tuple[int, ...]
    total: Tensor


def addend(feedback: Tensor) -> Tensor:
    """F_n as it goes into a sum.

    Args:
        feedback: F_n, float32 [b, C, H, W], finite.

    Returns:
        float64, a copy.
    """
    return feedback.double().mul_(_STEPS_PER_UNIT).round_().div_(_STEPS_PER_UNIT)


def summed(feedbacks: Iterable[Tensor]) -> Tensor:
    """Σ F_n of two workers or more, float64 [b, C, H, W]."""
    first, *others = feedbacks
    total = addend(first)
    for feedback in others:
        total += addend(feedback)
    return total


def put_together(singles: Iterable[Tensor], sums: Iterable[Tensor]) -> Tensor | None:
    """Σ F_n over everybody who judged one batch.

    Args:
        singles: F_n of those who answered for themselves, float32 [b, C, H, W].
        sums: what `summed` made of the others', float64.

    Returns:
        float64 [b, C, H, W], fresh; None if there is nothing.
    """
    singles, sums = list(singles), list(sums)
    if len(singles) == 1 and not sums:
        return singles[0].double()
    parts = [*map(addend, singles), *(total.double() for total in sums)]
    return torch.stack(parts).sum(0) if parts else None
