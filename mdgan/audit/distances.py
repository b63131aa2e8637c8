"""Attacks on a generator by distances: who was trained on, and what is copied."""

from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.audit.separation import separate
from mdgan.gan.randomness import generator_for
from mdgan.records.audit import Copying

_AT_ONCE = 256
_MOST_ASKED = 1000


class Space(NamedTuple):
    """Samples as points, by which distances are measured.

    Attributes:
        name: `features` or `pixels`.
        generated: float64 [n, d].
        trained: those that were trained on, float64 [m, d].
        held_out: others, float64 [h, d].
    """

    name: str
    generated: Tensor
    trained: Tensor
    held_out: Tensor


def nearest(points: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """For each point its nearest neighbour.

    Args:
        points: float64 [n, d].
        among: float64 [m, d], m > 0.

    Returns:
        Euclidean distances, float64 [n], and places in `among`, int64 [n].
    """
    found = [torch.cdist(part, among).min(dim=1) for part in torch.split(points, _AT_ONCE)]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def copying(space: Space, seed: int) -> Copying:
    """What distances to generated samples tell of the samples that were trained on.

    Membership as Chen et al. 2020 ("GAN-Leaks", section 4.2, the attacker that only draws samples):
    the nearer a sample is to what is generated, the likelier it was trained on. Copying as the
    ratio of a generated sample's distances to the nearest sample trained on and to the nearest
    held-out one, among equally many of both.

    Args:
        space: the samples.
        seed: decides with which of the samples trained on held-out ones are compared.
    """
    of_trained, _ = nearest(space.trained, space.generated)
    of_held_out, _ = nearest(space.held_out, space.generated)
    order = torch.randperm(len(space.trained), generator=generator_for(seed, "copying"))
    most = min(len(space.trained), len(space.held_out))
    held = torch.randperm(len(space.held_out), generator=generator_for(seed, "copied from"))
    asked = space.generated[:_MOST_ASKED]
    to_trained, _ = nearest(asked, space.trained[order[:most]])
    to_held_out, _ = nearest(asked, space.held_out[held[:most]])
    nearer = (to_trained < to_held_out).double() + 0.5 * (to_trained == to_held_out).double()
    return Copying(
        space=space.name,
        membership=separate(-of_trained, -of_held_out),
        ratio=float(_ratio(to_trained, to_held_out).median()),
        nearer=float(nearer.mean()),
    )


def most_suspicious(space: Space, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """The generated samples that come nearest to one trained on, beside their nearest held-out one.

    Returns:
        Their places, those of the nearest samples trained on, and of the nearest held-out ones,
        int64 [at most `number`] each, the most suspicious first.
    """
    asked = space.generated[:_MOST_ASKED]
    to_trained, trained = nearest(asked, space.trained)
    to_held_out, held_out = nearest(asked, space.held_out)
    places = _ratio(to_trained, to_held_out).argsort(stable=True)[:number]
    return places, trained[places], held_out[places]


def _ratio(to_trained: Tensor, to_held_out: Tensor) -> Tensor:
    return to_trained / to_held_out.clamp(min=torch.finfo(torch.float64).tiny)
