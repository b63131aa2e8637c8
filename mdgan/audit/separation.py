"""Measures how well scores separate members (samples trained on) from others, by ROC curves."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mdgan.gan.randomness import generator_for
from mdgan.records.audit import FALSE_ALARMS, MembersFound, Separation
from mdgan.records.values import chosen_evenly

_MOST_POINTS = 200
_CONFIDENCE = 0.95
_PERMUTATIONS, _AT_ONCE = 200, 20


def separate(members: Tensor, non_members: Tensor) -> Separation:
    """The ROC curve of an attack that takes samples with high scores for members."""
    classes = torch.zeros(len(members), dtype=torch.int64)
    their_classes = torch.zeros(len(non_members), dtype=torch.int64)
    separation = separate_alike(members, classes, non_members, their_classes=their_classes)
    assert separation is not None
    return separation


def separate_alike(
    members: Tensor, classes: Tensor, non_members: Tensor, their_classes: Tensor
) -> Separation | None:
    """`separate` with non-members weighted by class; None if both share no class.

    A worker may hold few classes. Without weights, an attack that knows only these classes would
    seem to know the worker's samples. Members of classes that no non-member has are left out.
    Random permutations of both within their classes show the AUC that an attack would have if the
    attacked model had seen none of the samples.
    """
    from sklearn.metrics import auc, roc_curve  # takes a second to import

    known = torch.isin(classes, their_classes)
    if not bool(known.any()):
        return None
    members, classes = members[known].double(), classes[known]
    non_members = non_members.double()
    num_classes = int(torch.cat([classes, their_classes]).max()) + 1
    wanted = torch.bincount(classes, minlength=num_classes)
    of_class = wanted.double() / torch.bincount(their_classes, minlength=num_classes).clamp(min=1)
    weights, scores = of_class[their_classes], torch.cat([members, non_members])
    false, true, _ = roc_curve(
        torch.cat([torch.ones(len(members)), torch.zeros(len(non_members))]).numpy(),
        scores.numpy(),
        sample_weight=torch.cat([torch.ones(len(members)), weights]).numpy(),
        drop_intermediate=False,
    )
    area = min(max(float(auc(false, true)), 0.0), 1.0)
    areas = _permuted_areas(scores, torch.cat([classes, their_classes]), wanted, weights=of_class)
    points = zip(false.tolist(), true.tolist(), strict=True)
    return Separation(
        members=len(members),
        others=int((weights > 0).sum()),
        auc=area,
        error=float(areas.std()),
        chance=float(areas.mean()),
        place=(1 + int((areas >= area).sum())) / (1 + len(areas)),
        found=_found(members, non_members, weights),
        curve=[(min(x, 1.0), min(y, 1.0)) for x, y in chosen_evenly(list(points), _MOST_POINTS)],
    )


def _worth(weights: Tensor) -> float:
    return float(weights.sum() ** 2 / weights.square().sum().clamp(min=1e-300))


def _found(members: Tensor, non_members: Tensor, weights: Tensor) -> list[MembersFound]:
    """Members found at few false alarms; one half of the non-members chooses the threshold."""
    there = (weights > 0).nonzero().squeeze(1)
    mixed = there[torch.randperm(len(there), generator=generator_for(0, "thresholds"))]
    choosing, judging = mixed.tensor_split(2)
    if not len(choosing) or not len(judging):
        return []
    scores, order = non_members[choosing].sort(descending=True)
    of_one = 1 / _worth(weights[choosing])
    above = weights[choosing][order].cumsum(0) / weights[choosing].sum()
    worth = _worth(weights[judging])
    found = []
    for alarms in FALSE_ALARMS:
        if of_one / (1 + of_one) > alarms:
            continue
        # A new non-member is above with probability (k + 1) / (n + 1) if k of n are.
        threshold = scores[int(((above + of_one) / (1 + of_one) <= alarms).sum())]
        share = float((members > threshold).double().mean())
        taken = weights[judging][non_members[judging] > threshold].sum() / weights[judging].sum()
        found.append(
            MembersFound(
                alarms=alarms,
                share=share,
                interval=_interval(share * len(members), len(members)),
                real_alarms=_interval(float(taken) * worth, worth),
            )
        )
    return found


def _interval(successes: float, trials: float) -> tuple[float, float]:
    """The confidence interval of Clopper and Pearson 1934."""
    from scipy.stats import beta  # takes a second to import

    outside = (1 - _CONFIDENCE) / 2
    failures = max(trials - successes, 0.0)
    low = float(beta.ppf(outside, successes, failures + 1)) if successes > 0 else 0.0
    high = float(beta.ppf(1 - outside, successes + 1, failures)) if failures > 0 else 1.0
    return low, high


def _permuted_areas(scores: Tensor, classes: Tensor, members: Tensor, weights: Tensor) -> Tensor:
    """AUCs when members and non-members change places at random within their classes."""
    levels, level = torch.unique(scores, return_inverse=True)
    areas = []
    for is_member in permutations(classes, members):
        of_members, of_others = torch.zeros(2, len(is_member), len(levels), dtype=torch.float64)
        of_all = level.expand_as(is_member)
        of_members.scatter_add_(1, of_all, is_member.double())
        of_others.scatter_add_(1, of_all, torch.where(is_member, 0.0, weights[classes]))
        below = of_others.cumsum(1) - of_others / 2
        areas.append((of_members * below).sum(1) / (of_members.sum(1) * of_others.sum(1)))
    return torch.cat(areas)


def permutations(classes: Tensor, members: Tensor) -> Iterator[Tensor]:
    """Draws which samples are members, within their classes and always equally: bool [some, n]."""
    random = generator_for(0, "exchanges")
    ends = torch.bincount(classes, minlength=len(members)).cumsum(0)
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])
    for _ in range(0, _PERMUTATIONS, _AT_ONCE):
        mixed = torch.rand(_AT_ONCE, len(classes), generator=random, dtype=torch.float64)
        order = (mixed + classes).argsort(dim=1)  # by class, and at random in each
        labels = classes[order]
        is_member = torch.arange(len(classes)) - begins[labels] < members[labels]
        yield torch.empty_like(is_member).scatter_(1, order, is_member)
