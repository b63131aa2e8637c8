"""Random numbers that cannot be guessed, from a secret and the number of a step.

torch's generator on the CPU uses 32 bits of its seed, which a computer tries out in hours, and two
of 65,536 such seeds are likely to be equal. Here a step's numbers come from AES-256 in counter mode
under a key of its own, HMAC-SHA256(secret, step).
"""

import hashlib
import hmac
from collections.abc import Iterable
from math import pi

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor

from mdgan.gan.randomness import RandomState

SECRET_BYTES = 32
_BLOCK_BYTES = 16
_BITS_OF_A_FLOAT, _BITS_OF_AN_ANGLE = 53, 24
_WORDS_AT_ONCE = 1 << 15
"""All that is computed from them stays in a core's cache."""
# How torch keeps the state of its Mersenne twister: 624 words of 32 bits, in 8 bytes each.
_STATE_BEGINS, _STATE_WORDS = 24, 624


def step_key(secret: bytes, step: int, use: str) -> bytes:
    """The key of one use of random numbers in one step, 32 bytes.

    Args:
        secret: known to the worker alone.
        step: counted from 0.
        use: what is drawn; each use has numbers of its own.
    """
    return hmac.digest(secret, f"{use}/{step}".encode(), hashlib.sha256)


def bound_to(key: bytes, addends: Iterable[Tensor]) -> bytes:
    """A key for the noise of these addends alone, 32 bytes.

    A step may be taken twice where a user has put back an older ledger, or two machines use copies
    of one. It then has other noise if the addends differ: the same noise would cancel, and leave
    their difference.

    Args:
        key: of the step.
        addends: in an order that is always the same.
    """
    code = hmac.new(key, digestmod=hashlib.sha256)
    for addend in addends:
        code.update(addend.detach().cpu().contiguous().view(-1).numpy().data)
    return code.digest()


def _cipher(key: bytes) -> CipherContext:
    return Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor()


def _words(cipher: CipherContext, count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """The next random words of 64 bits, [count]."""
    return np.frombuffer(cipher.update(bytes(8 * count)), dtype="<u8")


def uniform(key: bytes, count: int) -> Tensor:
    """Random numbers in ]0, 1], float64 [count], each a multiple of 2⁻⁵³."""
    whole = (_words(_cipher(key), count) >> np.uint64(64 - _BITS_OF_A_FLOAT)).astype(np.float64)
    return torch.from_numpy((whole + 1.0) * 2.0**-_BITS_OF_A_FLOAT)


def normal(key: bytes, count: int) -> Tensor:
    """Random numbers of N(0, 1), float32 [count]; Box and Muller 1958.

    A word gives two of them: 40 bits decide how far they are from 0, at most 7.4, and 24 where.
    """
    half, cipher = -(-count // 2), _cipher(key)
    found = torch.empty(2, half)
    for first in range(0, half, _WORDS_AT_ONCE):
        words = _words(cipher, min(_WORDS_AT_ONCE, half - first))
        far = torch.from_numpy((words >> np.uint64(_BITS_OF_AN_ANGLE)).astype(np.float64))
        where = (words & np.uint64((1 << _BITS_OF_AN_ANGLE) - 1)).astype(np.float32)
        # The products are new tensors: torch lays those out alike each time, numpy does not.
        far = far.add_(1.0) * 2.0 ** (_BITS_OF_AN_ANGLE - 64)
        radius = far.log_().mul_(-2.0).sqrt_().float()
        angle = torch.from_numpy(where) * (2.0 * pi * 2.0**-_BITS_OF_AN_ANGLE)
        some = found[:, first : first + len(words)]
        torch.mul(radius, angle.cos(), out=some[0])
        torch.mul(radius, angle.sin_(), out=some[1])
    return found.view(-1)[:count]


def random_state(key: bytes, device: torch.device) -> RandomState:
    """What dropout and the like draw from in one step.

    On the CPU the whole state comes from the key, not 32 bits of it.
    """
    state = RandomState(int.from_bytes(key[:8], "big") >> 1, device)
    tensors = state.tensors()
    words = (_words(_cipher(key), _STATE_WORDS) >> np.uint64(32)).astype("<u8")
    end = _STATE_BEGINS + 8 * _STATE_WORDS
    tensors["cpu"][_STATE_BEGINS:end] = torch.from_numpy(words.view(np.uint8).copy())
    state.restore(tensors)
    return state
