"""Distances between generated and real samples: FID and KID by torchmetrics, and neighbours.

FID: Heusel et al. 2017, equation 6; computed from sums over the samples alone. KID: Bińkowski et
al. 2018, "Demystifying MMD GANs". Precision and recall: Kynkäänniemi et al. 2019, "Improved
precision and recall metric for assessing generative models", equations 1 and 2. Density and
coverage: Naeem et al. 2020, "Reliable fidelity and diversity metrics for generative models",
section 3.

And which classes a generator makes. The Inception score is exp E_x KL(p(y|x) ‖ p(y)) (Salimans et
al. 2016, section 4). With a classifier of the data set instead of Inception it is the MD-GAN
paper's "MNIST score" (section V.A.c). Higher is better, up to K, the number of classes.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mdgan.errors import without_warnings
from mdgan.gan.randomness import RandomState
from mdgan.metrics.extractor import CPU

LEAST_FOR_KID = 4
_NUM_SUBSETS = 100
_MOST_IN_SUBSET = 1000
NUM_NEIGHBOURS = 5
_ROWS_AT_ONCE = 1000
_MOST_ASKED = 500
_LEAST_SHARE = 0.1
"""A class is lost if it has less than this fraction of its share in the real data."""


@dataclass(frozen=True)
class Moments:
    """Sums over samples, Σ f(x) and Σ f(x) f(x)ᵀ, float64."""

    num_samples: int
    total: Tensor
    outer: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Moments":
        """The moments of features, float64 [n, d]."""
        return cls(len(values), values.sum(0), values.T @ values)

    @property
    def num_features(self) -> int:
        """Length d of a feature vector."""
        return len(self.total)


def why_no_distance(moments: Moments, what: str) -> str | None:
    """Says why a covariance would be singular; None if it would not."""
    needed = moments.num_features + 1
    if moments.num_samples >= needed:
        return None
    return (
        f"a covariance of {moments.num_features:,} features needs at least {needed:,} samples, "
        f"got {moments.num_samples:,} {what}"
    )


def frechet_distance(a: Moments, b: Moments) -> float:
    """‖μ_a − μ_b‖² + tr(Σ_a + Σ_b − 2 (Σ_a Σ_b)^½), by torchmetrics, in float64.

    Covariances are divided by n − 1. If rounding leaves the result below zero, it is zero.

    Returns:
        NaN if the features are so large that products of their sums are not finite.
    """
    from torchmetrics.image.fid import FrechetInceptionDistance  # takes seconds to import

    if not (a.outer.trace() * b.outer.trace()).isfinite():  # LAPACK would complain on stdout
        return math.nan
    with quietly(0):
        metric = FrechetInceptionDistance(Precomputed(a.num_features), sync_on_compute=False)
        metric.set_dtype(torch.float64)
        nothing = torch.empty(0, a.num_features, dtype=torch.float64)
        for real in (True, False):
            metric.update(nothing, real=real)  # tells it the dtype of the result
        for side, moments in (("real", a), ("fake", b)):
            setattr(metric, f"{side}_features_sum", moments.total)
            setattr(metric, f"{side}_features_cov_sum", moments.outer)
            count = torch.tensor(moments.num_samples)
            setattr(metric, f"{side}_features_num_samples", count)
        distance = float(metric.compute())
    return 0.0 if distance < 0 else distance  # max() would turn NaN into 0


def distance_of_real_data(real: Moments, num_others: int) -> float:
    """The mean FID of as many further real samples, or of a perfect generator.

    Samples of one distribution differ by chance. For normal features whose covariance has the
    eigenvalues λ that makes, to first order in 1/N and 1/n,
    (1/N + 1/n) (Σᵢ λᵢ + ½ Σᵢⱼ (1 + δᵢⱼ) λᵢ λⱼ / (λᵢ + λⱼ)): a line in 1/N, as Chong and Forsyth
    2020 ("Effectively Unbiased FID") found it to be. It depends on all real samples and no seed.

    Returns:
        NaN if the covariance is not finite.
    """
    n = real.num_samples
    covariance = (real.outer - torch.outer(real.total, real.total) / n) / (n - 1)
    if not covariance.isfinite().all():
        return math.nan
    values = torch.linalg.eigvalsh(covariance).clamp(min=0)
    sums = (values[:, None] + values).clamp(min=torch.finfo(values.dtype).tiny)
    pairs = values[:, None] * values / sums
    slope = values.sum() + (pairs.sum() + pairs.diagonal().sum()) / 2
    return float((1 / num_others + 1 / n) * slope)


def kernel_distance(real: Tensor, generated: Tensor, seed: int) -> tuple[float, float]:
    """The unbiased squared MMD with the kernel (xᵀy/d + 1)³, by torchmetrics, in float64.

    The mean and the deviation are over 100 random subsets of 1,000 samples of each kind. With
    fewer than 2,000 samples a subset has half of them: subsets of all of them have no spread.
    """
    from torchmetrics.image.kid import KernelInceptionDistance  # takes seconds to import

    size = min(_MOST_IN_SUBSET, min(len(real), len(generated)) // 2)
    with quietly(seed):
        metric = KernelInceptionDistance(
            Precomputed(real.shape[1]),
            subsets=_NUM_SUBSETS,
            subset_size=size,
            sync_on_compute=False,
        )
        metric.update(real, real=True)
        metric.update(generated, real=False)
        mean, deviation = metric.compute()
    return float(mean), float(deviation)


class Precomputed(nn.Module):
    """Stands in for a metric's network; returns the features that it is called with."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        """Returns the features [n, d] unchanged."""
        return features


