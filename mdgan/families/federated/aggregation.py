"""How the models that workers send back become the server's, even if some workers lie.

`mean` is the papers' weighted mean. The other rules (`gan/aggregation_rules.py`) give each worker
one vote and combine differences between what came back and what was sent. Both models of a worker
are one vector, as they are one object in FL-GAN (Hardy et al. 2019, section III-c): a worker that
lies about one of them is judged for both.

Rules look at weights alone. Buffers are no place for distances: BatchNorm counts batches, and a
count that grows by 30 a round is farther from the one before than all weights together. So buffers
have their median with every rule, which a minority cannot move beyond what honest workers say.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.gan.aggregation_form import MEDIAN, RobustRule
from mdgan.gan.aggregation_rules import LEAST_TO_VOTE, combine
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.weighted_mean import average


def combine_models(
    rule: RobustRule,
    sent: Tensor,
    answers: Answers,
    weights: Mapping[int, float],
    vector: ModelVector,
    *,
    as_differences: bool,
) -> Tensor:
    """The server's next models.

    Args:
        rule: how to combine. With fewer than three answers no rule can tell which one lies, and the
            mean is used.
        sent: the models that workers began with, float32 `vector.shape`.
        answers: theirs, at least one; no sums unless the rule is `mean`.
        weights: of the workers that answered, for the mean; other rules need equal ones.
        vector: of both models.
        as_differences: whether workers sent what training has changed, not the models.

    Returns:
        float64 `vector.shape`.
    """
    singles = answers.singles
    if rule.name == "mean" or len(singles) < LEAST_TO_VOTE:
        mean = average(singles, answers.sums, weights)
        return sent.double() + mean if as_differences else mean
    num_blocks = vector.num_weight_blocks
    by_part = []
    for part, of_part in ((slice(num_blocks), rule), (slice(num_blocks, None), MEDIAN)):
        begin = sent[part]
        rows = [singles[worker][part] for worker in sorted(singles)]
        changes = rows if as_differences else [row - begin for row in rows]
        combined = combine(of_part, torch.stack(changes).flatten(1).unsqueeze(1))
        by_part.append(begin.double() + combined.view_as(begin))
    return torch.cat(by_part)
