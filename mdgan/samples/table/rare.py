"""Values that few rows have: how often generated rows shall have them, and how often they do.

A batch hardly ever holds one, so no discriminator misses them, and generators forget them.
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

Part = tuple[AnyColumn, Spread, Floats]  # a column, its counts, its values in generated rows

_BELOW = 0.01  # of all rows
_MOST_TOLD = 100


def wanted(kind: "TableKind") -> tuple[Tensor, list[int]]:
    """What all sites have counted of rare values, as `TableGenerator.meet` takes it.

    Counts are rounded as those that strangers may know, so that a generator tells no more of them,
    and so that strangers, who have no others, make the same generator.
    """
    shares = torch.zeros(kind.layout.width, dtype=torch.float64)
    for place, spread in zip(kind.layout.places, kind.encoding.spreads, strict=True):
        if place.choice:
            entries = slice(place.choice.start, place.choice.stop)
            shares[entries] = torch.from_numpy(_rare_shares(rounded_counts(spread.options)))
    classes = kind.class_counts
    held = [] if classes is None else rounded_counts(classes.double().numpy()).astype(int).tolist()
    return shares, held


def _rare_shares(counts: Floats) -> Floats:
    """The share of each option that is rare, else 0."""
    shares = counts / max(float(counts.sum()), 1.0)
    return np.where(shares < _BELOW, shares, 0.0)


def told_of_rare(kind: "TableKind", made: Rows, parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Expected and generated rows of rare values, those that lack most first, at most 100."""
    found: list[tuple[float, dict[str, Any]]] = []

    def tell(column: str, names: Sequence[str], counts: Floats, options: Codes) -> None:
        shares = _rare_shares(counts)
        numbers = np.bincount(options, minlength=len(shares))
        for option in np.flatnonzero(shares).tolist():
            expected, number = float(shares[option]) * len(made), int(numbers[option])
            said = {"expected": round(expected, 1), "generated": number}
            lacks = (number - expected) / expected**0.5
            found.append((lacks, {"column": column, "value": names[option], **said}))

    for column, spread, values in parts:
        if len(spread.options):
            tell(column.name, _names(column), spread.options, options_of(column, values))
    if kind.target is not None and kind.class_counts is not None:
        counts, labels = kind.class_counts.double().numpy(), kind.labels_of(made).numpy()
        tell(kind.schema.names[kind.target], kind.class_names, counts, labels)
    return [said for _, said in sorted(found, key=lambda each: each[0])[:_MOST_TOLD]]


def _names(column: AnyColumn) -> tuple[str, ...]:
    """What the options of a column's choice are called."""
    if isinstance(column, ScaledColumn):
        names = ["another value", *texts_of(column, np.array(column.exact))]
    else:
        names = [*column.choices]
    return (*names, "missing")