@contextmanager
def quietly(seed: int) -> Iterator[None]:
    """In this block torchmetrics draws from `seed`, and its UserWarnings are hidden.

    They are about the memory that it will use, and about the spread over a single split.
    """
    with RandomState(seed, CPU).in_place(), without_warnings(UserWarning):
        yield


class PrecisionRecall(NamedTuple):
    """Four scores, each 1 for a perfect generator, up to chance; density may exceed 1."""

    precision: float  # share of generated samples in at least one real sample's ball
    recall: float  # share of real samples in at least one generated sample's ball
    density: float  # mean number of real samples' balls that a generated sample lies in, by k
    coverage: float  # share of real samples whose ball has a generated sample


def precision_recall(
    real: Tensor, generated: Tensor, num_neighbours: int = NUM_NEIGHBOURS
) -> PrecisionRecall:
    """Compares two sets, of more than k each, by balls that reach to k-th nearest neighbours."""
    centre = real.mean(0)  # distances of centred values lose fewer digits
    real, generated = real - centre, generated - centre
    real_radii = _radii(real, num_neighbours)
    generated_radii = _radii(generated, num_neighbours)
    num_balls = torch.zeros(len(generated), dtype=torch.int64)
    recalled, covered = [], []
    for rows, distances in _distances(real, generated):
        inside = distances <= real_radii[rows].unsqueeze(1)
        num_balls += inside.sum(0)
        covered.append(inside.any(1))
        recalled.append((distances <= generated_radii).any(1))
    return PrecisionRecall(
        precision=_share(num_balls > 0),
        recall=_share(torch.cat(recalled)),
        density=float(num_balls.double().mean()) / num_neighbours,
        coverage=_share(torch.cat(covered)),
    )


def _radii(values: Tensor, num_neighbours: int) -> Tensor:
    """The distance of each sample, [n, d], to its k-th nearest neighbour, [n]."""
    parts = []
    for rows, distances in _distances(values, values):
        # A sample is not its own neighbour, but an exact copy of it is.
        distances[torch.arange(len(distances)), torch.arange(rows.start, rows.stop)] = torch.inf
        closest = distances.topk(num_neighbours, dim=1, largest=False, sorted=False).values
        parts.append(closest.amax(1))
    return torch.cat(parts)


def _distances(a: Tensor, b: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """‖a_i − b_j‖, for a few rows at a time, which bounds the memory."""
    for start in range(0, len(a), _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, len(a)))
        yield rows, torch.cdist(a[rows], b)


def _share(yes: Tensor) -> float:
    return float(yes.double().mean())


class Nearest(NamedTuple):
    """How near generated samples come to held-out ones."""

    places: Tensor
    generated: float
    real: float


def nearest(generated: Tensor, held_out: Tensor) -> Nearest:
    """Finds nearest neighbours by Euclidean distance."""
    distances, places = torch.cdist(generated, held_out).min(dim=1)
    asked = torch.linspace(0, len(held_out) - 1, min(len(held_out), _MOST_ASKED)).long()
    to_others = torch.cdist(held_out[asked], held_out)
    to_others[torch.arange(len(asked)), asked] = torch.inf
    real = to_others.min(dim=1).values.median()
    return Nearest(places, float(distances.median()), float(real))


def class_histogram(probabilities: Tensor) -> Tensor:
    """How many samples are predicted to be of each class, int64 [K]."""
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])


def classes_covered(generated: Tensor, real: Tensor) -> int:
    """The number of classes that get at least a tenth of the share they have in the real data."""
    wanted = _LEAST_SHARE * real.double() / real.sum()
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
    """The Inception score from sums over the samples.

    log IS = (1/n) Σ_x Σ_y p(y|x) log p(y|x) − Σ_y p(y) log p(y), p(y) = (1/n) Σ_x p(y|x).
    """
    marginal = probability_sum / num_samples
    return math.exp(
        negative_entropy_sum / num_samples - float(torch.xlogy(marginal, marginal).sum())
    )
