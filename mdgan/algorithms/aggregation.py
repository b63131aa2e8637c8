"""How the feedback of all workers becomes one gradient of the generator, also where some may lie.

`mean` is MD-GAN's own rule. The others bound what a few hostile workers can do. They come in two
forms.

Per sample: the answers to one batch are combined sample by sample, and one backward pass follows.
On gradients: every worker's feedback becomes a gradient of w by a backward pass of its own, and the
rule combines these N gradients. That costs N backward passes and N times the memory of w.

Which form is used decides how many hostile workers a rule withstands. Worker n always judges batch
n mod κ, so nothing keeps the hostile from sitting in the same group: with N = 10 and κ = 3 the
groups have 4, 3 and 3 members, and three hostile workers can be one whole group. No rule within
that group can tell, and a third of all samples would be theirs. A rule therefore works per sample
only if its smallest group withstands as many hostile workers as all N answers together would, so
that it does not matter where they sit. Else it works on gradients, where all N vote at once:

    rule            withstands, of m     per sample if every group has
    trimmed-mean:F  F if m ≥ 2F + 1      at least 2F + 1 answers (and 3)
    krum:F          F if m ≥ 2F + 3      at least 2F + 3 answers
    median, clip    ⌊(m − 1) / 2⌋        as many answers as all: κ = 1

Workers go, so F may no longer fit the number of answers. Then the largest F that fits is used, and
with fewer than three answers, where nobody can tell who lies, the mean.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.algorithms.mdgan import Assignment, GeneratorLearner
from mdgan.experiment import check_aggregation

_LEAST_TO_VOTE = 3

_MOST_TO_EXCHANGE = 32
"""Up to so many answers, exchanging neighbours sorts 5 to 9 times faster than `Tensor.sort`, which
is slow across rows; measured on one core with 63,000 elements. It needs m² exchanges."""


class AggregationRule(NamedTuple):
    """A checked `--aggregation` value.

    Attributes:
        name: mean, median, trimmed-mean, krum or clip.
        parameter: F of trimmed-mean and krum, C of clip; 0 for the others.
    """

    name: str
    parameter: float

    def withstands(self, num_answers: int) -> int:
        """The most hostile ones among m answers that the rule is made for, no more than its F."""
        if self.name == "mean":
            return 0
        most = (num_answers - (3 if self.name == "krum" else 1)) // 2
        if self.name in ("trimmed-mean", "krum"):
            most = min(most, int(self.parameter))
        return max(most, 0)


def parse_aggregation(text: str, num_workers: int) -> AggregationRule:
    """Reads an `--aggregation` value.

    Args:
        text: mean, median, trimmed-mean:F, krum:F or clip:C.
        num_workers: N at the start.

    Raises:
        BadInput: none of these, or one that N workers are too few for.
    """
    check_aggregation(text, num_workers)
    name, _, parameter = text.partition(":")
    return AggregationRule(name, float(parameter or 0))


def aggregate(
    feedbacks: Mapping[int, Tensor], assignment: Mapping[int, Assignment], kappa: int
) -> Tensor:
    """Turns all feedback into the gradient of the mean loss with respect to X.

    C^(j) = (1/N) Σ_{n : n judged j} F_n, over the N workers that answered. Sums run in worker
    order, so that the order of arrival cannot change a bit.

    Args:
        feedbacks: F_n of every worker that answered, each [b, C, H, W]; at least one.
        assignment: who judged which batch.
        kappa: κ.

    Returns:
        C, [κ, b, C, H, W].
    """
    first = next(iter(feedbacks.values()))
    total = torch.zeros((kappa, *first.shape), dtype=first.dtype, device=first.device)
    for worker in sorted(feedbacks):
        total[assignment[worker].judge] += feedbacks[worker]
    return total.div_(len(feedbacks))


def update_gradient(
    rule: AggregationRule,
    learner: GeneratorLearner,
    feedbacks: Mapping[int, Tensor],
    assignment: Mapping[int, Assignment],
    kappa: int,
) -> None:
    """Puts the generator's gradient in place, for `learner.step()` to follow.

    Args:
        rule: how to combine.
        learner: has just generated the κ batches.
        feedbacks: F_n of every worker that answered, each [b, C, H, W], finite; at least one.
        assignment: who judged which batch.
        kappa: κ.
    """
    if rule.name == "mean" or len(feedbacks) < _LEAST_TO_VOTE:
        learner.backward(aggregate(feedbacks, assignment, kappa))
    elif _every_group_can_vote(rule, feedbacks, assignment):
        learner.backward(combine_samples(rule, feedbacks, assignment, kappa))
    else:
        learner.put_gradients(combine_gradients(rule, learner, feedbacks, assignment, kappa))


def _every_group_can_vote(
    rule: AggregationRule, feedbacks: Mapping[int, Tensor], assignment: Mapping[int, Assignment]
) -> bool:
    """Whether each group withstands as many hostile members as all who answered together."""
    smallest = min(len(group) for group in _groups(feedbacks, assignment).values())
    wanted = rule.withstands(len(feedbacks))
    return smallest >= _LEAST_TO_VOTE and rule.withstands(smallest) >= wanted


def _groups(
    feedbacks: Mapping[int, Tensor], assignment: Mapping[int, Assignment]
) -> dict[int, list[int]]:
    """For each batch that was judged, who judged it, in worker order."""
    groups: dict[int, list[int]] = {}
    for worker in sorted(feedbacks):
        groups.setdefault(assignment[worker].judge, []).append(worker)
    return groups


def combine_samples(
    rule: AggregationRule,
    feedbacks: Mapping[int, Tensor],
    assignment: Mapping[int, Assignment],
    kappa: int,
) -> Tensor:
    """As `aggregate`, with the rule in place of the mean over the answers to each sample.

    Returns:
        C, [κ, b, C, H, W]; batch j weighs (number of its answers) / N, as with the mean.
    """
    first = next(iter(feedbacks.values()))
    total = torch.zeros((kappa, *first.shape), dtype=first.dtype, device=first.device)
    for batch, workers in _groups(feedbacks, assignment).items():
        answers = torch.stack([feedbacks[worker].flatten(1) for worker in workers])
        combined = combine(rule, answers).view_as(first)
        total[batch] = combined.mul_(len(workers) / len(feedbacks))
    return total


def combine_gradients(
    rule: AggregationRule,
    learner: GeneratorLearner,
    feedbacks: Mapping[int, Tensor],
    assignment: Mapping[int, Assignment],
    kappa: int,
) -> list[Tensor]:
    """One backward pass a worker, then the rule on the N gradients.

    The gradients weigh the same, and their mean is the gradient that `mean` gives.

    Returns:
        One tensor a parameter and of its shape, as `GeneratorLearner.gradients`.
    """
    workers = sorted(feedbacks)
    rows = []
    gradients: Sequence[Tensor] = ()
    for worker in workers:
        own = {worker: feedbacks[worker]}
        keep = worker != workers[-1]
        gradients = learner.gradients(aggregate(own, assignment, kappa), keep_graph=keep)
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    combined = combine(rule, torch.stack(rows).unsqueeze(1)).squeeze(0)
    pieces = torch.split(combined, [gradient.numel() for gradient in gradients])
    return [piece.view(gradient.shape) for piece, gradient in zip(pieces, gradients, strict=True)]


def combine(rule: AggregationRule, answers: Tensor) -> Tensor:
    """Combines m answers, for each of s samples apart.

    Args:
        rule: how. An F that m answers are too few for is lowered to the largest that fits.
        answers: [m, s, d], in worker order.

    Returns:
        [s, d]
    """
    if rule.name == "mean" or len(answers) < _LEAST_TO_VOTE:
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


def _krum(answers: Tensor, num_hostile: int) -> Tensor:
    """For each sample the mean of the m − F − 2 answers that are nearest to their nearest.

    An answer's score is the sum of squared distances to its m − F − 2 nearest; the least scores
    win, of equal ones the first in worker order. Blanchard et al. 2017 take the one winner (Krum)
    or the mean of several (Multi-Krum), of gradients, where m ≥ 2F + 3. Several: one worker's
    answer would be as noisy as training with that worker alone.
    """
    num_nearest = len(answers) - num_hostile - 2
    by_sample = answers.transpose(0, 1)
    # By differences: the form with products would lose small distances between large answers.
    distances = torch.cdist(by_sample, by_sample, compute_mode="donot_use_mm_for_euclid_dist")
    to_others = distances.square().sort(dim=2).values[:, :, 1:]  # the first is its own
    scores = to_others[:, :, :num_nearest].sum(2)
    winners = scores.argsort(dim=1, stable=True)[:, :num_nearest]
    chosen = winners.sort(dim=1).values.unsqueeze(2).expand(-1, -1, answers.shape[2])
    return by_sample.gather(1, chosen).mean(1)


def _clipped_mean(answers: Tensor, factor: float) -> Tensor:
    """The mean after shortening what is longer than C times the median norm of the answers.

    Nobody's direction is doubted, only how much it may weigh: a bound on harm, no vote.
    """
    norms = torch.linalg.vector_norm(answers, dim=2, keepdim=True)
    limit = factor * _trimmed_mean(norms, (len(answers) - 1) // 2)
    return torch.where(norms > limit, answers * (limit / norms), answers).mean(0)
