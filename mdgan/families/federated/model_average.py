"""Weighted means of models that do not depend on the order or the place of addition.

As with sums of feedback (`mdgan/gan/exact_sum.py`), a host adds up the models of the clients that
it carries, and every addend is first rounded to a multiple of 2⁻⁴⁴ as float64: sums below 512 in
absolute value are then exact in any order. Weights that add up to 1 keep sums below the largest
value of any model. What rounding costs is below 3·10⁻¹⁴, where float32 itself rounds a weight of
10⁻⁶ to 6·10⁻¹⁴. Beyond 512 the order of addition shows in the last bits of float64.

A single model is its own mean, bit for bit, whatever its weight.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from mdgan.gan.exact_sum import PartialSum

_STEPS_PER_UNIT = 2.0**44


def weighted_sum(models: Mapping[int, Tensor], weights: Mapping[int, float]) -> Tensor:
    """Σ w_k · x_k.

    Args:
        models: x_k by client, float32, all of one shape; at least one.
        weights: w_k of each.

    Returns:
        float64, a new tensor.
    """
    return _sum(_addend(model, weights[client]) for client, model in models.items())


def average(
    models: Mapping[int, Tensor], sums: Sequence[PartialSum], weights: Mapping[int, float]
) -> Tensor:
    """Σ w_k · x_k / Σ w_k over all clients that answered (FedAvg).

    For w see `fegan.participant_weights`.

    Args:
        models: x_k of the clients that answered for themselves, float32.
        sums: of the models of the others, from `weighted_sum`.
        weights: w_k of all; those of the clients that answered add up to more than 0.

    Returns:
        float64, of a model's shape.
    """
    if len(models) == 1 and not sums:
        (model,) = models.values()
        return model.double()
    addends = [_addend(models[client], weights[client]) for client in sorted(models)]
    total = _sum([*addends, *(part.total.double() for part in sums)])
    answered = [*models, *(client for part in sums for client in part.workers)]
    return total / sum(weights[client] for client in sorted(answered))


def _addend(model: Tensor, weight: float) -> Tensor:
    return (model.double() * weight).mul_(_STEPS_PER_UNIT).round_().div_(_STEPS_PER_UNIT)


def _sum(addends: Iterable[Tensor]) -> Tensor:
    first, *others = addends
    total = first.clone()
    for addend in others:
        total += addend
    return total
