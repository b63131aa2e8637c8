"""Attacks on a generator by distances: which samples were trained on, and which are copied."""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.audit.separation import permutations, separate_alike
from mdgan.gan.randomness import generator_for
from mdgan.records.audit import Copying

_AT_ONCE = 256
_MOST_ASKED = 1000
_MOST_COMPARED = 2000
_BY_CHANCE = 0.01  # the share of held-out samples that count as copies
_MOST_RATIO = 0.5


class Space(NamedTuple):
    """Samples as points, float64 [.., d], and the classes of trained and held-out samples."""

    name: str
    generated: Tensor
    trained: Tensor
    held_out: Tensor
    classes: Tensor
    other_classes: Tensor


def nearest(points: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """For each point the distance and the index of its nearest neighbour."""
    least = [torch.cdist(part, among).min(dim=1) for part in torch.split(points, _AT_ONCE)]
    return torch.cat([one.values for one in least]), torch.cat([one.indices for one in least])


def copying(space: Space, seed: int) -> Copying | None:
    """Attacks membership by distances to generated samples, and measures copying.

    Membership follows Chen et al. 2020 ("GAN-Leaks", section 4.2, the attacker that only draws
    samples): the nearer a sample is to a generated one, the likelier it was trained on. Copying is
    the ratio of a generated sample's distances to the nearest trained and the nearest held-out
    sample, among equally many of both in each class. So a generator that makes only some classes,
    or makes them better, is not accused. None if the two share no class.
    """
    of_trained, _ = nearest(space.trained, space.generated)
    of_held_out, _ = nearest(space.held_out, space.generated)
    membership = separate_alike(
        -of_trained, space.classes, -of_held_out, their_classes=space.other_classes
    )
    if membership is None:
        return None
    trained, held_out = _equally_many(space.classes, space.other_classes, seed)
    asked = space.generated[:_MOST_ASKED]
    distances = torch.cdist(asked, torch.cat([space.trained[trained], space.held_out[held_out]]))
    classes = space.classes[trained].repeat(2)
    is_trained = torch.arange(len(classes)) < len(trained)
    to_trained, to_held_out = _to_both(distances, is_trained)
    random = next(permutations(classes, torch.bincount(classes) // 2))
    return Copying(
        space=space.name,
        membership=membership,
        ratio=float(_ratio(to_trained, to_held_out).median()),
        nearer=_nearer(to_trained, to_held_out),
        error=float(
            torch.tensor([_nearer(*_to_both(distances, chosen)) for chosen in random]).std()
        ),
    )


def copied_share(generated: Tensor, held_out: Tensor, trained: Iterable[Tensor]) -> float:
    """The share of generated samples that are copies, however few samples are copied.

    A copy is far nearer to some trained sample than to any held-out one. Held-out samples, each
    compared with the other held-out ones, show how near a sample comes by chance: the hundredth of
    them that comes nearest to a trained sample sets the limit. Generated samples within the limit
    count, less the share of held-out samples within it.

    Args:
        generated, held_out: points, float64 [.., d].
        trained: all trained points, in pieces.
    """
    generated, held_out = generated[:_MOST_COMPARED], held_out[:_MOST_COMPARED]
    asked = torch.cat([generated, held_out])
    to_trained = torch.full((len(asked),), inf, dtype=torch.float64)
    for piece in trained:
        to_trained = torch.minimum(to_trained, nearest(asked, piece)[0])
    among = torch.cdist(held_out, held_out).fill_diagonal_(inf).amin(1)
    to_held_out = torch.cat([nearest(generated, held_out)[0], among])
    both = (to_trained == 0) & (to_held_out == 0)
    ratio = torch.where(both, 1.0, _ratio(to_trained, to_held_out))
    made, real = torch.split(ratio, [len(generated), len(held_out)])
    limit = min(_MOST_RATIO, float(real.quantile(_BY_CHANCE, interpolation="higher")))
    return max(0.0, float((made <= limit).double().mean() - (real <= limit).double().mean()))


def _to_both(distances: Tensor, is_trained: Tensor) -> tuple[Tensor, Tensor]:
    """The distances of points to the nearest of some samples, and to the nearest of the others."""
    return distances[:, is_trained].amin(1), distances[:, ~is_trained].amin(1)


def _nearer(to_trained: Tensor, to_held_out: Tensor) -> float:
    nearer = (to_trained < to_held_out).double() + 0.5 * (to_trained == to_held_out).double()
    return float(nearer.mean())


def _equally_many(classes: Tensor, other_classes: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Positions in both of equally many random samples of each class."""
    order = torch.randperm(len(classes), generator=generator_for(seed, "copying"))
    other_order = torch.randperm(len(other_classes), generator=generator_for(seed, "copied from"))
    chosen, other_chosen = [], []
    for label in range(int(classes.max()) + 1):
        of_class = order[classes[order] == label]
        other_of_class = other_order[other_classes[other_order] == label]
        most = min(len(of_class), len(other_of_class))
        chosen.append(of_class[:most])
        other_chosen.append(other_of_class[:most])
    return torch.cat(chosen), torch.cat(other_chosen)


def most_suspicious(space: Space, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """The generated samples that come nearest to a trained sample, relative to a held-out one.

    Returns:
        Their positions, those of the nearest trained samples, and those of the nearest held-out
        ones, int64 [at most `number`] each, the most suspicious first.
    """
    asked = space.generated[:_MOST_ASKED]
    to_trained, trained = nearest(asked, space.trained)
    to_held_out, held_out = nearest(asked, space.held_out)
    places = _ratio(to_trained, to_held_out).argsort(stable=True)[:number]
    return places, trained[places], held_out[places]


def _ratio(to_trained: Tensor, to_held_out: Tensor) -> Tensor:
    return to_trained / to_held_out.clamp(min=torch.finfo(torch.float64).tiny)
