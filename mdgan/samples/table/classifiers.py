"""Classifiers that learn a table's target, and how well they tell classes apart."""

from typing import Any

import numpy as np
from torch import Tensor

_MOST_STEPS = 1_000


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
