"""How well scores tell samples that were trained on from others: the ROC curve, by scikit-learn."""

from math import sqrt

import torch
from torch import Tensor

from mdgan.records.audit import FALSE_POSITIVES, Separation
from mdgan.records.values import chosen_evenly

_MOST_POINTS = 200


def separate(members: Tensor, others: Tensor, weights: Tensor | None = None) -> Separation:
    """The ROC curve of an attack that takes samples with high scores for members.

    Args:
        members: the scores of samples that were trained on, float [m], all finite, m > 0.
        others: those of samples that were not, float [n], all finite, n > 0.
        weights: how much each of the others counts, float [n] ≥ 0, not all 0; 1 if not given.

    Returns:
        With the standard error of Hanley and McNeil 1982 for as many others as the weights are
        worth, (Σw)²/Σw².
    """
    from sklearn.metrics import auc, roc_curve  # takes a second to import

    own = torch.ones(len(others)) if weights is None else weights
    false, true, _ = roc_curve(
        torch.cat([torch.ones(len(members)), torch.zeros(len(others))]).numpy(),
        torch.cat([members, others]).double().numpy(),
        sample_weight=torch.cat([torch.ones(len(members)), own]).double().numpy(),
        drop_intermediate=False,
    )
    area = min(max(float(auc(false, true)), 0.0), 1.0)
    effective = float(own.sum() ** 2 / own.square().sum())
    points = zip(false.tolist(), true.tolist(), strict=True)
    return Separation(
        members=len(members),
        others=int((own > 0).sum()),
        auc=area,
        error=_standard_error(area, len(members), effective),
        tpr=float(true[false <= FALSE_POSITIVES].max()),
        curve=[(min(x, 1.0), min(y, 1.0)) for x, y in chosen_evenly(list(points), _MOST_POINTS)],
    )


def _standard_error(area: float, members: float, others: float) -> float:
    """Hanley and McNeil 1982, equation 1 with Q1 and Q2 of section III."""
    two_members, two_others = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (
        area * (1 - area)
        + (members - 1) * (two_members - area**2)
        + (max(others, 1) - 1) * (two_others - area**2)
    ) / (members * max(others, 1))
    return min(1.0, sqrt(max(variance, 0.0)))


def separate_alike(
    members: Tensor, classes: Tensor, others: Tensor, other_classes: Tensor
) -> Separation | None:
    """`separate`, where the others count so that classes are as frequent as among the members.

    A worker may hold few classes. A discriminator that knows nothing but which classes these are
    would else seem to know its samples. Members of classes that no other has are left out.

    Args:
        members: scores, float [m].
        classes: of the members, int64 [m].
        others: scores, float [n].
        other_classes: of the others, int64 [n].

    Returns:
        None if they have no class in common.
    """
    known = torch.isin(classes, other_classes)
    if not bool(known.any()):
        return None
    num_classes = int(torch.cat([classes, other_classes]).max()) + 1
    wanted = torch.bincount(classes[known], minlength=num_classes)
    there = torch.bincount(other_classes, minlength=num_classes).clamp(min=1)
    return separate(members[known], others, (wanted / there)[other_classes])
