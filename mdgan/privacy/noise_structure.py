"""Finds noise that is not Gaussian, since its values, or angles of pairs, lie on a grid.

A sum with such noise tells an attacker the sum, however large the noise: if the attacker subtracts
the right guess, the rest lies on the grid, and after a wrong guess it does not.
"""

from collections.abc import Callable
from math import frexp, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

_SURE = 5.0  # standard deviations. A false alarm makes a bound weaker, and keeps it true.
_MOST_CONCENTRATED = 0.99

View = Callable[[Tensor], Tensor]
"""From rests [..., 2, w], in units of the deviation, to numbers [..., n] that may lie on a grid.

The pairs of the second to last dimension lie half a vector apart.
"""


def _apart(rest: Tensor) -> Tensor:
    """Angles of pairs half a vector apart, in turns."""
    return torch.atan2(rest[..., 1, :], rest[..., 0, :]) / (2 * pi)


def _adjacent(rest: Tensor) -> Tensor:
    """Angles of neighbours, in turns, without the last one if their number is odd."""
    second = rest[..., 1::2]
    return (torch.atan2(second, rest[..., ::2][..., : second.shape[-1]]) / (2 * pi)).flatten(-2)


def _itself(rest: Tensor) -> Tensor:
    return rest.flatten(-2)


def _mantissa(rest: Tensor) -> Tensor:
    return torch.frexp(rest.flatten(-2)).mantissa


def _uniform(rest: Tensor) -> Tensor:
    """The uniform numbers that inversion sampling would have made the noise from."""
    numbers: Tensor = torch.special.ndtr(rest.flatten(-2))
    return numbers


_VIEWS: tuple[tuple[View, bool, range], ...] = (
    (_apart, False, range(6, 29)),
    (_adjacent, False, range(6, 29)),
    (_itself, False, range(2, 25)),
    (_itself, True, range(2, 25)),
    (_mantissa, False, range(5, 21)),
    (_mantissa, True, range(5, 21)),
    (_uniform, False, range(6, 25)),
)
"""Views of rests, whether a grid is a power of two of the deviation or of 1, and its bits."""


class Structure(NamedTuple):
    """A grid near whose points noise lies."""

    view: View
    scale: float
    bits: int  # k; it has 2ᵏ points in 1
    concentration: float  # κ of von Mises' distribution of numbers between two points

    def told(self, rest: Tensor) -> Tensor:
        """The log likelihood of rests, in deviations, less that of Gaussian noise, [...]."""
        return self.concentration * _near(self.view(rest * self.scale), self.bits).sum(-1)


def _near(numbers: Tensor, bits: int) -> Tensor:
    """How near numbers are to a point of the grid: 1 on a point, −1 half-way between two."""
    return torch.cos((numbers * 2.0**bits).frac() * (2 * pi))


def find_structure(noise: Tensor, shift: float, deviation: float) -> Structure | None:
    """The grid of the noise that tells most about a shift; None if there is none.

    A grid that contains the shift as well, such as the one that sums are rounded to, tells nothing.

    Args:
        noise: pure noise, in units of its deviation, float64 [2, n].
        shift: what a canary would add, in the same units.
        deviation: the absolute deviation, for grids that are powers of two of 1.
    """
    best, most = None, 0.0
    for view, is_absolute, range_of_bits in _VIEWS:
        scale = 2 * frexp(deviation)[0] if is_absolute else 1.0
        right, wrong = view(noise * scale), view((noise - shift) * scale)
        bits = 2.0 ** torch.tensor(list(range_of_bits), dtype=torch.float64)
        near = _near(right * bits[:, None], 0).mean(1)
        least = _SURE / sqrt(len(right))
        for place in (near > least).nonzero().flatten().tolist():
            lost = float(near[place] - _near(wrong, range_of_bits[place]).mean())
            resultant = min(float(near[place]), _MOST_CONCENTRATED)
            # κ of von Mises' distribution by its mean resultant, nearly: Banerjee et al. 2005,
            # "Clustering on the Unit Hypersphere using von Mises-Fisher Distributions", eq. 4.4.
            concentration = resultant * (2 - resultant**2) / (1 - resultant**2)
            if lost > least and concentration * lost > most:
                best = Structure(view, scale, range_of_bits[place], concentration=concentration)
                most = concentration * lost
    return best
