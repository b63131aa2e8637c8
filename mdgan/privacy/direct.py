"""What a host can test itself: what it releases less the sum that it knows, and what samples add.

Guesses of canaries bound ε whatever a mechanism does, but they need much to go wrong. These figures
are of one thing each, and of all numbers that a worker releases: is their noise as large as is
stated, on each number, in each step, with Gaussian values, new each time? Is it all that comes on
top of the sum? `mdgan.audit.direct` says how likely they are.
"""

from math import inf, isfinite, sqrt
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from mdgan.privacy.noise import SENSITIVITY, lattice_step

EDGES = (*(2.0**-12, 2.0**-9, 2.0**-6, 2.0**-4, 0.25, 0.5, 1.0, 1.5, 2.0), 2.5, 3.0, 3.5, 4.0, 5.0)
"""How many values lie within so many deviations is counted."""
_PART = 8
"""Noise is looked at on single numbers, and on so many times as many neighbours, and so on."""
_TRACED_STEPS, TRACED = 8, 64
"""How many values of how many steps are kept, by which workers' noise is compared."""
_COMPARED_EVERY = 8  # steps between two looks whether a step's noise repeats itself
_FLOAT32 = 2.0**-22

_Figure = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Of all pieces of `numbers` neighbours the one with the least noise: Σ r² over all steps."""

    numbers: _Count
    pieces: _Count
    squares: _Figure


class Seen(msgspec.Struct, kw_only=True):
    """What one process saw of a worker's noise r, in units of its deviation; secret."""

    noise: _Figure  # σ, and `rate` q, as they are stated
    rate: _Figure
    steps: _Count = 0
    numbers: _Count = 0  # d, that a step releases
    squares: _Figure = 0.0  # Σ r² of all steps; `least_step`: of the step with the least, by d
    least_step: _Figure = 0.0
    parts: list[Part] = []
    together: _Figure = 0.0  # ‖Σ_t r_t‖² / steps
    alike: _Figure = 0.0  # Σ_t (r_t · r_{t−1} / ‖r_{t−1}‖)²
    # The largest product of a step's r with r moved, or turned around, in deviations; of `compared`
    # steps.
    within: _Figure = 0.0
    compared: _Count = 0
    # Σ_t r_t · s_t / ‖s_t‖, with the sums s that are known; of `followed` steps.
    follows: _Figure = 0.0
    along: _Figure = 0.0  # Σ_t (r_t · s_t / ‖s_t‖)²
    followed: _Count = 0
    # How many values lie within `EDGES`; `blur` is how far rounding may move one.
    inside: list[_Count] = []
    blur: _Figure = 0.0
    lost: _Count = 0  # how many steps released what is not finite
    drawn: _Count = 0  # samples in batches, of so many that were `offered`
    offered: _Count = 0
    longest: _Figure = 0.0  # the norm of what a sample adds alone, in C
    # The same by the bound, where the bound is so small that it cuts all samples.
    cut: _Figure = 0.0
    summed: _Figure = 0.0  # the norm of a sum by that of as many samples as it has, each of norm C
    trace: list[_Figure] = []  # some values, in order

    @property
    def share(self) -> float:
        """How large the noise is, by what is stated."""
        return SENSITIVITY * sqrt(self.squares / (self.steps * self.numbers))


class DirectTests:
    """Adds up what is seen from step to step."""

    def __init__(self, rate: float, clip: float, noise: float) -> None:
        self._clip = clip
        self._found = Seen(noise=noise, rate=rate, least_step=inf)
        self._edges = torch.tensor(EDGES, dtype=torch.float64)
        self._inside = torch.zeros(len(EDGES) + 1, dtype=torch.int64)
        self._sums = self._squares = self._last = torch.zeros(0, dtype=torch.float64)

    def add(self, rest: Tensor, known: Tensor, drawn: tuple[int, int] | None) -> None:
        """A step has been taken.

        Args:
            rest: what was released less all that was added up, float64 [d].
            known: the sum of samples, float64 [d].
            drawn: how many samples it is of, and of how many they were drawn.
        """
        found = self._found
        noise = rest / (found.noise * self._clip * SENSITIVITY)
        square = float(noise.square().sum())
        if not len(noise):
            return
        if not isfinite(square):
            found.lost += 1
            return
        if len(self._sums) != len(noise):
            self._sums, self._squares = torch.zeros(2, len(noise), dtype=torch.float64)
        elif length := float(self._last.norm()):
            found.alike += (float(noise @ self._last) / length) ** 2
        if length := float(known.norm()):
            product = float(noise @ known) / length
            found.follows += product
            found.along += product**2
            found.followed += 1
        if found.steps % _COMPARED_EVERY == 0:
            found.within = max(found.within, _likeness(noise))
            found.compared += 1
        rounded = lattice_step(self._clip, len(noise))
        rounded += _FLOAT32 * float((rest + known).abs().max())
        found.blur = max(found.blur, rounded / (found.noise * self._clip))
        self._inside += torch.bucketize(noise.abs(), self._edges).bincount(
            minlength=len(self._inside)
        )
        self._sums += noise
        self._squares += noise.square()
        found.squares += square
        found.least_step = min(found.least_step, square / len(noise))
        if found.steps < _TRACED_STEPS:
            found.trace += noise[:TRACED].tolist()
        self._last = noise
        found.steps += 1
        if drawn is not None:
            number, of_all = drawn
            found.drawn += number
            found.offered += of_all
            bound = max(number * self._clip, _FLOAT32 * self._clip)
            self.measured(summed=float(known.norm()) / bound)

    def measured(self, **lengths: float) -> None:
        """What samples add, by name of the attribute of `Seen`; the longest counts."""
        for name, length in lengths.items():
            setattr(self._found, name, max(getattr(self._found, name), min(length, 1e30)))

    @property
    def seen(self) -> Seen:
        """All that was seen."""
        found = self._found
        if not found.steps:
            return Seen(noise=found.noise, rate=found.rate, lost=found.lost)
        return msgspec.structs.replace(
            found,
            numbers=len(self._sums),
            parts=self._parts(),
            together=float(self._sums.square().sum()) / found.steps,
            inside=self._inside.cumsum(0)[:-1].tolist(),
        )

    def _parts(self) -> list[Part]:
        size, found = 1, list[Part]()
        while size < len(self._squares):
            pieces = len(self._squares) // size
            sums = self._squares[: pieces * size].view(pieces, size).sum(1)
            found.append(Part(size, pieces, float(sums.min())))
            size *= _PART
        return found


def _likeness(noise: Tensor) -> float:
    """The largest product of r with itself, moved or turned around, in deviations at most."""
    spectrum = torch.fft.rfft(noise)
    moved = torch.fft.irfft(spectrum * spectrum.conj(), len(noise))[1:]
    turned = torch.fft.irfft(spectrum * spectrum, len(noise))
    largest = max(float(moved.abs().max()), float(turned.abs().max())) if len(moved) else 0.0
    return largest / sqrt(2 * len(noise))  # of products that are each there twice
