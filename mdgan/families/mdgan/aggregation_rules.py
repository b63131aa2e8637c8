"""What the values of `--aggregation` mean, on bare answers.

`mean` is MD-GAN's own rule. The others bound what a few hostile workers can do:

    median             of each element (Yin et al. 2018)
    trimmed-mean:F     of each element, without its F least and F greatest values (Yin et al. 2018)
    krum:F             the mean of the m − F answers with the nearest neighbours (Blanchard et al.
                       2017)
    clip:C             the mean, after shortening whatever is longer than C times the median length

Two more weigh the judges of each sample, as if nobody lied (`forgiving.py`):

    f2u                the feedback of the most forgiving judge alone
    f2a, f2a:LAMBDA    all of it, weighed with softmax(λ D_n(x)) over the judges; λ is 1, or LAMBDA

Workers go, so F may no longer fit the number of answers. Then the largest F that fits is used, and
with fewer than three answers, where nobody can tell who lies, the mean.
"""

import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation_rule import AggregationRule

LEAST_TO_VOTE = 3
"""Of fewer answers nobody can tell which one lies."""

_MOST_TO_EXCHANGE = 32
"""Up to so many answers, exchanging neighbours sorts 5 to 9 times faster than `Tensor.sort`, which
is slow across rows; measured on one core with 63,000 elements. It needs m² exchanges."""


def combine(rule: AggregationRule, answers: Tensor) -> Tensor:
    """Combines m answers, for each of s samples apart.

    Args:
        rule: how; none that needs verdicts. An F that m answers are too few for is lowered to the
            largest that fits.
        answers: [m, s, d], in worker order.

    Returns:
        [s, d]
    """
    if rule.name == "mean" or len(answers) < LEAST_TO_VOTE:
        return answers.mean(0)
    if rule.name == "clip":
        return _clipped_mean(answers, rule.parameter)
    num_hostile = rule.withstands(len(answers))
    return (_krum if rule.name == "krum" else _trimmed_mean)(answers, num_hostile)


def _trimmed_mean(answers: Tensor, num_hostile: int) -> Tensor:
    """The mean of each element without its F least and F greatest values (Yin et al. 2018).

    With the largest F that leaves anything it is the median: of an even number the mean of the
    middle two.
    """
    kept = _sorted(answers)[num_hostile : len(answers) - num_hostile]
    return torch.stack(kept).mean(0)


def _sorted(answers: Tensor) -> list[Tensor]:
    """The m answers with each element in increasing order, [s, d] each."""
    rows = list(answers.unbind())
    if len(rows) > _MOST_TO_EXCHANGE:
        return list(answers.sort(dim=0).values.unbind())
    for turn in range(len(rows)):  # odd-even transposition
        for first in range(turn % 2, len(rows) - 1, 2):
            one, other = rows[first], rows[first + 1]
            rows[first], rows[first + 1] = torch.minimum(one, other), torch.maximum(one, other)
    return rows


def mean_of_trusted(rule: AggregationRule, answers: Tensor, records: Tensor) -> Tensor:
    """Krum, where who may be trusted shows in something else than the answers that count.

    Args:
        rule: krum:F.
        answers: [m, d], in worker order. No answer weighs more than one of median length: a record
            tells the direction of a worker's answers, not how long this one is.
        records: [m, e], by which the m − F workers are chosen.

    Returns:
        [d], the mean of the answers of the workers chosen.
    """
    chosen = _krum_winners(records.unsqueeze(1), rule.withstands(len(answers)))
    return _shortened(answers.unsqueeze(1), 1.0).squeeze(1)[chosen.squeeze(0)].mean(0)


def _krum(answers: Tensor, num_hostile: int) -> Tensor:
    """For each sample the mean of the winners."""
    winners = _krum_winners(answers, num_hostile)
    chosen = winners.unsqueeze(2).expand(-1, -1, answers.shape[2])
    return answers.transpose(0, 1).gather(1, chosen).mean(1)


def _krum_winners(answers: Tensor, num_hostile: int) -> Tensor:
    """For each sample which m − F answers are nearest to their nearest, [s, m − F], in order.

    An answer's score is the sum of squared distances to its m − F − 2 nearest; the least scores
    win, of equal ones the first in worker order. Blanchard et al. 2017 take the one winner (Krum)
    or the mean of several (Multi-Krum), of gradients, where m ≥ 2F + 3. Several, and as many as
    are honest: one worker's answer would be as noisy as training with that worker alone.
    """
    num_nearest = len(answers) - num_hostile - 2
    by_sample = answers.transpose(0, 1)
    # By differences: the form with products would lose small distances between large answers.
    distances = torch.cdist(by_sample, by_sample, compute_mode="donot_use_mm_for_euclid_dist")
    to_others = distances.square().sort(dim=2).values[:, :, 1:]  # the first is its own
    scores = to_others[:, :, :num_nearest].sum(2)
    winners = scores.argsort(dim=1, stable=True)[:, : len(answers) - num_hostile]
    return winners.sort(dim=1).values


def _clipped_mean(answers: Tensor, factor: float) -> Tensor:
    """The mean after shortening what is longer than C times the median norm of the answers.

    Nobody's direction is doubted, only how much it may weigh: a bound on harm, no vote.
    """
    return _shortened(answers, factor).mean(0)


def _shortened(answers: Tensor, factor: float) -> Tensor:
    norms = torch.linalg.vector_norm(answers, dim=2, keepdim=True)
    limit = factor * _trimmed_mean(norms, (len(answers) - 1) // 2)
    return torch.where(norms > limit, answers * (limit / norms), answers)
