"""Which classes a generator makes, how well each, and the Inception score.

The Inception score is exp E_x KL(p(y|x) ‖ p(y)) (Salimans et al. 2016, section 4). With a
classifier of the data set instead of Inception it is the MD-GAN paper's "MNIST score" (section
V.A.c). Higher is better, up to K, the number of classes.
"""

import math

import torch
from torch import Tensor

LEAST_SHARE = 0.1
"""A class is lost if it has less than this fraction of its share in the real data."""


def class_histogram(probabilities: Tensor) -> Tensor:
    """How many samples are predicted to be of each class, int64 [K]."""
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])


def classes_covered(generated: Tensor, real: Tensor) -> int:
    """The number of classes that get at least a tenth of the share they have in the real data."""
    wanted = LEAST_SHARE * real.double() / real.sum()
    return int((generated.double() / generated.sum() >= wanted)[real > 0].sum())


def class_divergence(generated: Tensor, real: Tensor) -> float:
    """KL(generated ‖ real) of class histograms in nats; ∞ if a class is not among the real."""
    made, true = generated.double() / generated.sum(), real.double() / real.sum()
    present = generated > 0
    return max(0.0, float((made[present] * (made[present] / true[present]).log()).sum()))


def inception_score(probabilities: Tensor) -> float:
    """The Inception score of all samples, p(y|x) float64 [n, K], together (one split)."""
    negative_entropies = torch.xlogy(probabilities, probabilities)
    return score_from_sums(
        len(probabilities), probabilities.sum(0), float(negative_entropies.sum())
    )


def score_from_sums(
    num_samples: int, probability_sum: Tensor, negative_entropy_sum: float
) -> float:
    """The same score if only sums over the samples are known.

    log IS = (1/n) Σ_x Σ_y p(y|x) log p(y|x) − Σ_y p(y) log p(y), p(y) = (1/n) Σ_x p(y|x).
    """
    marginal = probability_sum / num_samples
    return math.exp(
        negative_entropy_sum / num_samples - float(torch.xlogy(marginal, marginal).sum())
    )
