"""What synthetic rows are worth, in the scores that people who share tables read.

Column shapes and pair trends are those of SDMetrics (DataCebo 2023, "Quality Report"). How well a
classifier does on real rows that was trained on synthetic ones is TSTR (Esteban et al. 2017, "Real-
valued (Medical) Time Series Generation with Recurrent Conditional GANs", section 4.1).
"""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.samples.contract import HeldOut, Verdict
from mdgan.samples.table.classifiers import area_of_gb, area_of_lr
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import AnyColumn, ScaledColumn
from mdgan.samples.table.shapes import Shown, shape_of, shown_shape

if TYPE_CHECKING:
    from mdgan.samples.table.kind import TableKind

Floats = NDArray[np.float64]

_MOST_COLUMNS = 60
"""Pairs of more columns than these are not compared."""
_MOST_HELD_OUT = 20_000
_NUM_BINS = 10
"""Of a column of numbers beside one of categories, as in SDMetrics."""
_LEAST_ROWS = 20
_AT_ONCE = 1_000
_NO_HELD_OUT = "no held-out rows that the server may hold; name a file with --held-out"
_NO_TARGET = "no --target, which a classifier could learn"
_CLASSIFIERS = {"tstr_lr": area_of_lr, "tstr_gb": area_of_gb}


class RowsJudge:
    """Compares synthetic rows with the counts of all sites, and with held-out rows.

    Args:
        kind: it must have learnt.
        held_out: samples and labels of rows that no site trains on; None if the server has none.
    """

    def __init__(self, kind: "TableKind", held_out: HeldOut | None) -> None:
        self._kind = kind
        self._held_out: tuple[Tensor, Rows, Tensor] | None = None
        self._real: dict[str, float] = {}
        if held_out is None or len(held_out[0]) < _LEAST_ROWS:
            return
        samples, labels = held_out
        places = torch.linspace(0, len(samples) - 1, min(len(samples), _MOST_HELD_OUT)).long()
        samples, labels = samples[places], labels[places]
        self._held_out = samples, kind.decode(samples, labels), labels
        first, second = slice(0, None, 2), slice(1, None, 2)
        self._real["closest_record"] = _to_closest(samples[first], samples[second])
        for name, area in _CLASSIFIERS.items() if kind.target is not None else ():
            halves = [
                area(samples[a], labels[a], samples[b], labels[b])
                for a, b in ((first, second), (second, first))
            ]
            known = [value for value in halves if value is not None]
            if known:
                self._real[name] = sum(known) / len(known)

    def __call__(self, samples: Tensor, labels: Tensor | None) -> Verdict:
        """Judges samples, [n, width], and their classes, int64 [n]."""
        kind = self._kind
        made = kind.decode(samples, labels)
        parts = [
            (place.column, spread, made.values[:, place.index])
            for place, spread in zip(kind.layout.places, kind.encoding.spreads, strict=True)
        ]
        shapes = [shape_of(*part) for part in parts]
        scores = {
            "column_shapes": sum(shapes) / len(shapes),
            "valid_rows": float(made.fits().mean()),
        }
        left_out: dict[str, str] = {}
        if self._held_out is None:
            names = ("pair_trends", *_CLASSIFIERS, "closest_record")
            left_out |= dict.fromkeys(names, _NO_HELD_OUT)
        else:
            self._compare(kind.encode(made), made, labels, scores, left_out)
        return Verdict(
            scores=scores,
            left_out=left_out,
            real=dict(self._real),
            num_held_out=0 if self._held_out is None else len(self._held_out[0]),
            figures=_figures(
                [shown_shape(*part) for part in parts],
                made,
                None if self._held_out is None else self._held_out[1],
            ),
        )

    def _compare(
        self,
        samples: Tensor,
        made: Rows,
        labels: Tensor | None,
        scores: dict[str, float],
        left_out: dict[str, str],
    ) -> None:
        """Adds the scores that need single real rows."""
        assert self._held_out is not None
        kept, rows, classes = self._held_out
        scores["closest_record"] = _to_closest(samples, kept)
        if len(rows.schema.columns) > _MOST_COLUMNS:
            left_out["pair_trends"] = f"pairs of more than {_MOST_COLUMNS} columns"
        elif trends := [*_trends(rows, made)]:
            scores["pair_trends"] = sum(trends) / len(trends)
        else:
            left_out["pair_trends"] = "no two columns whose values vary"
        for name, area in _CLASSIFIERS.items():
            if self._kind.target is None:
                left_out[name] = _NO_TARGET
                continue
            found = None if labels is None else area(samples, labels, kept, classes)
            if found is None:
                left_out[name] = "a class lacks in the synthetic rows, or in the held-out ones"
            else:
                scores[name] = found


