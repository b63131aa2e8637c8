"""The Inception score (Salimans et al. 2016, section 4): exp E_x KL(p(y|x) ‖ p(y)).

With a classifier of the data set instead of Inception it is the MD-GAN paper's "MNIST score"
(section V.A.c). Higher is better; K, the number of classes, is the most.
"""

import math

import torch
from torch import Tensor

from mdgan.metrics.precomputed import Precomputed, quietly


def inception_score(probabilities: Tensor) -> float:
    """The score of all samples together (one split), by torchmetrics, in float64.

    Args:
        probabilities: float64 [n, K], p(y|x), n ≥ 1.
    """
    from torchmetrics.image.inception import InceptionScore  # takes seconds to import

    with quietly(0):
        metric = InceptionScore(
            Precomputed(probabilities.shape[1]), splits=1, sync_on_compute=False
        )
        # It wants logits. The smallest number in place of zero keeps 0 · log 0 from being NaN.
        metric.update(probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log())
        return float(metric.compute()[0])


def score_from_sums(
    num_samples: int, probability_sum: Tensor, negative_entropy_sum: float
) -> float:
    """The same score where only sums over the samples are known.

    log IS = (1/n) Σ_x Σ_y p(y|x) log p(y|x) − Σ_y p(y) log p(y), p(y) = (1/n) Σ_x p(y|x).

    Args:
        num_samples: n ≥ 1.
        probability_sum: float64 [K], Σ_x p(y|x).
        negative_entropy_sum: Σ_x Σ_y p(y|x) log p(y|x).
    """
    marginal = probability_sum / num_samples
    return math.exp(
        negative_entropy_sum / num_samples - float(torch.xlogy(marginal, marginal).sum())
    )
