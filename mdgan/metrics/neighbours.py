"""How generated samples lie among single real ones, by their distances.

Precision and recall: Kynkäänniemi et al. 2019, "Improved precision and recall metric for assessing
generative models", equations 1 and 2. Density and coverage: Naeem et al. 2020, "Reliable fidelity
and diversity metrics for generative models", section 3.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

NUM_NEIGHBOURS = 5
_ROWS_AT_ONCE = 1000
_MOST_ASKED = 500


class PrecisionRecall(NamedTuple):
    """All four are 1 for a perfect generator, up to chance; density may exceed 1.

    Attributes:
        precision: share of generated samples that lie in some real sample's ball.
        recall: share of real samples that lie in some generated sample's ball.
        density: number of real balls that a generated sample lies in, divided by k, on average.
        coverage: share of real samples with a generated one in their ball.
    """

    precision: float
    recall: float
    density: float
    coverage: float


def precision_recall(
    real: Tensor, generated: Tensor, num_neighbours: int = NUM_NEIGHBOURS
) -> PrecisionRecall:
    """Compares two sets, of more than k each, by balls that reach to k-th nearest neighbours."""
    centre = real.mean(0)  # distances of centred values lose fewer digits
    real, generated = real - centre, generated - centre
    real_radii = _radii(real, num_neighbours)
    generated_radii = _radii(generated, num_neighbours)
    num_balls = torch.zeros(len(generated), dtype=torch.int64)
    recalled, covered = [], []
    for rows, distances in _distances(real, generated):
        inside = distances <= real_radii[rows].unsqueeze(1)
        num_balls += inside.sum(0)
        covered.append(inside.any(1))
        recalled.append((distances <= generated_radii).any(1))
    return PrecisionRecall(
        precision=_share(num_balls > 0),
        recall=_share(torch.cat(recalled)),
        density=float(num_balls.double().mean()) / num_neighbours,
        coverage=_share(torch.cat(covered)),
    )


def _radii(values: Tensor, num_neighbours: int) -> Tensor:
    """The distance of each sample, [n, d], to its k-th nearest neighbour, [n]."""
    parts = []
    for rows, distances in _distances(values, values):
        # A sample is not its own neighbour, but an exact copy of it is.
        distances[torch.arange(len(distances)), torch.arange(rows.start, rows.stop)] = torch.inf
        closest = distances.topk(num_neighbours, dim=1, largest=False, sorted=False).values
        parts.append(closest.amax(1))
    return torch.cat(parts)


def _distances(a: Tensor, b: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """‖a_i − b_j‖, for a few rows at a time, which bounds the memory."""
    for start in range(0, len(a), _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, len(a)))
        yield rows, torch.cdist(a[rows], b)


def _share(yes: Tensor) -> float:
    return float(yes.double().mean())


class Nearest(NamedTuple):
    """How near generated samples come to held-out ones."""

    places: Tensor
    generated: float
    real: float


def nearest(generated: Tensor, held_out: Tensor) -> Nearest:
    """Finds nearest neighbours by Euclidean distance."""
    distances, places = torch.cdist(generated, held_out).min(dim=1)
    asked = torch.linspace(0, len(held_out) - 1, min(len(held_out), _MOST_ASKED)).long()
    to_others = torch.cdist(held_out[asked], held_out)
    to_others[torch.arange(len(asked)), asked] = torch.inf
    real = to_others.min(dim=1).values.median()
    return Nearest(places, float(distances.median()), float(real))
