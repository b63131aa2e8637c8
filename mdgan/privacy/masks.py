"""The arithmetic of masked sums: masks that cancel, and Shamir's shares of their seeds.

Masks are those of Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", sections 4.0.1 and 4.0.2: y_u = x_u + PRG(b_u) + Σ ±PRG(s_uv). Two hosts with the
same seed draw the same numbers: one host adds them, the other subtracts them. Here PRG is a
ChaCha20 stream (RFC 8439), and each seed serves one sum.

With shares, any t of n holders can rebuild a secret, and t - 1 holders learn nothing (Shamir 1979,
"How to share a secret"). Shares are whole numbers modulo a prime, computed for many secrets at
once: values of a polynomial with random coefficients, whose value at 0 is the secret.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

PRIME = 65521  # the largest below 2¹⁶: each share of a limb takes two bytes
LIMBS = 16  # of a secret: numbers below `PRIME`, 255.99 bits if they are evenly spread
SECRET_BYTES = 2 * LIMBS

Limbs = NDArray[np.uint16]
"""Secrets, or shares of them; the last dimension has `LIMBS` numbers below `PRIME`."""


class Mask(NamedTuple):
    """A stream of random numbers that follows from a seed; a host adds (1) or subtracts (-1) it."""

    seed: Limbs
    sign: int = 1


def sign_between(host: int, other: int) -> int:
    """Whether a host adds (1) or subtracts (-1) the mask that it shares with `other`, or itself."""
    return 1 if host <= other else -1


def masked(steps: Tensor, masks: Iterable[Mask]) -> Tensor:
    """An addend, int64, plus masks, modulo 2⁶⁴; without the seeds it looks random."""
    total = steps.detach().cpu().contiguous().numpy().copy()
    for seed, sign in masks:
        # numpy's sums of whole numbers are modulo 2^64.
        (np.add if sign > 0 else np.subtract)(total, _stream(seed, total), out=total)
    return torch.from_numpy(total)


def without_masks(addends: Mapping[int, Tensor], masks: Iterable[Mask]) -> Tensor:
    """The sum of masked addends, modulo 2⁶⁴, less the masks that do not cancel."""
    first, *others = addends.values()
    total = first.clone()
    for addend in others:
        total += addend
    return masked(total, (Mask(seed, -sign) for seed, sign in masks))


def threshold(num_hosts: int) -> int:
    """How many of a sum's hosts must help to take its masks off: t = ⌊2n/3⌋ + 1.

    That is safe against a server that lies together with fewer than a third of the hosts (Bonawitz
    et al. 2017, section 6.2).
    """
    return 2 * num_hosts // 3 + 1


def as_secret(content: bytes) -> Limbs:
    """32 bytes as a secret, which is as hard to guess as at least 240 random bits."""
    return (np.frombuffer(content, "<u2") % PRIME).astype(np.uint16)


def shared(secrets: Limbs, threshold: int, num_holders: int) -> Limbs:
    """Shares of secrets [S, LIMBS] for n holders: [n, S, LIMBS], row j for that at point j + 1."""
    secrets = secrets.reshape(-1, LIMBS)
    # A random number below 2^64 modulo p is even to 2^-48.
    drawn = np.frombuffer(os.urandom(8 * (threshold - 1) * secrets.size), "<u8") % PRIME
    rows = np.concatenate([secrets.reshape(1, -1), drawn.reshape(threshold - 1, secrets.size)])
    values = _powers(num_holders, threshold) @ rows.astype(np.int64) % PRIME
    return values.astype(np.uint16).reshape(num_holders, *secrets.shape)


def put_together(shares: Limbs, points: Sequence[int]) -> Limbs:
    """Secrets […, LIMBS] from the shares [t, …, LIMBS] of t points (Lagrange at 0)."""
    weights = np.array(_weights(tuple(points)), dtype=np.int64)
    secrets = np.tensordot(weights, shares.astype(np.int64), 1) % PRIME
    return np.asarray(secrets, dtype=np.uint16)


def _stream(seed: Limbs, like: NDArray[np.int64]) -> NDArray[np.int64]:
    cipher = Cipher(ChaCha20(sha256(seed.astype("<u2").tobytes()).digest(), bytes(16)), mode=None)
    drawn = cipher.encryptor().update(bytes(like.nbytes))
    return np.frombuffer(drawn, dtype="<i8").reshape(like.shape)


@lru_cache
def _powers(num_holders: int, threshold: int) -> NDArray[np.int64]:
    """x⁰, …, xᵗ⁻¹ for every point x, modulo p."""
    rows = [[pow(x, e, PRIME) for e in range(threshold)] for x in range(1, num_holders + 1)]
    return np.array(rows, dtype=np.int64)


@lru_cache
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """λ of every point: Σ λ·f(point) is f(0) for each polynomial f of a degree below t."""
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
