"""Masks that cancel in a sum: of two hosts that draw the same numbers, one adds and one subtracts.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
section 4.0.1, without its shares of secrets: when a host drops out, those that are left are asked
again and draw new masks, so that no mask is ever given away.

Two hosts agree on a key by X25519 (RFC 7748), of which the server passes on the public halves.
From it HKDF (RFC 5869) with SHA-256 derives the key of a ChaCha20 stream (RFC 8439). Every sum that
a host takes part in has a nonce of its own, so no part of the stream is used twice. Hosts make new
keys each time they join a server: one that goes on from a checkpoint does iterations again.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

_ABOUT = b"mdgan masks of sums "


class SumNumber(NamedTuple):
    """Which sum a mask is for; a host takes part once in each.

    Attributes:
        question: counts the questions that the server asks, below 2⁴⁸.
        group: one of the sums that it asks for, below 2¹⁶.
    """

    question: int
    group: int

    def nonce(self) -> bytes:
        """16 bytes as `ChaCha20` takes them: the block that it begins with, 0, and 12 of ours."""
        return bytes(4) + self.question.to_bytes(8, "little") + self.group.to_bytes(4, "little")


class PairwiseMasks:
    """The masks of one host, as long as it is linked with one server.

    Attributes:
        public_key: to be told to the other hosts, in hexadecimal.
    """

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self._own = self._private.public_key().public_bytes_raw()
        self.public_key = self._own.hex()
        self._shared: dict[str, bytes] = {}

    def masked(self, steps: Tensor, number: SumNumber, others: Iterable[str]) -> Tensor:
        """Adds to an addend what the other hosts subtract, and the other way round.

        Args:
            steps: the addend, int64 of any shape; stays as it is.
            number: of the sum.
            others: the public keys of all other hosts that take part.

        Returns:
            int64 of the same shape. Without the other hosts' addends it looks like random numbers.
            The sum over all hosts, modulo 2⁶⁴, is that of the addends.

        Raises:
            ValueError: a key is none, or this host's own.
        """
        total = steps.detach().cpu().contiguous().numpy().copy().reshape(-1)
        for other in others:
            mask = np.frombuffer(self._stream(other, number, total.nbytes), dtype="<i8")
            # The host whose key is smaller adds; numpy's sums of whole numbers are modulo 2^64.
            total = total + mask if self._own < bytes.fromhex(other) else total - mask
        return torch.from_numpy(total.astype(np.int64, copy=False)).view(steps.shape)

    def _stream(self, other: str, number: SumNumber, num_bytes: int) -> bytes:
        cipher = Cipher(ChaCha20(self._key_with(other), number.nonce()), mode=None)
        return cipher.encryptor().update(bytes(num_bytes))

    def _key_with(self, other: str) -> bytes:
        """The secret that this host shares with another one, 32 bytes."""
        if other not in self._shared:
            theirs = bytes.fromhex(other)
            if theirs == self._own:
                raise ValueError("another host has the key of this one")
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            both = b"".join(sorted((self._own, theirs)))
            derive = HKDF(SHA256(), length=32, salt=None, info=_ABOUT + both)
            self._shared[other] = derive.derive(agreed)
        return self._shared[other]


def unmasked(addends: Mapping[int, Tensor]) -> Tensor:
    """The sum of what all hosts of a sum have masked, modulo 2⁶⁴.

    Args:
        addends: by host, int64, all of one shape; at least one.

    Returns:
        int64, a new tensor.
    """
    first, *others = addends.values()
    total = first.clone()
    for addend in others:
        total += addend
    return total
