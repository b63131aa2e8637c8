"""Random numbers that nothing but a secret reveals, for each step of a worker.

torch's generator on the CPU uses 32 bits of its seed: a computer tries them all in hours, and among
65,536 seeds two are likely equal. Here a step's numbers come from AES-256 in counter mode with the
key HMAC-SHA256(secret, step).
"""

import hashlib
import hmac

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor

from mdgan.gan.randomness import RandomState

SECRET_BYTES = 32
_BLOCK_BYTES = 16
_BITS_OF_A_FLOAT = 53
# How torch keeps the state of its Mersenne twister: 624 words of 32 bits, in 8 bytes each.
_STATE_BEGINS, _STATE_WORDS = 24, 624


def step_key(secret: bytes, step: int, use: str) -> bytes:
    """The key of one use of random numbers in one step, 32 bytes."""
    return derived(secret, f"{use}/{step}".encode())


def derived(key: bytes, about: bytes) -> bytes:
    """Derives a key of 32 bytes from another key."""
    return hmac.digest(key, about, hashlib.sha256)


def stream(key: bytes) -> CipherContext:
    """AES-256 in counter mode, from its beginning."""
    return Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor()


def bits_of(random: CipherContext, count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """The next words of a stream, uint64 [count]."""
    return np.frombuffer(random.update(bytes(8 * count)), dtype="<u8")


def uniform(key: bytes, count: int) -> Tensor:
    """Random numbers in ]0, 1], float64 [count], each a multiple of 2⁻⁵³."""
    whole = (bits_of(stream(key), count) >> np.uint64(64 - _BITS_OF_A_FLOAT)).astype(np.float64)
    return torch.from_numpy((whole + 1.0) * 2.0**-_BITS_OF_A_FLOAT)


def random_state(key: bytes, device: torch.device) -> RandomState:
    """A state for dropout and the like in a step; on the CPU the key determines all its bits."""
    state = RandomState(int.from_bytes(key[:8], "big") >> 1, device)
    tensors = state.tensors()
    words = (bits_of(stream(key), _STATE_WORDS) >> np.uint64(32)).astype("<u8")
    end = _STATE_BEGINS + 8 * _STATE_WORDS
    tensors["cpu"][_STATE_BEGINS:end] = torch.from_numpy(words.view(np.uint8).copy())
    state.restore(tensors)
    return state
