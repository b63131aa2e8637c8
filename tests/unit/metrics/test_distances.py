"""FID from sums against the formula on all samples; KID against the estimator in NumPy."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.metrics.distances import Moments, frechet_distance, kernel_distance, why_no_distance
from tests.unit.metrics.small import normal

LINALG: Any = pytest.importorskip("scipy.linalg")

Array = npt.NDArray[np.float64]


def frechet_by_formula(a: Tensor, b: Tensor) -> float:
    """The textbook's formula on all samples in one place."""
    x: Array = a.numpy()
    y: Array = b.numpy()
    cov_x, cov_y = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    root = LINALG.sqrtm(cov_x @ cov_y).real
    difference = x.mean(0) - y.mean(0)
    return float(difference @ difference + np.trace(cov_x + cov_y - 2 * root))


@given(
    owners=st.lists(st.integers(0, 4), min_size=20, max_size=120),
    seed=st.integers(0, 1000),
    shift=st.floats(-3, 3),
)
@settings(max_examples=25, deadline=None)
def test_summed_moments_of_any_partition_give_the_central_value(
    owners: list[int], seed: int, shift: float
) -> None:
    real, generated = normal(len(owners), seed=seed), normal(60, seed=seed + 1, shift=shift)
    whose = torch.tensor(owners)
    total = Moments.of(real[:0])
    for worker in range(5):
        total = total + Moments.of(real[whose == worker])
    assert total.num_samples == len(owners)
    expected = frechet_by_formula(real, generated)
    distance = frechet_distance(total, Moments.of(generated))
    assert distance == pytest.approx(expected, rel=1e-6)


def test_moments_far_from_zero_lose_little() -> None:
    a, b = normal(400, shift=1000.0), normal(400, seed=1, shift=1000.5)
    distance = frechet_distance(Moments.of(a), Moments.of(b))
    assert distance == pytest.approx(frechet_by_formula(a, b), rel=1e-4)


def test_too_few_samples_are_said_with_how_many_are_needed() -> None:
    assert why_no_distance(Moments.of(normal(7)), "real") is None
    assert why_no_distance(Moments.of(normal(50, 64)), "generated") == (
        "a covariance of 64 features needs at least 65 samples, got 50 generated"
    )


def test_features_that_are_too_large_give_nan_and_not_zero(
    capfd: pytest.CaptureFixture[str],
) -> None:
    huge = Moments.of(normal(50) * 1e160)
    assert math.isnan(frechet_distance(huge, Moments.of(normal(50))))
    assert capfd.readouterr() == ("", "")


def kernel(x: Array, y: Array) -> Array:
    return np.asarray((x @ y.T / x.shape[1] + 1) ** 3)


def unbiased(x: Array, y: Array) -> float:
    """Equation 3 of Gretton et al. 2012, for as many x as y, all pairs in the cross term."""
    n = len(x)
    own = [(kernel(v, v).sum() - np.trace(kernel(v, v))) / (n * (n - 1)) for v in (x, y)]
    return float(own[0] + own[1] - 2 * kernel(x, y).mean())


def subsets(real: Tensor, generated: Tensor, size: int, num: int, seed: int) -> list[float]:
    """The estimates of subsets drawn as torchmetrics draws them."""
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(num):
        x, y = (
            part[torch.randperm(len(part), generator=generator)[:size]].numpy()
            for part in (real, generated)
        )
        values.append(unbiased(x, y))
    return values


@pytest.mark.parametrize("num", [4, 5, 60])
def test_kid_is_mean_and_spread_over_subsets(num: int) -> None:
    real, generated = normal(num), normal(num, seed=1, shift=0.3)
    mean, deviation = kernel_distance(real, generated, seed=11)
    values = subsets(real, generated, num // 2, 100, seed=11)
    assert mean == pytest.approx(np.mean(values), rel=1e-9)
    assert deviation == pytest.approx(np.std(values), rel=1e-9)


def test_the_seed_decides_kid_and_random_numbers_are_left() -> None:
    real, generated = normal(50), normal(50, seed=1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = kernel_distance(real, generated, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert kernel_distance(real, generated, seed=5) == first
    assert kernel_distance(real, generated, seed=6) != first
