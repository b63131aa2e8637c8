"""Judges a synthetic table by real rows, from CSV files, with numpy and scikit-learn only."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

Codes = npt.NDArray[np.int64]
NUM_BINS, RARE = 10, 0.01


def scores(train: Path, held_out: Path, synthetic: Path, target: str) -> dict[str, float]:
    """Judges synthetic rows by the real rows that they stand for, and by rows held out.

    For `lr` and `gb` a logistic regression and gradient boosting learn `target`, a column of two
    texts, from synthetic rows. The scores are their areas under the ROC curve on held-out rows, as
    parts of the areas of classifiers that learnt from `train`. `shapes`, `pairs` and `triples` are
    1 − the total variation distance between synthetic and training rows over bins: means over
    columns, over pairs of columns, and over pairs with the target as the third. Training rows
    themselves have 1 in all five.
    """
    real, unseen, made = map(pd.read_csv, (train, held_out, synthetic))
    names = [target, *(str(name) for name in real if name != target)]
    numbers = [name for name in names if pd.api.types.is_numeric_dtype(real[name])]
    for table in (real, unseen, made):
        for name in names:
            if name in numbers:
                table[name] = pd.to_numeric(table[name], errors="coerce").astype(float)
            else:
                table[name] = table[name].astype(object).fillna("missing").astype(str)
    best, areas = (_areas(table[names], unseen[names], target) for table in (real, made))
    bins = [_bins(real[name], made[name], name in numbers) for name in names]
    return {**{name: areas[name] / best[name] for name in best}, **_likeness(bins)}


def _areas(learnt: pd.DataFrame, unseen: pd.DataFrame, target: str) -> dict[str, float]:
    if learnt[target].nunique() < 2:
        return {"lr": 0.5, "gb": 0.5}  # no classifier learns from rows of one class
    inputs = unseen.drop(columns=target)
    numbers = list(inputs.select_dtypes("number"))
    texts = list(inputs.columns.difference(numbers))
    filled = SimpleImputer(add_indicator=True, keep_empty_features=True)
    scaled = make_column_transformer(
        (make_pipeline(filled, StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts),
    )
    ranked = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan), texts),
        ("passthrough", numbers),
    )
    is_text = [*[True] * len(texts), *[False] * len(numbers)]
    boosting = HistGradientBoostingClassifier(random_state=0, categorical_features=is_text)
    logistic = LogisticRegression(max_iter=2000)
    models = {"lr": make_pipeline(scaled, logistic), "gb": make_pipeline(ranked, boosting)}
    positive, areas = unseen[target].max(), {}
    for name, model in models.items():
        model.fit(learnt[inputs.columns], learnt[target] == positive)
        verdicts = model.predict_proba(inputs)[:, 1]
        areas[name] = float(roc_auc_score(unseen[target] == positive, verdicts))
    return areas


def _bins(real: pd.Series, made: pd.Series, is_number: bool) -> list[Codes]:
    """The bin of each real and of each synthetic row: tenths of real numbers, or categories.

    Numbers of up to ten values are categories. Rare categories, and those that no real row has,
    share bin 0.
    """
    if is_number and real.nunique() > NUM_BINS:
        edges = np.unique(np.nanquantile(real, np.arange(1, NUM_BINS) / NUM_BINS))
        both = ((column, np.digitize(column, edges, right=True)) for column in (real, made))
        return [np.where(column.isna(), len(edges) + 1, cells) for column, cells in both]
    real, made = (column.fillna(np.inf) if is_number else column for column in (real, made))
    parts = real.value_counts(normalize=True)
    places = {value: 1 + place for place, value in enumerate(parts.index[parts >= RARE])}
    return [column.map(places).fillna(0).to_numpy(np.int64) for column in (real, made)]


def _likeness(bins: list[list[Codes]]) -> dict[str, float]:
    """`shapes`, `pairs` and `triples`, from bins of real and synthetic rows, the target's first."""
    sizes = [1 + int(max(map(np.max, cells))) for cells in bins]
    starts = np.cumsum([0, *sizes[:-1]])
    shares = []  # of rows, by value of the target and cells of each two columns
    for cells in (np.stack(columns, 1) for columns in zip(*bins, strict=True)):
        is_in = np.zeros((len(cells), sum(sizes)), np.float32)
        is_in[np.arange(len(cells))[:, None], starts + cells] = 1
        by_target = (is_in[cells[:, 0] == value] for value in range(sizes[0]))
        shares.append(np.stack([part.T @ part for part in by_target]).astype(float) / len(cells))
    apart = shares[0] - shares[1]
    pairs, triples = (
        np.add.reduceat(np.add.reduceat(distances, starts, 0), starts, 1) / 2
        for distances in (np.abs(apart.sum(0)), np.abs(apart).sum(0))
    )
    return {
        "shapes": 1 - float(np.diag(pairs).mean()),
        "pairs": 1 - float(pairs[np.triu_indices(len(bins), 1)].mean()),
        "triples": 1 - float(triples[1:, 1:][np.triu_indices(len(bins) - 1, 1)].mean()),
    }
