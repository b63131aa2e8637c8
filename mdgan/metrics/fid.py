"""The Fréchet Inception Distance (Heusel et al. 2017, equation 6) from sums alone."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mdgan.metrics.precomputed import Precomputed, quietly


@dataclass(frozen=True)
class Moments:
    """Sums over samples; those of a union are the sums of those of its parts.

    Attributes:
        num_samples: n.
        total: float64 [d], Σ f(x).
        outer: float64 [d, d], Σ f(x) f(x)ᵀ.
    """

    num_samples: int
    total: Tensor
    outer: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Moments":
        """The moments of features, float64 [n, d]."""
        return cls(len(values), values.sum(0), values.T @ values)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            self.num_samples + other.num_samples,
            self.total + other.total,
            self.outer + other.outer,
        )

    @property
    def num_features(self) -> int:
        """Length d of a feature vector."""
        return len(self.total)


def why_no_distance(moments: Moments, what: str) -> str | None:
    """Says why a covariance would be singular, or nothing.

    Args:
        moments: of one side.
        what: its samples, for the text.
    """
    needed = moments.num_features + 1
    if moments.num_samples >= needed:
        return None
    return (
        f"a covariance of {moments.num_features:,} features needs at least {needed:,} samples, "
        f"got {moments.num_samples:,} {what}"
    )


def frechet_distance(a: Moments, b: Moments) -> float:
    """‖μ_a − μ_b‖² + tr(Σ_a + Σ_b − 2 (Σ_a Σ_b)^½), by torchmetrics, in float64.

    Covariances are divided by n − 1. What rounding leaves below zero is zero.

    Returns:
        NaN if the features are so large that products of their sums are not finite.

    Raises:
        ValueError: fewer than two samples on a side.
    """
    from torchmetrics.image.fid import FrechetInceptionDistance  # takes seconds to import

    if min(a.num_samples, b.num_samples) < 2:
        raise ValueError("a covariance needs two samples")
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
