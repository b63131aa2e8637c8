"""Rules that combine what several workers answer, as functions of plain tensors.

`mean` is the plain one. The others bound what a few hostile workers can do:

    median             of each element (Yin et al. 2018)
    trimmed-mean:F     of each element, without its F least and F greatest values (Yin et al. 2018)
    krum:F             the mean of the m − F answers with the nearest neighbours (Blanchard et al.
                       2017)
    clip:C             the mean, after answers longer than C times the median length are shortened

Workers leave, so F may become too large for the number of answers. Then the largest F that fits is
used. With fewer than three answers no rule can tell which one lies, and the mean is used.
"""

import numpy as np
import torch
from torch import Tensor

from mdgan.gan.aggregation_form import AggregationRule

LEAST_TO_VOTE = 3  # among fewer answers no rule can tell which one lies

_MOST_TO_EXCHANGE = 32
"""Up to this many answers, exchanging neighbours, about m² times, sorts 5 to 9 times faster than
`Tensor.sort`, which is slow across rows; measured on one core with 63,000 elements. Of more answers
`numpy.sort` is faster: 1.3 s and not 4.3 for 100 of 116,000 elements, 1.6 s and not 10 for 300."""


def combine(rule: AggregationRule, answers: Tensor) -> Tensor:
    """Combines m answers, [m, s, d] in worker order, separately for each of s samples: [s, d]."""
    if rule.name == "mean" or len(answers) < LEAST_TO_VOTE:
        return answers.mean(0)
    if rule.name == "clip":
        return _shortened(answers, rule.parameter).mean(0)
    num_hostile = rule.withstands(len(answers))
    if rule.name != "krum":
        return _trimmed_mean(answers, num_hostile)
    winners = _krum_winners(answers, num_hostile)
    chosen = winners.unsqueeze(2).expand(-1, -1, answers.shape[2])
    return answers.transpose(0, 1).gather(1, chosen).mean(1)


def _trimmed_mean(answers: Tensor, num_hostile: int) -> Tensor:
    """The mean of each element without its F least and F greatest values (Yin et al. 2018)."""
    kept = _sorted(answers)[num_hostile : len(answers) - num_hostile]
    return torch.stack(kept).mean(0)


def _sorted(answers: Tensor) -> list[Tensor]:
    """The m answers with each element in increasing order, [s, d] each."""
    rows = list(answers.unbind())
    if len(rows) > _MOST_TO_EXCHANGE and answers.device.type == "cpu":
        return list(torch.from_numpy(np.sort(answers.numpy(), axis=0)).unbind())
    if len(rows) > _MOST_TO_EXCHANGE:
        return list(answers.sort(dim=0).values.unbind())
    for turn in range(len(rows)):  # odd-even transposition
        for first in range(turn % 2, len(rows) - 1, 2):
            one, other = rows[first], rows[first + 1]
            rows[first], rows[first + 1] = torch.minimum(one, other), torch.maximum(one, other)
    return rows


def mean_of_trusted(rule: AggregationRule, answers: Tensor, records: Tensor) -> Tensor:
    """Krum, with the workers chosen by their records and not by their answers.

    Args:
        answers: [m, d], in worker order. Longer ones are shortened to the median length: a record
            tells the direction of a worker's answers, not the length of this one.
        records: [m, e], by which the m − F workers are chosen.
    """
    chosen = _krum_winners(records.unsqueeze(1), rule.withstands(len(answers)))
    return _shortened(answers.unsqueeze(1), 1.0).squeeze(1)[chosen.squeeze(0)].mean(0)


def _krum_winners(answers: Tensor, num_hostile: int) -> Tensor:
    """For each sample the m − F answers nearest to their neighbours, [s, m − F], in worker order.

    An answer's score is the sum of squared distances to its m − F − 2 nearest; the least scores
    win, and of equal ones the first in worker order. Blanchard et al. 2017 take one winner (Krum)
    or the mean of several (Multi-Krum) of m ≥ 2F + 3 gradients. Here as many win as are honest:
    a single worker's answer would be as noisy as training with that worker alone.
    """
    num_nearest = len(answers) - num_hostile - 2
    by_sample = answers.transpose(0, 1)
    # By differences: the form with products would lose small distances between large answers.
    distances = torch.cdist(by_sample, by_sample, compute_mode="donot_use_mm_for_euclid_dist")
    to_others = distances.square().sort(dim=2).values[:, :, 1:]  # the first is its own
    scores = to_others[:, :, :num_nearest].sum(2)
    winners = scores.argsort(dim=1, stable=True)[:, : len(answers) - num_hostile]
    return winners.sort(dim=1).values


def _shortened(answers: Tensor, factor: float) -> Tensor:
    """The answers; those longer than C times the median norm are shortened to that."""
    norms = torch.linalg.vector_norm(answers, dim=2, keepdim=True)
    limit = factor * _trimmed_mean(norms, (len(answers) - 1) // 2)
    return torch.where(norms > limit, answers * (limit / norms), answers)
