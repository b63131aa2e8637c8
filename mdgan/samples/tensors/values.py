"""Repairs voxels that show no tissue: NaN, the padding of scanners, gaps between slices."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

Voxels = NDArray[np.float32]
NAN = "NaN or infinite voxels became the least value"
PADDING = "voxels of padding became the least true value"
FILLED = "slices were interpolated, as some are missing or lie unevenly"
_BELOW_TISSUE = -1100
"""Air has −1000 Hounsfield units, and scanners that clip do so at −1024."""
_FAR, _NEAR = 0.2, 0.01
"""Parts of the range of the other values: padding lies at least the first below them; below the
second it does no harm."""
_OFF_GRID, _WIDEST_GAP = 0.05, 4.0
"""In units of the usual distance of slices: the tolerated error, and the widest gap to fill."""


def clean(voxels: Voxels, padding: NDArray[np.bool_] | None, notes: Counter[str]) -> None:
    """Sets voxels that are NaN, infinite or padding to the least of the other values, in place.

    Padding is what the file names, unless it lies close below the other values as a background
    does; and any single value far below the others that no tissue has.

    Args:
        padding: the voxels that the file names as padding, of the same shape; None without any.
        notes: counts the changed voxels.

    Raises:
        ValueError: all voxels are NaN or padding.
    """
    true = np.isfinite(voxels)
    if not true.any():
        raise ValueError("holds nothing but NaN")
    num_finite = int(np.count_nonzero(true))
    notes[NAN] += voxels.size - num_finite
    if padding is not None and (padding & true).any():
        others = true & ~padding
        if not others.any():
            raise ValueError("holds nothing but padding")
        (low, high), (lowest, highest) = _ends(voxels, others), _ends(voxels, padding & true)
        if lowest < low - _NEAR * (high - low) or highest > low:
            true = others
    low, high = _ends(voxels, true)
    while low < _BELOW_TISSUE and low < high:
        above = true & (voxels > low)
        second, _ = _ends(voxels, above)
        if not (second < high and second - low > _FAR * (high - second)):
            break
        true, low = above, second
    notes[PADDING] += num_finite - int(np.count_nonzero(true))
    voxels[~true] = low


def _ends(voxels: Voxels, chosen: NDArray[np.bool_]) -> tuple[float, float]:
    low = voxels.min(where=chosen, initial=np.inf)
    return float(low), float(voxels.max(where=chosen, initial=-np.inf))


def evenly_placed(
    voxels: Voxels, places: NDArray[np.float64], notes: Counter[str]
) -> tuple[Voxels, NDArray[np.float64]]:
    """Interpolates slices [D, H, W] at strictly increasing places to equal distances.

    Returns:
        The same slices and places if they are equidistant; else interpolated ones, fewer than
        three times as many.

    Raises:
        ValueError: a gap is too wide to be interpolated.
    """
    apart = np.diff(places)
    even = np.linspace(places[0], places[-1], len(places))
    if len(places) < 3 or np.abs(places - even).max() <= _OFF_GRID * float(np.median(apart)):
        return voxels, places
    usual = float(np.sort(apart)[(len(apart) - 1) // 2])
    if apart.max() > _WIDEST_GAP * usual:
        where = int(apart.argmax())
        raise ValueError(
            f"slices are missing: {apart[where]:g} lie between {where + 1} and {where + 2} of "
            f"{len(places)}, {usual:g} elsewhere"
        )
    grid = np.linspace(places[0], places[-1], round((places[-1] - places[0]) / usual) + 1)
    notes[FILLED] += max(len(grid) - len(places), 1)
    after = np.searchsorted(places, grid[1:-1], side="right")
    share = ((grid[1:-1] - places[after - 1]) / (places[after] - places[after - 1])).astype("f4")
    filled = np.empty((len(grid), *voxels.shape[1:]), np.float32)
    filled[0], filled[-1] = voxels[0], voxels[-1]
    for plane, upper, weight in zip(filled[1:-1], after, share, strict=True):
        plane[:] = voxels[upper - 1] * (1 - weight) + voxels[upper] * weight
    return filled, grid
