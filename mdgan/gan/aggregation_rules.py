"""Rules that combine the answers of several workers, as functions of plain tensors.

`mean` is the plain rule. The others limit the harm that a few hostile workers can do:

    median             of each element (Yin et al. 2018)
    trimmed-mean:F     of each element, without its F least and F greatest values (Yin et al. 2018)
    krum:F             the mean of the m − F answers with the nearest neighbours (Blanchard et al.
                       2017)
    clip:C             the mean, after answers longer than C times the median length are shortened

Workers leave, so F may become too large for the number of answers. Then a rule uses the largest F
that fits. Among fewer than three answers no rule can tell which one lies: then rules take the mean.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.gan.aggregation_form import AggregationRule

LEAST_TO_VOTE = 3  # among fewer answers no rule can tell which one lies
MEMORY = 0.97
"""The part of a record that stays from one iteration to the next: it covers about 30 iterations.
Chosen in trials against constant lies on digits: with a shorter memory the rule sometimes trusted
a liar."""

_MOST_TO_EXCHANGE = 32
"""Up to this many answers, exchanging neighbours, about m² times, sorts 5 to 9 times faster than
`Tensor.sort`, which is slow across rows (one core, 63,000 elements). For more answers `numpy.sort`
is faster: 1.3 s and not 4.3 for 100 of 116,000 elements, 1.6 s and not 10 for 300."""


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
    middle = _sorted(answers)[num_hostile : len(answers) - num_hostile]
    return torch.stack(middle).mean(0)


def _sorted(answers: Tensor) -> list[Tensor]:
    """Sorts m answers element by element: m tensors, [s, d] each, in increasing order."""
    rows = list(answers.unbind())
    if len(rows) > _MOST_TO_EXCHANGE and answers.device.type == "cpu":
        return list(torch.from_numpy(np.sort(answers.numpy(), axis=0)).unbind())
    if len(rows) > _MOST_TO_EXCHANGE:
        return list(answers.sort(dim=0).values.unbind())
    for turn in range(len(rows)):  # odd-even transposition
        for first in range(turn % 2, len(rows) - 1, 2):
            pair = rows[first], rows[first + 1]
            rows[first], rows[first + 1] = torch.minimum(*pair), torch.maximum(*pair)
    return rows


class TrackRecord:
    """Running means of the directions of every worker's gradients.

    Feedback on a few samples gives a noisy gradient. Workers that agree on a lie are then nearer to
    each other than honest workers are, and Krum trusts the liars. Means over many iterations tell
    both apart: noise averages out, and the means of honest workers point the same way (Karimireddy
    et al. 2021, "Learning from History for Byzantine Robust Optimization", who aggregate such
    means; here the means only decide which workers' gradients count).

    A record begins with the first direction itself, which is longer than a mean of many: Krum does
    not trust a newcomer until it has a record.
    """

    def __init__(self) -> None:
        self._means: dict[int, Tensor] = {}

    def note(self, gradients: Mapping[int, Tensor]) -> None:
        """Adds the gradients of one iteration, [number of weights] by worker."""
        for worker, gradient in gradients.items():
            length = torch.linalg.vector_norm(gradient)
            direction = torch.where(length > 0, gradient / length, torch.zeros_like(gradient))
            last_mean = self._means.get(worker, direction).to(direction.device)
            self._means[worker] = last_mean.lerp(direction, 1 - MEMORY)

    def of(self, workers: Iterable[int]) -> Tensor:
        """Stacks the records of workers, all of which must have one: [m, number of weights]."""
        return torch.stack([self._means[worker] for worker in workers])

    def state(self) -> dict[str, Tensor]:
        """A copy of all records, by worker."""
        return {str(worker): mean.clone() for worker, mean in self._means.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError`."""
        foreign = sorted(name for name in state if not name.isdecimal())
        if foreign:
            raise KeyError(f"tensors that do not fit: {foreign}")
        self._means = {int(worker): mean.clone() for worker, mean in state.items()}


def mean_of_trusted(rule: AggregationRule, answers: Tensor, records: Tensor) -> Tensor:
    """Krum, with the workers chosen by their records and not by their answers.

    Args:
        answers: [m, d], in worker order. Longer ones are shortened to the median length: a record
            shows the direction of a worker's answers, not the length of this one.
        records: [m, e], in the same order; they decide which m − F workers count.
    """
    chosen = _krum_winners(records.unsqueeze(1), rule.withstands(len(answers)))
    return _shortened(answers.unsqueeze(1), 1.0).squeeze(1)[chosen.squeeze(0)].mean(0)


def _krum_winners(answers: Tensor, num_hostile: int) -> Tensor:
    """For each sample the m − F answers nearest to their neighbours, [s, m − F], in worker order.

    An answer's score is the sum of squared distances to its m − F − 2 nearest; the least scores
    win, and of equal scores the first in worker order. Blanchard et al. 2017 take one winner (Krum)
    or the mean of several (Multi-Krum) of m ≥ 2F + 3 gradients. Here m − F win: a single worker's
    answer would be as noisy as training with that worker alone.
    """
    num_nearest = len(answers) - num_hostile - 2
    by_sample = answers.transpose(0, 1)
    # By differences: the form with products would lose small distances between large answers.
    distances = torch.cdist(by_sample, by_sample, compute_mode="donot_use_mm_for_euclid_dist")
    to_others = distances.square().sort(dim=2).values[:, :, 1:]  # the first is to itself
    scores = to_others[:, :, :num_nearest].sum(2)
    winners = scores.argsort(dim=1, stable=True)[:, : len(answers) - num_hostile]
    return winners.sort(dim=1).values


def _shortened(answers: Tensor, factor: float) -> Tensor:
    """The answers; those longer than C times the median norm are shortened to that."""
    norms = torch.linalg.vector_norm(answers, dim=2, keepdim=True)
    limit = factor * _trimmed_mean(norms, (len(answers) - 1) // 2)
    return torch.where(norms > limit, answers * (limit / norms), answers)


def weights(rule: AggregationRule, outputs: Tensor) -> Tensor:
    """How much each judge's feedback on each sample counts, float64 [m, b]; 1 over all judges.

    A discriminator calls a sample generated if its own data hold none like it. Where data differ
    between workers, the mean of all judges punishes a sample that is unlike the data of most, even
    if one worker holds just such samples (Yonetani et al. 2019, "Decentralized Learning of
    Generative Adversarial Networks from Non-iid Data"). f2u takes only the feedback of the most
    forgiving judge, among equals the first; f2a weighs all feedback with softmax(λ D_n(x)).

    Gradients treat weights as constants, although those of f2a depend on x: so x moves to fool the
    judges that count, not to change which judges count.

    Args:
        outputs: logits D_n(x), [m, b]; high means that D_n calls x real.
    """
    if rule.name == "f2u":
        return F.one_hot(outputs.argmax(0), len(outputs)).T.double()
    # Subtract first: λ D_n may exceed float64, and one of the differences is always 0.
    behind = outputs.double() - outputs.double().amax(0)
    return torch.softmax(rule.parameter * behind, 0)


def weighted(
    rule: AggregationRule, feedbacks: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Tensor:
    """The feedback of all judges of a batch, weighed and summed; of a single one its F_n."""
    shares = weights(rule, torch.stack(list(outputs)))[:, :, None, None, None]
    total = shares[0] * feedbacks[0]
    for share, feedback in zip(shares[1:], feedbacks[1:], strict=True):
        total += share * feedback
    return total
