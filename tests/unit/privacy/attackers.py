"""Attackers that look at one noisy gradient and say whether a sample was in the sum.

They know everything but that: all other samples, the discriminator, which samples were drawn, and
how noise is made. What Gaussian noise of any deviation cannot hide is structure: values that the
noise can take and others that it cannot.
"""

from collections.abc import Callable, Iterator
from math import pi, sqrt

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from mdgan.privacy.noise import SENSITIVITY
from mdgan.privacy.random_stream import bits_of, stream

Attack = Callable[[Tensor, Tensor], float]
"""From what was released in units of σC, minus all that is known to be in the sum, and from the
target's gradient in the same units, to a score: positive if the target seems to be in the sum."""


def flawed_noise(
    total: Tensor, clip: float, noise: float, key: bytes, scale: float = 1.0
) -> Tensor:
    """As of version 0.7.0: float32, of Box and Muller with angles of 24 bits."""
    half = -(-len(total) // 2)
    words = bits_of(stream(key), half)
    far = torch.from_numpy((words >> np.uint64(24)).astype(np.float64))
    where = torch.from_numpy((words & np.uint64((1 << 24) - 1)).astype(np.float32))
    radius = far.add_(1.0).mul_(2.0**-40).log_().mul_(-2.0).sqrt_().float()
    angle = where * (2.0 * pi * 2.0**-24)
    drawn = torch.cat([radius * angle.cos(), radius * angle.sin()])[: len(total)]
    return total.add(drawn, alpha=noise * clip).mul_(scale)


def likelihood(rest: Tensor, target: Tensor) -> float:
    """The best that can be done against Gaussian noise: the logarithm of the likelihood ratio."""
    return float(rest @ target - 0.5 * target @ target)


def on_rays(rest: Tensor, target: Tensor) -> float:
    """Pairs of values lie on one of 2ᵏ rays, for some k and some way to pair them."""
    return _strangest(rays(rest)) - _strangest(rays(rest - target))


def on_a_lattice(rest: Tensor, target: Tensor) -> float:
    """Values are multiples of some power of two."""
    return _strangest(multiples(rest)) - _strangest(multiples(rest - target))


ATTACKS: dict[str, Attack] = {"likelihood": likelihood, "rays": on_rays, "lattice": on_a_lattice}


def rays(values: Tensor) -> Iterator[Tensor]:
    """By how much of their distance pairs miss the nearest of 2ᵏ rays."""
    half = len(values) // 2
    pairings = (values[:half], values[-half:]), (values[0::2][:half], values[1::2])
    odd = -(-len(values) // 2)
    for first, second in (*pairings, (values[: len(values) - odd], values[odd:])):
        turns = torch.atan2(second, first) / (2 * pi)
        for bits in range(16, 30, 2):
            yield turns * 2.0**bits


def multiples(values: Tensor) -> Iterator[Tensor]:
    """Values in units of powers of two."""
    for bits in range(10, 30, 4):
        yield values * 2.0**bits


def _strangest(candidates: Iterator[Tensor]) -> float:
    """How far from uniform the fractions of some candidates are, the least likely of all.

    Their mean distance to whole numbers, in standard deviations; low if they lie near those.
    """
    verdicts = []
    for values in candidates:
        off = (values - values.round()).abs()
        verdicts.append(float(off.mean() - 0.25) * sqrt(48 * len(off)))
    return min(verdicts)


def allowed(noise: float, rate: float, num_steps: int = 1) -> float:
    """The most by which any attacker can find members more often than it accuses others.

    The total variation between both worlds, of all steps together at most.
    """
    return min(1.0, num_steps * rate * (2 * float(stats.norm.cdf(SENSITIVITY / (2 * noise))) - 1))
