"""Gaussian noise on a lattice.

Floating-point noise reveals the sum that it hides: rounding, and the values that a generator can
give, differ with the sum (Mironov 2012, "On significance of the least significant bits for
differential privacy"). Here sum and noise are each rounded to whole multiples of one step, and then
added without rounding. The result is a multiple of the step, whatever the sum was.

Why this is the Gaussian mechanism: for a whole number k, k + round(y) = round(k + y). So the worker
releases round(k + y) with a Gaussian y, and rounding is post-processing. What remains is to charge
for the rounding of the sum; see `SENSITIVITY`.
"""

import struct
from collections.abc import Iterator
from math import frexp, ldexp, pi, sqrt

import numpy as np
import torch
from cryptography.hazmat.primitives.poly1305 import Poly1305
from torch import Tensor

from mdgan.privacy.random_stream import derived, stream

_SHARE = 2.0**-11
SENSITIVITY = 1 + 2 * _SHARE
"""By how much one sample can change a rounded sum, in units of C. Rounding to the lattice adds
√d · step ≤ C · 2⁻¹¹ for d numbers. As much is charged for float32, in which the sum was made: that
covers every sum of up to 90 samples, and those of thousands unless all their errors add up."""

_PAIRS_AT_ONCE = 1 << 16  # fewer: the calls cost more time than the caches save
_WORD_BITS, _WORD_BYTES, _ANGLE_BITS = 64, 8, 53


def lattice_step(clip: float, count: int) -> float:
    """The distance between neighbouring values: the largest power of two ≤ C · 2⁻¹¹ / √d."""
    _, exponent = frexp(clip * _SHARE / sqrt(max(1, count)))
    return ldexp(1.0, exponent - 1)


def with_noise(total: Tensor, clip: float, noise: float, key: bytes, scale: float = 1.0) -> Tensor:
    """Adds noise of N(0, σ²C²) to each number of a sum (1 ‰ more; see `SENSITIVITY`).

    The noise follows from the key, the sum and all other arguments. A step is taken twice if a user
    restores an older ledger, or if two machines use copies of one. Its noise then differs if
    anything differs, since equal noise would cancel out.

    Args:
        total: Σ, float32 or float64 [d], of addends with norms up to C; overwritten if on the CPU.
        key: of the step, 32 bytes.
        scale: a public factor of the result, 1 / b.
    """
    noisy = total.detach().cpu().contiguous()
    step, first = lattice_step(clip, len(noisy)), 0
    tag = Poly1305.generate_tag(derived(key, b"tag"), noisy.numpy().data.cast("B"))
    sum_key = derived(key, tag + struct.pack("<3dq", clip, noise, scale, len(noisy)))
    for noises in _normal(sum_key, len(noisy), noise * clip * SENSITIVITY / step):
        some = noisy[first : first + len(noises)].mul_(1 / step).round_()
        some.copy_(noises.round_().add_(some).mul_(step * scale))
        first += len(noises)
    return noisy


def _normal(key: bytes, count: int, deviation: float) -> Iterator[Tensor]:
    """Pieces of random numbers of N(0, deviation²), float64, `count` in all (Box and Muller 1958).

    Each pair of numbers uses two words: 64 bits for its radius, at most 9.4 deviations, and 53 for
    its angle. So many values lie between two lattice points that every lattice point can occur.
    """
    random, most = stream(key), min(_PAIRS_AT_ONCE, -(-count // 2))
    # All pieces use this memory. It is torch's, which aligns it equally each time: numpy and torch
    # then vectorise equally, and the bits are equal.
    block = torch.empty(6, most, dtype=torch.float64)
    nothing = bytes(2 * _WORD_BYTES * most)
    for first in range(0, count, 2 * most):
        pairs = min(most, -(-(count - first) // 2))
        words = block.view(-1)[: 2 * pairs].numpy().view("<u8")
        random.update_into(nothing[: words.nbytes], words.data.cast("B"))
        angle_bits = np.right_shift(
            words[pairs:], np.uint64(_WORD_BITS - _ANGLE_BITS), out=words[pairs:]
        )
        radius, angle, both = block[2, :pairs], block[3, :pairs], block[4:, :pairs]
        np.add(words[:pairs], 0.5, out=radius.numpy())
        np.log(radius.mul_(2.0**-_WORD_BITS).numpy(), out=radius.numpy())
        np.sqrt(radius.mul_(-2.0 * deviation**2).numpy(), out=radius.numpy())
        np.multiply(angle_bits, 2.0 * pi * 2.0**-_ANGLE_BITS, out=angle.numpy())
        torch.cos(angle, out=both[0])
        torch.sin(angle, out=both[1])
        yield both.mul_(radius).reshape(-1)[: count - first]
