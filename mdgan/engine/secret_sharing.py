"""Shamir's shares of secrets: any t of n holders can put them together, t - 1 learn nothing.

Shamir 1979, "How to share a secret", over the field of whole numbers modulo a prime, for many
secrets at once. The coefficients of a polynomial are random, and its value at 0 is the secret.
"""

import os
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PRIME = 65521
"""The largest below 2¹⁶: each share of a limb takes two bytes."""
LIMBS = 16
"""Of a secret: numbers below `PRIME`, 255.99 bits if they are evenly spread."""
SECRET_BYTES = 2 * LIMBS

Limbs = NDArray[np.uint16]
"""Secrets, or shares of them; the last dimension has `LIMBS` numbers below `PRIME`."""


def as_secret(given: bytes) -> Limbs:
    """32 bytes as a secret, from which at least 240 of 256 bits cannot be guessed better."""
    return (np.frombuffer(given, "<u2") % PRIME).astype(np.uint16)


def shared(secrets: Limbs, threshold: int, num_holders: int) -> Limbs:
    """Shares of some secrets.

    Args:
        secrets: [S, LIMBS].
        threshold: t, from 1 to n.
        num_holders: n, below `PRIME`.

    Returns:
        [n, S, LIMBS]; row j is for the holder at point j + 1.
    """
    secrets = secrets.reshape(-1, LIMBS)
    # A random number below 2^64 modulo p is even to 2^-48.
    drawn = np.frombuffer(os.urandom(8 * (threshold - 1) * secrets.size), "<u8") % PRIME
    rows = np.concatenate([secrets.reshape(1, -1), drawn.reshape(threshold - 1, secrets.size)])
    values = _powers(num_holders, threshold) @ rows.astype(np.int64) % PRIME
    return values.astype(np.uint16).reshape(num_holders, *secrets.shape)


def put_together(shares: Limbs, points: Sequence[int]) -> Limbs:
    """The secrets, from the shares of t holders (Lagrange's interpolation at 0).

    Args:
        shares: [t, …, LIMBS].
        points: of these holders, all different, from 1 on.

    Returns:
        […, LIMBS].
    """
    weights = np.array(_weights(tuple(points)), dtype=np.int64)
    found = np.tensordot(weights, shares.astype(np.int64), 1) % PRIME
    return np.asarray(found, dtype=np.uint16)


@lru_cache
def _powers(num_holders: int, threshold: int) -> NDArray[np.int64]:
    """x⁰, …, xᵗ⁻¹ for every point x, modulo p."""
    rows = [[pow(x, e, PRIME) for e in range(threshold)] for x in range(1, num_holders + 1)]
    return np.array(rows, dtype=np.int64)


@lru_cache
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """λ of every point: Σ λ·f(point) is f(0) for each polynomial f of a degree below t."""
    found = []
    for own in points:
        above, below = 1, 1
        for other in points:
            if other != own:
                above, below = above * other % PRIME, below * (other - own) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(found)
