"""Scores of synthetic rows, as people who share tables use them.

Column shapes and pair trends are those of SDMetrics (DataCebo 2023, "Quality Report"). TSTR trains
a classifier on synthetic rows and tests it on real ones (Esteban et al. 2017, "Real-valued
(Medical) Time Series Generation with Recurrent Conditional GANs", section 4.1).
"""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.samples.contract import HeldOut, Verdict
from mdgan.samples.table.rare import rare_value_rows
from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import AnyColumn, Scaled, ScaledColumn
from mdgan.samples.table.spread import Spread, options_of

if TYPE_CHECKING:
    from mdgan.samples.table.kind import TableKind

Floats = NDArray[np.float64]

_MOST_COLUMNS = 60  # pairs are compared in tables of at most this many columns
_MOST_HELD_OUT = 20_000
_NUM_BINS = 10  # for a column of numbers, to compare it with one of categories, as in SDMetrics
_LEAST_ROWS = 20
_AT_ONCE = 1_000
_NO_HELD_OUT = "no held-out rows that the server may hold; name a file with --held-out"
_NO_TARGET = "no --target, which a classifier could learn"
_MOST_STEPS = 1_000  # of a logistic regression
_NUM_BARS = 24


class RowsJudge:
    """Scores synthetic rows by the counts of all sites, and by held-out rows.

    Args:
        kind: must have learnt the counts already.
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
        """Scores samples, float32 [n, width], and their classes, int64 [n]."""
        kind = self._kind
        made = kind.decode(samples, labels)
        values = kind.layout.counted(made.values)
        parts = [
            (place.column, spread, values[:, place.index])
            for place, spread in zip(kind.layout.places, kind.encoding.spreads, strict=True)
        ]
        shapes = [shape_of(*part) for part in parts]
        compared = dict(self._compared(made, labels))
        held_out = None if self._held_out is None else self._held_out[1]
        kept = _kept_rules(made, held_out)
        figures = _figures([shown_shape(*part) for part in parts], made, held_out)
        return Verdict(
            scores={
                "column_shapes": sum(shapes) / len(shapes),
                "valid_rows": float(made.are_valid().mean()),
                **({"kept_rules": min(r["made"] for r in kept) / len(made)} if kept else {}),
                **{name: score for name, score in compared.items() if not isinstance(score, str)},
            },
            left_out={name: why for name, why in compared.items() if isinstance(why, str)},
            real=dict(self._real),
            num_held_out=0 if held_out is None else len(held_out),
            rare=rare_value_rows(kind, made, parts),
            figures=figures | ({"rules": kept} if kept else {}),
        )

    def _compared(self, made: Rows, labels: Tensor | None) -> Iterator[tuple[str, float | str]]:
        """Yields each score that needs held-out rows, or the reason why it is left out."""
        if self._held_out is None:
            for name in ("pair_trends", *_CLASSIFIERS, "closest_record"):
                yield name, _NO_HELD_OUT
            return
        samples, (real, rows, classes) = self._kind.encode(made), self._held_out
        yield "closest_record", _to_closest(samples, real)
        if len(rows.schema.columns) > _MOST_COLUMNS:
            yield "pair_trends", f"pairs of more than {_MOST_COLUMNS} columns"
        else:
            trends = [*_trends(rows, made)]
            none = "no two columns whose values vary"
            yield "pair_trends", sum(trends) / len(trends) if trends else none
        for name, area in _CLASSIFIERS.items():
            if self._kind.target is None:
                yield name, _NO_TARGET
                continue
            score = None if labels is None else area(samples, labels, real, classes)
            reason = "a class lacks in the synthetic rows, or in the held-out ones"
            yield name, reason if score is None else score


def _kept_rules(made: Rows, real: Rows | None) -> list[dict[str, Any]]:
    """Counts the rows that keep each rule of their schema.

    The real rows were encoded and decoded; a file with a row that breaks a rule is never read.
    """
    kept: list[dict[str, Any]] = []
    rules = Rules(made.schema)
    for rule, broken in rules.broken(made.values):
        kept.append({"rule": rule.text, "made": int((~broken).sum()), "real": None})
    for line, (_, broken) in zip(kept, rules.broken(real.values) if real else (), strict=False):
        line["real"] = int((~broken).sum())
    return kept


def _to_closest(samples: Tensor, others: Tensor) -> float:
    """The median Euclidean distance of samples to the closest of the others."""
    pieces = torch.split(samples, _AT_ONCE)
    closest = [torch.cdist(some, others).amin(1) for some in pieces]
    return float(torch.cat(closest).median())


# Single columns.


def shape_of(column: AnyColumn, spread: Spread, made: Floats) -> float:
    """How alike a column is in real and synthetic rows, in [0, 1]; 1 is best.

    For numbers 1 minus the largest difference of the distribution functions, over rows that have a
    value (SDMetrics' KSComplement). Counts give the real one only at the edges of cells and at
    common values, so it is compared there. For categories 1 minus half the sum of the differences
    of shares (TVComplement).
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


def _distribution(column: Scaled, spread: Spread) -> tuple[Floats, Floats]:
    """Values, and the share of all real values that are at most as large as each."""
    assert spread.cells is not None
    common = np.array(column.exact_values)
    values = np.concatenate([spread.cells.last_values(), common])
    weights = np.concatenate([spread.histogram, spread.options[1 : 1 + len(common)]])
    order = np.argsort(values, kind="stable")
    values, summed = values[order], np.cumsum(weights[order])
    if summed[-1] <= 0:
        return np.empty(0), np.empty(0)
    is_last = np.append(values[1:] != values[:-1], True)
    return values[is_last], summed[is_last] / summed[-1]


def _shares(counts: NDArray[np.generic]) -> Floats:
    positive = np.maximum(counts.astype(np.float64), 0.0)
    shares: Floats = positive / max(positive.sum(), 1e-12)
    return shares


# Pairs of columns.


def _trends(real: Rows, made: Rows) -> Iterator[float]:
    """Yields for each pair of columns how alike its joint distributions are, from 0 to 1."""
    columns = real.schema.columns
    of_real = [_codes(c, real.values[:, i], real.values[:, i]) for i, c in enumerate(columns)]
    of_made = [_codes(c, real.values[:, i], made.values[:, i]) for i, c in enumerate(columns)]
    for a, b in combinations(range(len(columns)), 2):
        if isinstance(columns[a], ScaledColumn) and isinstance(columns[b], ScaledColumn):
            correlation = _correlation(real.values[:, a], real.values[:, b])
            of_pair = _correlation(made.values[:, a], made.values[:, b])
            if correlation is not None:
                yield 1 - abs(correlation - (of_pair or 0.0)) / 2
        else:
            shares, made_shares = _joint(of_real[a], of_real[b]), _joint(of_made[a], of_made[b])
            pairs = shares.keys() | made_shares.keys()
            differ = (abs(shares.get(v, 0.0) - made_shares.get(v, 0.0)) for v in pairs)
            yield 1 - sum(differ) / 2


def _codes(column: AnyColumn, real: Floats, values: Floats) -> NDArray[np.int64]:
    """A code for each value, −1 for a missing one; numbers by ten equal bins of the real range."""
    missing = np.isnan(values)
    known = np.where(missing, 0.0, values)
    if isinstance(column, ScaledColumn):
        present = real[~np.isnan(real)]
        low, high = (present.min(), present.max()) if len(present) else (0.0, 1.0)
        known = np.digitize(known, np.linspace(low, high, _NUM_BINS + 1)[1:-1]).astype(np.float64)
    return np.where(missing, -1, known).astype(np.int64)


def _joint(a: NDArray[np.int64], b: NDArray[np.int64]) -> dict[tuple[int, int], float]:
    """The share of rows with each pair of codes."""
    pairs, counts = np.unique(np.stack([a, b]), axis=1, return_counts=True)
    shares = (counts / len(a)).tolist()
    return dict(zip(zip(*pairs.tolist(), strict=True), shares, strict=True))


def _correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's correlation over rows that have both values; None if one of them does not vary."""
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


# Classifiers.


def area_of_lr(samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor) -> float | None:
    """Trains a logistic regression on samples, and measures its area under the ROC curve.

    Args:
        samples: samples to train on, float32 [n, width].
        labels: their classes, int64 [n].
        real: samples of real rows to measure it on, float32 [m, width].
        classes: their classes, int64 [m].

    Returns:
        In [0, 1]; with more than two classes, the mean over each class against all others. None if
        the real rows have a class that `labels` lacks, or only one class.
    """
    from sklearn.linear_model import LogisticRegression

    return _area(LogisticRegression(max_iter=_MOST_STEPS), samples, labels, real, classes)


def area_of_gb(samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor) -> float | None:
    """The same with gradient boosting over histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _area(HistGradientBoostingClassifier(random_state=0), samples, labels, real, classes)


def _area(
    classifier: Any, samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor
) -> float | None:
    from sklearn.metrics import roc_auc_score

    trained, tested = np.unique(labels.numpy()), np.unique(classes.numpy())
    if len(tested) < 2 or not set(tested) <= set(trained):
        return None
    classifier.fit(samples.numpy(), labels.numpy())
    shares = classifier.predict_proba(real.numpy())
    scored = tested[1:] if len(tested) == len(trained) == 2 else tested
    areas = [
        roc_auc_score(classes.numpy() == c, shares[:, int(np.searchsorted(trained, c))])
        for c in scored
    ]
    return float(np.mean(areas))


_CLASSIFIERS = {"tstr_lr": area_of_lr, "tstr_gb": area_of_gb}


# For the report.


def shown_shape(column: AnyColumn, spread: Spread, made: Floats) -> dict[str, Any]:
    """What the report draws of a column: the shares of 24 equal bars, or of frequent categories."""
    if isinstance(column, ScaledColumn):
        at, real = _distribution(column, spread)
        low, high = column.bounds
        edges = np.linspace(low, high, _NUM_BARS + 1)
        below = np.concatenate([[0.0], real])[np.searchsorted(at, edges[1:], side="right")]
        present = np.sort(made[~np.isnan(made)])
        made_below = np.searchsorted(present, edges[1:], side="right") / max(1, len(present))
        ticks = texts_of(column, edges)
        shares = np.diff(below, prepend=0.0), np.diff(made_below, prepend=0.0)
    else:
        names = [*column.choices, *(["missing"] if column.may_be_missing else [])]
        options = np.bincount(options_of(column, made), minlength=len(names))
        frequent = np.argsort(-spread.options, kind="stable")[:_NUM_BARS]
        ticks = [names[place] for place in frequent]
        shares = _shares(spread.options)[frequent], _shares(options)[frequent]
    real_bars, made_bars = ([round(float(x), 5) for x in part] for part in shares)
    bars = {"real": real_bars, "made": made_bars}
    return {"name": column.name, "kind": column.kind, "ticks": ticks, **bars}


def _figures(columns: list[dict[str, Any]], made: Rows, real: Rows | None) -> dict[str, Any]:
    """What the report draws of a table: its columns, and correlations of the first 60."""
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
    """The correlation of each pair of columns, rounded; None where a column does not vary."""
    pairs = [[_correlation(rows.values[:, a], rows.values[:, b]) for b in places] for a in places]
    return [[None if value is None else round(value, 3) for value in row] for row in pairs]