def _to_closest(samples: Tensor, others: Tensor) -> float:
    """The median Euclidean distance to the closest of others."""
    pieces = torch.split(samples, _AT_ONCE)
    closest = [torch.cdist(some, others).amin(1) for some in pieces]
    return float(torch.cat(closest).median())


# Pairs of columns.


def _trends(real: Rows, made: Rows) -> Iterator[float]:
    """How alike each pair of columns goes together, from 0 to 1."""
    columns = real.schema.columns
    of_real = [_codes(c, real.values[:, i], real.values[:, i]) for i, c in enumerate(columns)]
    of_made = [_codes(c, real.values[:, i], made.values[:, i]) for i, c in enumerate(columns)]
    for a, b in combinations(range(len(columns)), 2):
        if isinstance(columns[a], ScaledColumn) and isinstance(columns[b], ScaledColumn):
            there = _correlation(real.values[:, a], real.values[:, b])
            here = _correlation(made.values[:, a], made.values[:, b])
            if there is not None:
                yield 1 - abs(there - (here or 0.0)) / 2
        else:
            there_too = _joint(of_real[a], of_real[b])
            here_too = _joint(of_made[a], of_made[b])
            values = there_too.keys() | here_too.keys()
            differ = (abs(there_too.get(v, 0.0) - here_too.get(v, 0.0)) for v in values)
            yield 1 - sum(differ) / 2


def _codes(column: AnyColumn, real: Floats, values: Floats) -> NDArray[np.int64]:
    """A code for each value; −1 for one that is missing. Numbers fall into ten equal bins."""
    missing = np.isnan(values)
    known = np.where(missing, 0.0, values)
    if isinstance(column, ScaledColumn):
        there = real[~np.isnan(real)]
        low, high = (there.min(), there.max()) if len(there) else (0.0, 1.0)
        known = np.digitize(known, np.linspace(low, high, _NUM_BINS + 1)[1:-1]).astype(np.float64)
    return np.where(missing, -1, known).astype(np.int64)


def _joint(a: NDArray[np.int64], b: NDArray[np.int64]) -> dict[tuple[int, int], float]:
    pairs, counts = np.unique(np.stack([a, b]), axis=1, return_counts=True)
    shares = (counts / len(a)).tolist()
    return dict(zip(zip(*pairs.tolist(), strict=True), shares, strict=True))


def _correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's, of rows that have both values; None where one does not vary."""
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


# For the report.


def _figures(columns: list[Shown], made: Rows, real: Rows | None) -> dict[str, Any]:
    places = [
        place
        for place, column in enumerate(made.schema.columns)
        if isinstance(column, ScaledColumn) or len(column.choices) == 2
    ][:_MOST_COLUMNS]
    return {
        "columns": columns,
        "correlated": [made.schema.columns[place].name for place in places],
        "made": _matrix(made, places),
        "real": None if real is None else _matrix(real, places),
    }


def _matrix(rows: Rows, places: list[int]) -> list[list[float | None]]:
    found = [[_correlation(rows.values[:, a], rows.values[:, b]) for b in places] for a in places]
    return [[None if value is None else round(value, 3) for value in row] for row in found]
