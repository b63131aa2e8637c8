"""Judges a synthetic table by real rows with scikit-learn and SDMetrics, without mdgan's code."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from sdmetrics.column_pairs import ContingencySimilarity, CorrelationSimilarity
from sdmetrics.single_column import KSComplement, TVComplement
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def judge(made: Path, train: Path, held_out: Path, outcome: str) -> dict[str, float]:
    """AUC of two classifiers on held-out rows; shapes and trends against the training rows."""
    synthetic, real, unseen = map(pd.read_csv, (made, train, held_out))
    synthetic = synthetic[real.columns]
    areas = {
        name: _area(model, synthetic, unseen, outcome)
        for name, model in (
            ("lr", LogisticRegression(max_iter=2000)),
            ("gb", HistGradientBoostingClassifier(random_state=0)),
        )
    }
    numeric = [name for name in real if pd.api.types.is_numeric_dtype(real[name])]
    shapes = [
        (KSComplement if name in numeric else TVComplement).compute(real[name], synthetic[name])
        for name in real
    ]
    binned_real, binned = real.copy(), synthetic.copy()
    for name in numeric:
        edges = np.histogram_bin_edges(real[name].dropna(), bins=10)[1:-1]
        for table, whole in ((binned_real, real), (binned, synthetic)):
            bins = np.digitize(whole[name], edges)
            table[name] = np.where(whole[name].isna(), -1, bins).astype(str)
    trends = []
    for a, b in combinations(real.columns, 2):
        if a in numeric and b in numeric:
            trends.append(CorrelationSimilarity.compute(real[[a, b]], synthetic[[a, b]]))
        else:
            trends.append(ContingencySimilarity.compute(binned_real[[a, b]], binned[[a, b]]))
    return {**areas, "shapes": float(np.mean(shapes)), "trends": float(np.nanmean(trends))}


def _area(model: object, train: pd.DataFrame, unseen: pd.DataFrame, outcome: str) -> float:
    inputs = [name for name in unseen if name != outcome]
    numeric = [name for name in inputs if pd.api.types.is_numeric_dtype(unseen[name])]
    others = [name for name in inputs if name not in numeric]
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numeric),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), others),
    )
    fitted = make_pipeline(encoder, model).fit(train[inputs], train[outcome])
    return float(
        roc_auc_score(unseen[outcome] == "yes", fitted.predict_proba(unseen[inputs])[:, 1])
    )
