"""How the feedback of all workers becomes one gradient of the generator, even if some workers lie.

`mean` is MD-GAN's rule and takes one backward pass. So do `f2u` and `f2a`, which weigh the judges
and outvote none (`weighted`). The server applies the other rules (`gan/aggregation_rules.py`) in
one of two ways. It combines the answers to one batch sample by sample, and one backward pass
follows; or a backward pass for each worker turns its feedback into a gradient of w, and the rule
combines these N gradients.

Worker n always judges batch n mod κ, so all hostile workers may be in the same group. No rule that
sees only that group can detect it. A rule therefore works per sample only if its smallest group
withstands as many hostile workers as all N answers together would. Otherwise all N gradients vote:

    rule            withstands, of m     per sample if every group has
    trimmed-mean:F  F if m ≥ 2F + 1      at least 2F + 1 answers (and 3)
    krum:F          F if m ≥ 2F + 3      at least 2F + 3 answers
    median, clip    ⌊(m − 1) / 2⌋        as many answers as all: κ = 1

On gradients, krum chooses workers by their records (`TrackRecord`): single gradients of honest
workers are too far apart for that.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan.families.mdgan.algorithm import Assignments, Feedbacks, GeneratorLearner, mean_feedback
from mdgan.families.mdgan.messages import OUTPUTS
from mdgan.gan.aggregation_form import AggregationRule
from mdgan.gan.aggregation_rules import (
    LEAST_TO_VOTE,
    TrackRecord,
    combine,
    mean_of_trusted,
    weighted,
)


class Aggregation:
    """Turns the feedback of each iteration into the generator's gradient.

    `record` is what the next gradient depends on besides feedback; checkpoints hold it.
    """

    def __init__(self, rule: AggregationRule) -> None:
        self._rule = rule
        self.record = TrackRecord()

    @property
    def is_mean(self) -> bool:
        """Whether all feedback counts the same, as in the paper."""
        return self._rule.name == "mean"

    def update_gradient(
        self,
        learner: GeneratorLearner,
        feedbacks: Feedbacks,
        assignment: Assignments,
        kappa: int,
        beside: Mapping[str, Mapping[int, Tensor]] | None = None,
    ) -> None:
        """Sets the gradients of the generator's parameters; the caller then calls `learner.step()`.

        Args:
            feedbacks: F_n of workers that answered, each [b, C, H, W], finite; at least one.
            beside: for f2u and f2a, under `OUTPUTS`, D_n(X^(g)) of each worker in `feedbacks`,
                float32 [b], finite.
        """
        rule = self._rule
        if rule.needs_verdicts:
            outputs = (beside or {})[OUTPUTS]
            learner.backward(combine_groups(rule, feedbacks, assignment, kappa, outputs))
        elif self.is_mean or len(feedbacks) < LEAST_TO_VOTE:
            learner.backward(mean_feedback(feedbacks, assignment, kappa))
        elif _every_group_can_vote(rule, feedbacks, assignment):
            learner.backward(combine_groups(rule, feedbacks, assignment, kappa=kappa))
        else:
            gradients = gradient_of_each(learner, feedbacks, assignment, kappa=kappa)
            rows = torch.stack(list(gradients.values()))
            if rule.name == "krum":
                self.record.note(gradients)
                combined = mean_of_trusted(rule, rows, self.record.of(gradients))
            else:
                combined = combine(rule, rows.unsqueeze(1)).squeeze(0)
            sizes = [parameter.numel() for parameter in learner.parameters]
            pieces = torch.split(combined, sizes)
            shaped = zip(pieces, learner.parameters, strict=True)
            learner.put_gradients([piece.view_as(parameter) for piece, parameter in shaped])


def _every_group_can_vote(
    rule: AggregationRule, feedbacks: Feedbacks, assignment: Assignments
) -> bool:
    """Whether each group withstands as many hostile workers as all answers together do."""
    smallest = min(len(group) for group in _groups(feedbacks, assignment).values())
    wanted = rule.withstands(len(feedbacks))
    return smallest >= LEAST_TO_VOTE and rule.withstands(smallest) >= wanted


def _groups(feedbacks: Feedbacks, assignment: Assignments) -> dict[int, list[int]]:
    """For each batch that was judged, the workers that judged it, in increasing order."""
    groups: dict[int, list[int]] = {}
    for worker in sorted(feedbacks):
        groups.setdefault(assignment[worker].judge, []).append(worker)
    return groups


def combine_groups(
    rule: AggregationRule,
    feedbacks: Feedbacks,
    assignment: Assignments,
    kappa: int,
    outputs: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """As `mean_feedback`, but the rule replaces the mean over the answers to each sample.

    The rules f2u and f2a weigh the judges of each sample by their outputs, [b] each.
    """
    first = next(iter(feedbacks.values()))
    total = torch.zeros((kappa, *first.shape), dtype=first.dtype, device=first.device)
    for batch, workers in _groups(feedbacks, assignment).items():
        answers, count = [feedbacks[worker] for worker in workers], len(workers)
        if outputs is None:
            combined = combine(rule, torch.stack([answer.flatten(1) for answer in answers]))
            total[batch] = combined.view_as(first).mul_(count / len(feedbacks))
        else:
            combined = weighted(rule, answers, [outputs[worker] for worker in workers])
            # In float64, and dividing as the mean does: a factor of m / N would round twice.
            total[batch] = combined.mul_(count).div_(len(feedbacks))
    return total


def gradient_of_each(
    learner: GeneratorLearner, feedbacks: Feedbacks, assignment: Assignments, kappa: int
) -> dict[int, Tensor]:
    """The gradient of w that each worker's feedback alone gives, by a backward pass each."""
    workers = sorted(feedbacks)
    gradient_of = {}
    for worker in workers:
        feedback = mean_feedback({worker: feedbacks[worker]}, assignment, kappa)
        gradients = learner.gradients(feedback, keep_graph=worker != workers[-1])
        gradient_of[worker] = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return gradient_of
