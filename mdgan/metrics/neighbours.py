"""How near a generator's samples come to single real ones, which only held-out data may show."""

from typing import NamedTuple

import torch
from torch import Tensor

_MOST_ASKED = 500


class Nearest(NamedTuple):
    """What was found.

    Attributes:
        places: int64 [n], for every generated sample the held-out one that is nearest to it.
        generated: the median of the distances to them.
        real: the median distance of a held-out sample to the nearest other.
    """

    places: Tensor
    generated: float
    real: float


def nearest(generated: Tensor, held_out: Tensor) -> Nearest:
    """Finds nearest neighbours by Euclidean distance.

    Args:
        generated: features, float64 [n, d], n > 0.
        held_out: features of real samples, float64 [m, d], m > 1; of many some are asked for their
            own neighbours.
    """
    distances, places = torch.cdist(generated, held_out).min(dim=1)
    asked = torch.linspace(0, len(held_out) - 1, min(len(held_out), _MOST_ASKED)).long()
    to_others = torch.cdist(held_out[asked], held_out)
    to_others[torch.arange(len(asked)), asked] = torch.inf
    real = to_others.min(dim=1).values.median()
    return Nearest(places, float(distances.median()), float(real))
