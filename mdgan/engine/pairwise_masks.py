"""Masks that cancel in a sum: of two hosts that draw the same numbers, one adds and one subtracts.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
sections 4.0.1 and 4.0.2: y_u = x_u + PRG(b_u) + Σ ±PRG(s_uv). Here PRG is a ChaCha20 stream
(RFC 8439), and every seed is used for one sum alone.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

from mdgan.engine.secret_sharing import Limbs


class Mask(NamedTuple):
    """A stream of random numbers that is added or taken off.

    Attributes:
        seed: decides all of them.
        sign: 1 to add, -1 to subtract.
    """

    seed: Limbs
    sign: int = 1


def sign_between(host: int, other: int) -> int:
    """Whether a host adds the mask that it shares with another one, or subtracts it."""
    return 1 if host < other else -1


def masked(steps: Tensor, masks: Iterable[Mask]) -> Tensor:
    """Adds masks to an addend, modulo 2⁶⁴.

    Args:
        steps: int64 of any shape; stays as it is.
        masks: each with a seed of its own.

    Returns:
        int64 of the same shape; without the seeds it looks like random numbers.
    """
    total = steps.detach().cpu().contiguous().numpy().copy()
    for seed, sign in masks:
        # numpy's sums of whole numbers are modulo 2^64.
        (np.add if sign > 0 else np.subtract)(total, _stream(seed, total), out=total)
    return torch.from_numpy(total)


def unmasked(addends: Mapping[int, Tensor], left: Iterable[Mask]) -> Tensor:
    """The sum of what hosts have masked, modulo 2⁶⁴.

    Args:
        addends: by host, int64, all of one shape; at least one.
        left: the masks that are still on their sum, as hosts have added them.

    Returns:
        int64, a new tensor.
    """
    first, *others = addends.values()
    total = first.clone()
    for addend in others:
        total += addend
    return masked(total, (Mask(seed, -sign) for seed, sign in left))


def _stream(seed: Limbs, like: NDArray[np.int64]) -> NDArray[np.int64]:
    cipher = Cipher(ChaCha20(sha256(seed.astype("<u2").tobytes()).digest(), bytes(16)), mode=None)
    drawn = cipher.encryptor().update(bytes(like.nbytes))
    return np.frombuffer(drawn, dtype="<i8").reshape(like.shape)
