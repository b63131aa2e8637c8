"""How alike a column of synthetic rows spreads to that of all sites, from counts alone."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from mdgan.samples.table.schema import AnyColumn, ScaledColumn, column_kind
from mdgan.samples.table.spread import Spread, options_of
from mdgan.samples.table.writing import texts_of

Floats = NDArray[np.float64]

_NUM_BARS = 24


class Shown(TypedDict):
    """A column as the report draws it.

    Attributes:
        kind: number, category or another, as in the schema.
        ticks: of a column of numbers the edges of bars, else the names of bars.
        real, made: the share of rows in each bar.
    """

    name: str
    kind: str
    ticks: list[str]
    real: list[float]
    made: list[float]


def shape_of(column: AnyColumn, spread: Spread, made: Floats) -> float:
    """1 less the largest difference of distributions; of categories, less half of all differences.

    In SDMetrics KSComplement, over rows that have a value, and TVComplement. The distribution of
    real numbers is known at the edges of cells and at common values, where it is compared.

    Returns:
        In [0, 1]; 1 is best.
    """
    if not isinstance(column, ScaledColumn):
        options = np.bincount(options_of(column, made), minlength=len(spread.options))
        return 1 - float(np.abs(_shares(spread.options) - _shares(options)).sum()) / 2
    values = np.sort(made[~np.isnan(made)])
    at, real = _distribution(column, spread)
    if not len(values) or not len(at):
        return float(len(values) == len(at))
    below = np.searchsorted(values, at, side="right") / len(values)
    return 1 - float(np.abs(real - below).max())


def _distribution(column: ScaledColumn, spread: Spread) -> tuple[Floats, Floats]:
    """Values, and which share of all real ones is at most so large."""
    assert spread.cells is not None
    common = np.array(column.common)
    values = np.concatenate([spread.cells.last_values(), common])
    weights = np.concatenate([spread.histogram, spread.options[1 : 1 + len(common)]])
    order = np.argsort(values, kind="stable")
    values, summed = values[order], np.cumsum(weights[order])
    if summed[-1] <= 0:
        return np.empty(0), np.empty(0)
    is_last = np.append(values[1:] != values[:-1], True)
    return values[is_last], summed[is_last] / summed[-1]


def shown_shape(column: AnyColumn, spread: Spread, made: Floats) -> Shown:
    """A column as the report draws it: bars of about equal width, or the most usual categories."""
    if isinstance(column, ScaledColumn):
        at, real = _distribution(column, spread)
        low, high = column.bounds
        edges = np.linspace(low, high, _NUM_BARS + 1)
        there = np.concatenate([[0.0], real])[np.searchsorted(at, edges[1:], side="right")]
        known = np.sort(made[~np.isnan(made)])
        here = np.searchsorted(known, edges[1:], side="right") / max(1, len(known))
        ticks = texts_of(column, edges)
        shares = np.diff(there, prepend=0.0), np.diff(here, prepend=0.0)
    else:
        names = [*column.choices, *(["missing"] if column.may_be_missing else [])]
        options = np.bincount(options_of(column, made), minlength=len(names))
        usual = np.argsort(-spread.options, kind="stable")[:_NUM_BARS]
        ticks = [names[place] for place in usual]
        shares = _shares(spread.options)[usual], _shares(options)[usual]
    real_bars, made_bars = ([round(float(x), 5) for x in part] for part in shares)
    kind = column_kind(column)
    return {"name": column.name, "kind": kind, "ticks": ticks, "real": real_bars, "made": made_bars}


def _shares(counts: NDArray[np.generic]) -> Floats:
    found: Floats = np.maximum(counts.astype(np.float64), 0.0)
    shares: Floats = found / max(found.sum(), 1e-12)
    return shares
