"""How often discriminators are swapped where the user does not say; quickly, without torch."""

from collections.abc import Sequence

_UNEVEN = 0.5
_WEIGHTS_AN_ITERATION = 1 << 16
"""With Adam's two moments, 0.75 MiB of each worker in an iteration."""


def are_uneven(class_counts: Sequence[Sequence[int]]) -> bool:
    """Whether workers hold such different classes that a discriminator should not stay for long.

    One that stays calls only the classes of its worker real, and the generator unlearns the others.
    True if more than half of a worker's samples, on average, would need another class for its
    shares of classes to be those of all workers together (the total variation distance).
    """
    held = [counts for counts in class_counts if sum(counts)]
    num_classes = max(map(len, held), default=0)
    padded = [[*counts, *[0] * (num_classes - len(counts))] for counts in held]
    of_all = _shares([sum(of_class) for of_class in zip(*padded, strict=True)])
    distances = [
        sum(abs(own - all_) for own, all_ in zip(_shares(counts), of_all, strict=True)) / 2
        for counts in padded
    ]
    return bool(held) and sum(distances) / len(held) > _UNEVEN


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [count / total for count in counts]


def interval_for(num_weights: int) -> int:
    """The iterations between two swaps that links can bear: one for each 65,536 of |θ| begun."""
    return max(1, -(-num_weights // _WEIGHTS_AN_ITERATION))
