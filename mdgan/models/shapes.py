"""How a small square grows to a picture, and a picture shrinks to one, by factors of two."""

from typing import NamedTuple

SMALLEST = (4, 7)
"""Sides of the squares that pictures grow from."""


class Growth(NamedTuple):
    """From a small square to a picture, whose sides have `side`·2ᵏ pixels with k doublings."""

    side: int
    doublings: int


def growth_of(shape: tuple[int, int, int]) -> Growth:
    """How pictures of a shape grow."""
    _, height, width = shape
    for side in SMALLEST:
        doublings = (height // side).bit_length() - 1
        if height == width == side << max(1, doublings):
            return Growth(side, doublings)
    raise ValueError(
        f"makes squares with sides of 4·2ᵏ or 7·2ᵏ pixels (8, 14, 16, 28, 32, 56, 64, …), not "
        f"{height}×{width}"
    )
