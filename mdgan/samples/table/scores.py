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
from mdgan.samples.table.rare import told_of_rare
from mdgan.samples.table.rows import Rows, texts_of
from mdgan.samples.table.rules import Rules
from mdgan.samples.table.schema import AnyColumn, Scaled, ScaledColumn
from mdgan.samples.table.spread import Spread, options_of

if TYPE_CHECKING:
    from mdgan.samples.table.kind import TableKind

Floats = NDArray[np.float64]

_MOST_COLUMNS = 60  # pairs of more columns than these are not compared
_MOST_HELD_OUT = 20_000
_NUM_BINS = 10  # of a column of numbers beside one of categories, as in SDMetrics
_LEAST_ROWS = 20
_AT_ONCE = 1_000
_NO_HELD_OUT = "no held-out rows that the server may hold; name a file with --held-out"
_NO_TARGET = "no --target, which a classifier could learn"
_MOST_STEPS = 1_000  # of a logistic regression
_NUM_BARS = 24


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
                "valid_rows": float(made.fits().mean()),
                **({"kept_rules": min(r["made"] for r in kept) / len(made)} if kept else {}),
                **{name: found for name, found in compared.items() if not isinstance(found, str)},
            },
            left_out={name: why for name, why in compared.items() if isinstance(why, str)},
            real=dict(self._real),
            num_held_out=0 if held_out is None else len(held_out),
            rare=told_of_rare(kind, made, parts),
            figures=figures | ({"rules": kept} if kept else {}),
        )

    def _compared(self, made: Rows, labels: Tensor | None) -> Iterator[tuple[str, float | str]]:
        """The scores that need single real rows, by name; of each that is left out the reason."""
        if self._held_out is None:
            for name in ("pair_trends", *_CLASSIFIERS, "closest_record"):
                yield name, _NO_HELD_OUT
            return
        samples, (kept, rows, classes) = self._kind.encode(made), self._held_out
        yield "closest_record", _to_closest(samples, kept)
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
            found = None if labels is None else area(samples, labels, kept, classes)
            lacks = "a class lacks in the synthetic rows, or in the held-out ones"
            yield name, lacks if found is None else found


def _kept_rules(made: Rows, real: Rows | None) -> list[dict[str, Any]]:
    """How many rows keep each rule of their schema.

    Real rows are those that come back from samples: files with others are refused when read.
    """
    kept: list[dict[str, Any]] = []
    rules = Rules(made.schema)
    for rule, broken in rules.broken(made.values):
        kept.append({"rule": rule.text, "made": int((~broken).sum()), "real": None})
    for found, (_, broken) in zip(kept, rules.broken(real.values) if real else (), strict=False):
        found["real"] = int((~broken).sum())
    return kept


def _to_closest(samples: Tensor, others: Tensor) -> float:
    """The median Euclidean distance to the closest of others."""
    pieces = torch.split(samples, _AT_ONCE)
    closest = [torch.cdist(some, others).amin(1) for some in pieces]
    return float(torch.cat(closest).median())


# Single columns.


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


def _distribution(column: Scaled, spread: Spread) -> tuple[Floats, Floats]:
    """Values, and which share of all real ones is at most so large."""
    assert spread.cells is not None
    common = np.array(column.exact)
    values = np.concatenate([spread.cells.last_values(), common])
    weights = np.concatenate([spread.histogram, spread.options[1 : 1 + len(common)]])
    order = np.argsort(values, kind="stable")
    values, summed = values[order], np.cumsum(weights[order])
    if summed[-1] <= 0:
        return np.empty(0), np.empty(0)
    is_last = np.append(values[1:] != values[:-1], True)
    return values[is_last], summed[is_last] / summed[-1]


def _shares(counts: NDArray[np.generic]) -> Floats:
    found: Floats = np.maximum(counts.astype(np.float64), 0.0)
    shares: Floats = found / max(found.sum(), 1e-12)
    return shares


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


# Classifiers.


def area_of_lr(samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor) -> float | None:
    """The area under the ROC curve of a logistic regression, on real rows.

    Args:
        samples: to learn from, float32 [n, width]; labels: their classes, int64 [n].
        real: to tell apart, [m, width]; classes: theirs.

    Returns:
        In [0, 1]; of more than two classes the mean over each against all others. None if a class
        of the real rows is not learnt, or they have one class alone.
    """
    from sklearn.linear_model import LogisticRegression

    return _area(LogisticRegression(max_iter=_MOST_STEPS), samples, labels, real, classes)


def area_of_gb(samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor) -> float | None:
    """The same of gradient boosting over histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _area(HistGradientBoostingClassifier(random_state=0), samples, labels, real, classes)


def _area(
    classifier: Any, samples: Tensor, labels: Tensor, real: Tensor, classes: Tensor
) -> float | None:
    from sklearn.metrics import roc_auc_score

    learnt, asked = np.unique(labels.numpy()), np.unique(classes.numpy())
    if len(asked) < 2 or not set(asked) <= set(learnt):
        return None
    classifier.fit(samples.numpy(), labels.numpy())
    shares = classifier.predict_proba(real.numpy())
    judged = asked[1:] if len(asked) == len(learnt) == 2 else asked
    areas = [
        roc_auc_score(classes.numpy() == c, shares[:, int(np.searchsorted(learnt, c))])
        for c in judged
    ]
    return float(np.mean(areas))


_CLASSIFIERS = {"tstr_lr": area_of_lr, "tstr_gb": area_of_gb}


# For the report.


def shown_shape(column: AnyColumn, spread: Spread, made: Floats) -> dict[str, Any]:
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
    bars = {"real": real_bars, "made": made_bars}
    return {"name": column.name, "kind": column.kind, "ticks": ticks, **bars}


def _figures(columns: list[dict[str, Any]], made: Rows, real: Rows | None) -> dict[str, Any]:
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
