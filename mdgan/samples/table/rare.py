"""Values that few rows have: how often generated rows should have them, and how often they do.

A batch hardly ever holds such a value, so no discriminator misses it, and the generator forgets it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.schema import AnyColumn, ScaledColumn
from mdgan.samples.table.spread import Codes, Floats, Spread, options_of, rounded_counts

if TYPE_CHECKING:
    from mdgan.samples.table.kind import TableKind

Part = tuple[AnyColumn, Spread, Floats]  # a column, its distribution, its values in generated rows

_RARE_BELOW = 0.01  # a share of all rows
_MOST_LISTED = 100


def rare_shares(kind: "TableKind") -> tuple[Tensor, list[int]]:
    """The arguments of `TableGenerator.meet`: how many of all sites' rows have rare values.

    Counts are rounded like those of a released model. So the generator reveals no more than these,
    and a user who has only the released model gets the same generator.
    """
    shares = torch.zeros(kind.layout.width, dtype=torch.float64)
    for place, spread in zip(kind.layout.places, kind.encoding.spreads, strict=True):
        if place.choice:
            entries = slice(place.choice.start, place.choice.stop)
            shares[entries] = torch.from_numpy(_rare_shares(rounded_counts(spread.options)))
    classes = kind.class_counts
    if classes is None:
        return shares, []
    return shares, rounded_counts(classes.double().numpy()).astype(int).tolist()


def _rare_shares(counts: Floats) -> Floats:
    """The share of rows that each option has; 0 for one that is not rare."""
    shares = counts / max(float(counts.sum()), 1.0)
    return np.where(shares < _RARE_BELOW, shares, 0.0)


def rare_value_rows(kind: "TableKind", made: Rows, parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Lists up to 100 rare values with expected and generated rows; those that lack most first."""
    lines: list[tuple[float, dict[str, Any]]] = []

    def compare(column: str, names: Sequence[str], counts: Floats, options: Codes) -> None:
        shares = _rare_shares(counts)
        numbers = np.bincount(options, minlength=len(shares))
        for option in np.flatnonzero(shares).tolist():
            expected, number = float(shares[option]) * len(made), int(numbers[option])
            rows = {"expected": round(expected, 1), "generated": number}
            deviation = (number - expected) / expected**0.5  # in standard deviations
            lines.append((deviation, {"column": column, "value": names[option], **rows}))

    for column, spread, values in parts:
        if len(spread.options):
            compare(column.name, _names(column), spread.options, options_of(column, values))
    if kind.target is not None and kind.class_counts is not None:
        counts, labels = kind.class_counts.double().numpy(), kind.labels_of(made).numpy()
        compare(kind.schema.names[kind.target], kind.class_names, counts, labels)
    return [line for _, line in sorted(lines, key=lambda each: each[0])[:_MOST_LISTED]]


def _names(column: AnyColumn) -> tuple[str, ...]:
    """Names the options of a column's choice, as the report shows them."""
    if isinstance(column, ScaledColumn):
        names = ["another value", *texts_of(column, np.array(column.exact_values))]
    else:
        names = [*column.choices]
    return (*names, "missing")
