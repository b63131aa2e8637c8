"""How much of what a processor multiplies are zeros that fill up its tiles.

ParaGAN (sections 3.3 and 4.2): a matrix of shape [100, 100] needs 6,384 zeros to run on a unit of
128 × 128, which wastes 39 % of it. Sizes that processors prefer are the paper's; for CPUs and for
convolutions the rule is ours (docs/decisions.md).
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple


class Multiplication(NamedTuple):
    """A product of a matrix [rows, inner] and a matrix [inner, columns].

    Attributes:
        layer: in which it is computed.
        rows: M; samples, or their pixels.
        columns: N; numbers that the layer makes of each.
        inner: K; numbers that it makes each of.
        times: how often.
    """

    layer: str
    rows: int
    columns: int
    inner: int
    times: int = 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.rows, self.columns, self.inner


class Processor(NamedTuple):
    """What a kind of processor prefers in one type of numbers.

    Attributes:
        name: for people.
        multiples: of which M, N and K should be multiples.
    """

    name: str
    multiples: tuple[int, int, int]


PROCESSORS = (
    # A vector of 512 bits lies along what a layer makes: oneDNN's blocks of 16 channels.
    Processor("CPU with AVX-512", (1, 16, 1)),
    # Shi et al., section 3.3.
    Processor("GPU from A100 on, fp32", (32, 32, 32)),
    Processor("GPU from A100 on, 16 bits", (64, 64, 64)),
    Processor("GPU before, 16 bits", (8, 8, 8)),
    Processor("TPU", (8, 128, 128)),
)


def padded(sizes: Sequence[int], multiples: Sequence[int]) -> tuple[int, ...]:
    """Sizes raised to the next multiples."""
    return tuple(-(-size // of) * of for size, of in zip(sizes, multiples, strict=True))


def num_zeros(sizes: Sequence[int], multiples: Sequence[int]) -> int:
    """How many zeros a tensor of these sizes is filled up with.

    Args:
        sizes: of its dimensions, above 0.
        multiples: of which they should be multiples.
    """
    return prod(padded(sizes, multiples)) - prod(sizes)


def waste(multiplications: Iterable[Multiplication], processor: Processor) -> float:
    """The share of what is multiplied that only fills up tiles, in [0, 1[; 0 of no work."""
    wasted = done = 0
    for one in multiplications:
        wasted += one.times * num_zeros(one.sizes, processor.multiples)
        done += one.times * prod(padded(one.sizes, processor.multiples))
    return wasted / done if done else 0.0


def worst_layer(multiplications: Sequence[Multiplication], processor: Processor) -> str | None:
    """The layer that wastes most, and its sizes; None if none wastes anything."""

    def wasted(one: Multiplication) -> int:
        return one.times * num_zeros(one.sizes, processor.multiples)

    worst = max(multiplications, key=wasted, default=None)
    if worst is None or not wasted(worst):
        return None
    raised = padded(worst.sizes, processor.multiples)
    parts = [
        f"{size:,} → {new:,} {what}"
        for what, size, new in zip(("rows", "outputs", "inputs"), worst.sizes, raised, strict=True)
        if new > size
    ]
    return f"{worst.layer}: {', '.join(parts)}"


def near_multiples(size: int, of: Iterable[int]) -> list[int]:
    """Other sizes between half and twice as large that are multiples of one of some numbers."""
    near = {m * k for m in of for k in (size // m, size // m + 1)}
    return sorted(n for n in near if n != size and size <= 2 * n <= 4 * size)
