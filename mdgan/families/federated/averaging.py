"""Who takes part in a round, what each one's models weigh, and how they become the server's.

FL-GAN's and FeGAN's weighted mean, or a rule that outvotes liars. With `--sampling poisson` updates
are added up instead (`poisson_rounds.py`).
"""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.host_keys import NotMasked
from mdgan.families.federated.fegan import (
    ClassCounts,
    check_classes,
    new_sampling,
    participant_weights,
)
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.federated.training_load import Load
from mdgan.gan.aggregation_form import MEDIAN, RobustRule
from mdgan.gan.aggregation_rules import LEAST_TO_VOTE, combine
from mdgan.gan.exact_sum import average
from mdgan.privacy.masks import threshold

if TYPE_CHECKING:
    from mdgan.engine.server.engine import Engine


class Averaging:
    """What a round does with clients beside having them trained.

    This is how FL-GAN, FeGAN and rules that outvote liars do it.

    Args:
        num_weight_blocks: see `ModelVector`; the blocks after these are buffers.
    """

    needs_answers = True

    def __init__(self, settings: FederatedSettings, num_weight_blocks: int) -> None:
        self._settings = settings
        self._num_weight_blocks = num_weight_blocks
        seed = settings.training.seed
        self.sampling = new_sampling(settings.rounds.sampling, settings.participation, seed)

    def begin(self, _num_rounds: int, class_counts: ClassCounts, _engine: "Engine") -> None:
        """Comes before the first of so many rounds; raises `BadInput` if there can be none."""
        check_classes(self._settings.rounds, class_counts)

    def announce(self, iteration: int, engine: "Engine") -> None:
        """Tells hosts what they must know before the round that ends with this iteration."""

    def choose(self, round_number: int, class_counts: ClassCounts, num_live: int) -> list[int]:
        """See `Sampling`; clients whose models have no weight are chosen if none have any."""
        able = class_counts
        if self._settings.rounds.weighting == "samples":
            able = {client: held for client, held in able.items() if any(held)} or able
        return self.sampling.choose(round_number, able, num_live)

    def weights(
        self, chosen: list[int], loads: Mapping[int, Load], full: Load, class_counts: ClassCounts
    ) -> dict[int, float]:
        """What the models of those who were chosen weigh in the sum; here these add up to 1."""
        size = full.iterations * full.batch_size
        shares = {n: loads[n].iterations * loads[n].batch_size / size for n in chosen}
        weights = participant_weights(self._settings.rounds.weighting, chosen, class_counts, shares)
        total = sum(weights.values())
        return {client: weight / total for client, weight in weights.items()}

    def next_models(self, sent: Tensor, answers: Answers, weights: Mapping[int, float]) -> Tensor:
        """The server's models after a round, float64, from float32 `ModelVector.shape`."""
        changes = str(self._settings.wire.models) != "fp32"
        rule, blocks = self._settings.aggregation, self._num_weight_blocks
        return combine_models(rule, sent, answers, weights, blocks, as_differences=changes)

    def finish(
        self, number: int, _iteration: int, took_part: Collection[int], _engine: "Engine"
    ) -> None:
        """A round is done, and the server has its next models."""
        self.sampling.took_part(number, took_part)

    @property
    def over(self) -> bool:
        """Whether no round may follow."""
        return False

    def close(self) -> None:
        """The run ends in order."""

    def progress(self) -> dict[str, int]:
        """See `ServerPart`."""
        return {}

    def go_on(self, progress: Mapping[str, int]) -> None:
        """Takes in what `progress` gave."""

    def state(self) -> dict[str, Tensor]:
        """See `Sampling`."""
        return self.sampling.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Sampling`."""
        self.sampling.load_state(state)


def combine_models(
    rule: RobustRule,
    sent: Tensor,
    answers: Answers,
    weights: Mapping[int, float],
    num_weight_blocks: int,
    *,
    as_differences: bool,
) -> Tensor:
    """The server's next models, float64 `ModelVector.shape`, even if some clients lie.

    `mean` is the papers' weighted mean of models, or of `as_differences`. The other rules
    (`gan/aggregation_rules.py`) give each client one vote. With fewer than three answers no rule
    can tell which one lies, and the mean is used. Both models of a client are one vector, so that
    a client that lies about one of them is judged for both.

    Rules look at weights alone: BatchNorm's count of batches is farther from the one before than
    all weights together. Buffers have their median, which a minority cannot move beyond what
    honest clients say.
    """
    singles = answers.singles
    if rule.name == "mean" or len(singles) < LEAST_TO_VOTE:
        mean = average(singles, answers.sums, weights)
        return sent.double() + mean if as_differences else mean
    by_part, parts = [], (slice(num_weight_blocks), slice(num_weight_blocks, None))
    for part, of_part in zip(parts, (rule, MEDIAN), strict=True):
        begin = sent[part]
        rows = [singles[client][part] for client in sorted(singles)]
        changes = rows if as_differences else [row - begin for row in rows]
        combined = combine(of_part, torch.stack(changes).flatten(1).unsqueeze(1))
        by_part.append(begin.double() + combined.view_as(begin))
    return torch.cat(by_part)


def check_weights(
    host: int,
    carried: Mapping[int, Collection[int]],
    least: int,
    *,
    weights: Mapping[int, float],
    uniform: bool,
) -> None:
    """Checks that no worker of a host weighs so much that the sum is almost its answer alone.

    As hosts may drop out, only those that weigh least count, of as many as must survive (`least`).

    Raises:
        NotMasked: a weight is none, or of a worker that no host of the sum has; or one worker of
            this host has 1 / (least - 1) of the weight, or more.
    """
    if not weights.keys() <= {worker for own in carried.values() for worker in own}:
        raise NotMasked("it gives weights to workers that no host of the sum has")
    if not all(isfinite(weight) and weight >= 0 for weight in weights.values()):
        raise NotMasked("it gives weights that are none")
    if uniform and len(set(weights.values())) > 1:
        raise NotMasked("it gives workers different weights, and the run has --weighting uniform")
    of_host = {h: sum(weights.get(worker, 0.0) for worker in own) for h, own in carried.items()}
    others = sorted(weight for h, weight in of_host.items() if h != host)
    survive = max(least, threshold(len(carried)))
    left = of_host[host] + sum(others[: survive - 1])
    heaviest = max(carried[host], key=lambda worker: weights.get(worker, 0.0))
    if not weights.get(heaviest, 0.0) * (least - 1) < left:
        raise NotMasked(
            f"rank {heaviest} has {weights.get(heaviest, 0.0) / (left or 1.0):.0%} of the weight "
            f"of a sum, and a host that insists on {least} hosts gives less than "
            f"{1 / (least - 1):.0%}"
        )
