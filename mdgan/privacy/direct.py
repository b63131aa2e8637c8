"""Measures a worker's own noise (what it releases, less the true sum) and sums of its samples.

Guesses of canaries bound ε for any mechanism, but notice only large errors. Each figure here tests
one thing, over all numbers that a worker releases: is the noise as large as stated, on each number,
in each step, Gaussian, and new each time? Is nothing else added to the sum? `mdgan.audit.direct`
says how likely such figures are for an honest worker.
"""

from math import inf, isfinite, sqrt
from typing import Annotated, NamedTuple

import msgspec
import torch
from torch import Tensor

from mdgan.privacy.noise import SENSITIVITY, lattice_step

EDGES = (*(2.0**-12, 2.0**-9, 2.0**-6, 2.0**-4, 0.25, 0.5, 1.0, 1.5, 2.0), 2.5, 3.0, 3.5, 4.0, 5.0)
"""Numbers of deviations; the values within each are counted."""
_PART = 8
"""Noise is measured on single numbers, on pieces of 8 neighbours, of 64, and so on."""
_TRACED_STEPS, TRACED = 8, 64
"""From this many steps this many values are kept, to compare the noise of workers."""
_COMPARED_EVERY = 8  # steps between two tests whether a step's noise repeats itself
_FLOAT32 = 2.0**-22

_Figure = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The least noise (Σ r² over all steps) of all pieces of `numbers` neighbouring numbers."""

    numbers: _Count
    pieces: _Count
    squares: _Figure


class Seen(msgspec.Struct, kw_only=True):
    """One process's secret measurements of a worker's noise r, in units of its deviation."""

    noise: _Figure  # σ, as stated
    rate: _Figure  # q, as stated
    steps: _Count = 0
    numbers: _Count = 0  # d, how many numbers a step releases
    squares: _Figure = 0.0  # Σ r² of all steps
    least_step: _Figure = 0.0  # Σ r² / d of the step where it is least
    parts: list[Part] = []
    together: _Figure = 0.0  # ‖Σ_t r_t‖² / steps
    alike: _Figure = 0.0  # Σ_t (r_t · r_{t−1} / ‖r_{t−1}‖)²
    # The largest product of a step's r with a shifted or reversed r, in deviations.
    within: _Figure = 0.0
    compared: _Count = 0  # steps that `within` is of
    # Σ_t r_t · s_t / ‖s_t‖, with the true sums s.
    follows: _Figure = 0.0
    along: _Figure = 0.0  # Σ_t (r_t · s_t / ‖s_t‖)²
    followed: _Count = 0  # steps that both are of
    inside: list[_Count] = []  # how many values lie within each of `EDGES`
    blur: _Figure = 0.0  # how far rounding may move a value
    lost: _Count = 0  # steps that released a number that is not finite
    drawn: _Count = 0  # samples in all batches, as steps drew them at first
    offered: _Count = 0  # samples that they were drawn from
    longest: _Figure = 0.0  # the largest norm that a sample adds alone, in C
    cut: _Figure = 0.0  # the same, in units of a bound that is so small that it cuts every sample
    summed: _Figure = 0.0  # the largest norm of a sum, divided by C times its number of samples
    trace: list[_Figure] = []  # some values, in order

    @property
    def share(self) -> float:
        """The measured size of the noise as a part of the stated one."""
        return SENSITIVITY * sqrt(self.squares / (self.steps * self.numbers))


class Draw(NamedTuple):
    """How many samples a step has drawn for its batch."""

    used: int  # those in its sum
    first: int  # those of its first draw, after which it draws again if they were too many
    offered: int  # those that it drew from


class DirectTests:
    """Adds up the measurements of all steps."""

    def __init__(self, rate: float, clip: float, noise: float) -> None:
        self._clip = clip
        self._found = Seen(noise=noise, rate=rate, least_step=inf)
        self._edges = torch.tensor(EDGES, dtype=torch.float64)
        self._inside = torch.zeros(len(EDGES) + 1, dtype=torch.int64)
        self._sums = self._squares = self._last = torch.zeros(0, dtype=torch.float64)

    def add(self, rest: Tensor, known: Tensor, draw: Draw | None) -> None:
        """Measures a step.

        Args:
            rest: the noise: the released numbers less the true sum and canaries, float64 [d].
            known: the sum of samples, float64 [d].
            draw: the samples of the sum, if they were drawn.
        """
        seen = self._found
        noise = rest / (seen.noise * self._clip * SENSITIVITY)
        square = float(noise.square().sum())
        if not len(noise):
            return
        if not isfinite(square):
            seen.lost += 1
            return
        if len(self._sums) != len(noise):
            self._sums, self._squares = torch.zeros(2, len(noise), dtype=torch.float64)
        elif length := float(self._last.norm()):
            seen.alike += (float(noise @ self._last) / length) ** 2
        if length := float(known.norm()):
            product = float(noise @ known) / length
            seen.follows += product
            seen.along += product**2
            seen.followed += 1
        if seen.steps % _COMPARED_EVERY == 0:
            seen.within = max(seen.within, _likeness(noise))
            seen.compared += 1
        rounded = lattice_step(self._clip, len(noise))
        rounded += _FLOAT32 * float((rest + known).abs().max())
        seen.blur = max(seen.blur, rounded / (seen.noise * self._clip))
        self._inside += torch.bucketize(noise.abs(), self._edges).bincount(
            minlength=len(self._inside)
        )
        self._sums += noise
        self._squares += noise.square()
        seen.squares += square
        seen.least_step = min(seen.least_step, square / len(noise))
        if seen.steps < _TRACED_STEPS:
            seen.trace += noise[:TRACED].tolist()
        self._last = noise
        seen.steps += 1
        if draw is not None:
            seen.drawn += draw.first
            seen.offered += draw.offered
            self.measured(summed=float(known.norm()) / (self._clip * max(draw.used, _FLOAT32)))

    def measured(self, **lengths: float) -> None:
        """Keeps the largest of each of these attributes of `Seen`."""
        for name, length in lengths.items():
            setattr(self._found, name, max(getattr(self._found, name), min(length, 1e30)))

    @property
    def seen(self) -> Seen:
        """All measurements up to now."""
        seen = self._found
        if not seen.steps:
            return Seen(noise=seen.noise, rate=seen.rate, lost=seen.lost)
        return msgspec.structs.replace(
            seen,
            numbers=len(self._sums),
            parts=self._parts(),
            together=float(self._sums.square().sum()) / seen.steps,
            inside=self._inside.cumsum(0)[:-1].tolist(),
        )

    def _parts(self) -> list[Part]:
        size, parts = 1, list[Part]()
        while size < len(self._squares):
            pieces = len(self._squares) // size
            sums = self._squares[: pieces * size].view(pieces, size).sum(1)
            parts.append(Part(size, pieces, float(sums.min())))
            size *= _PART
        return parts


def _likeness(noise: Tensor) -> float:
    """The largest product of r with r shifted or reversed, at most, in deviations."""
    spectrum = torch.fft.rfft(noise)
    moved = torch.fft.irfft(spectrum * spectrum.conj(), len(noise))[1:]
    turned = torch.fft.irfft(spectrum * spectrum, len(noise))
    largest = max(float(moved.abs().max()), float(turned.abs().max())) if len(moved) else 0.0
    return largest / sqrt(2 * len(noise))  # each sum has its products twice
