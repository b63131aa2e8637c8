"""Weighted means of tensors that do not depend on the order or the place of addition.

As with sums of feedback (`exact_sum.py`), a host adds up the tensors of the workers that it
carries, and every addend is first rounded to a multiple of 2⁻⁴⁴ as float64: sums below 512 in
absolute value are then exact in any order. Weights that add up to 1 keep sums below the largest
value of any addend. What rounding costs is below 3·10⁻¹⁴, where float32 itself rounds a value of
10⁻⁶ to 6·10⁻¹⁴. Beyond 512 the order of addition shows in the last bits of float64.

A single tensor is its own mean, bit for bit, whatever its weight.

Sums of whole numbers are exact in any order, too. So the same addends, counted in steps of 2⁻⁴⁴ as
int64, have the same mean bit for bit, as long as sums stay below 512 in absolute value.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from mdgan.gan.exact_sum import PartialSum

_STEPS_PER_UNIT = 2.0**44
MOST_EXACT = 512.0
"""Sums below this one are exact."""


def weighted_sum(tensors: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """Σ w_k · x_k.

    Args:
        tensors: x_k by worker, float32, all of one shape; at least one.
        weights: w_k of each.

    Returns:
        float64, a new tensor.
    """
    return _sum(_addend(tensor, weights[worker]) for worker, tensor in tensors.items())


def average(
    tensors: Mapping[int, Tensor], sums: Sequence[PartialSum], weights: Mapping[int, float]
) -> Tensor:
    """Σ w_k · x_k / Σ w_k over all workers that answered.

    Args:
        tensors: x_k of the workers that answered for themselves, float32.
        sums: of the tensors of the others, from `weighted_sum`.
        weights: w_k of all; those of the workers that answered add up to more than 0.

    Returns:
        float64, of one tensor's shape.
    """
    if len(tensors) == 1 and not sums:
        (tensor,) = tensors.values()
        return tensor.double()
    addends = [_addend(tensors[worker], weights[worker]) for worker in sorted(tensors)]
    total = _sum([*addends, *(part.total.double() for part in sums)])
    answered = [*tensors, *(worker for part in sums for worker in part.workers)]
    return total / total_weight({worker: weights[worker] for worker in answered})


def total_weight(weights: Mapping[int, float]) -> float:
    """Σ w_k, added up in increasing order of workers: the same wherever it is computed."""
    return sum(weights[worker] for worker in sorted(weights))


def sum_in_steps(tensors: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """Σ w_k · x_k, each addend a whole number of steps of 2⁻⁴⁴.

    Args:
        tensors: x_k by worker, float32, all of one shape; at least one.
        weights: w_k of each; Σ w_k · |x_k| is below `MOST_EXACT`.

    Returns:
        int64, a new tensor.
    """
    return weighted_sum(tensors, weights).mul_(_STEPS_PER_UNIT).long()


def mean_of_steps(total: Tensor, weight: float) -> Tensor:
    """The mean from a sum of what `sum_in_steps` gives.

    Args:
        total: int64, of the tensors of all workers.
        weight: `total_weight` of these workers.

    Returns:
        float64: what `average` gives for the same tensors of two workers or more.
    """
    return total.double().div_(_STEPS_PER_UNIT).div_(weight)


def _addend(tensor: Tensor, weight: float) -> Tensor:
    return (tensor.double() * weight).mul_(_STEPS_PER_UNIT).round_().div_(_STEPS_PER_UNIT)


def _sum(addends: Iterable[Tensor]) -> Tensor:
    first, *others = addends
    total = first.clone()
    for addend in others:
        total += addend
    return total
