"""FID from sums equals FID from all samples, computed another way."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.metrics.fid import Moments, frechet_distance, why_no_distance
from tests.unit.metrics.small import normal

LINALG: Any = pytest.importorskip("scipy.linalg")


def reference(a: Tensor, b: Tensor) -> float:
    """The textbook's formula on all samples in one place."""
    x: npt.NDArray[np.float64] = a.numpy()
    y: npt.NDArray[np.float64] = b.numpy()
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
    expected = reference(real, generated)
    distance = frechet_distance(total, Moments.of(generated))
    assert distance == pytest.approx(expected, rel=1e-6)


def test_many_features() -> None:
    real, generated = normal(500, 64), normal(300, 64, seed=5, shift=0.1)
    distance = frechet_distance(Moments.of(real), Moments.of(generated))
    assert distance == pytest.approx(reference(real, generated), rel=1e-6)


def test_means_alone() -> None:
    values = normal(200, 4)
    shifted = values + torch.tensor([3.0, 0, 4.0, 0], dtype=torch.float64)
    distance = frechet_distance(Moments.of(values), Moments.of(shifted))
    assert distance == pytest.approx(25.0, rel=1e-9)


def test_identical_sets_are_at_distance_zero() -> None:
    moments = Moments.of(normal(200, 32))
    assert 0 <= frechet_distance(moments, moments) < 1e-6


def test_it_is_symmetric() -> None:
    a, b = Moments.of(normal(80)), Moments.of(normal(90, seed=1, shift=1.0))
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-9)


def test_moments_far_from_zero_lose_little() -> None:
    a, b = normal(400, shift=1000.0), normal(400, seed=1, shift=1000.5)
    distance = frechet_distance(Moments.of(a), Moments.of(b))
    assert distance == pytest.approx(reference(a, b), rel=1e-4)


def test_random_numbers_are_left() -> None:
    state = torch.get_rng_state()
    frechet_distance(Moments.of(normal(20)), Moments.of(normal(20)))
    assert torch.equal(torch.get_rng_state(), state)


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


def test_no_covariance_of_one_sample() -> None:
    with pytest.raises(ValueError, match="two samples"):
        frechet_distance(Moments.of(normal(1)), Moments.of(normal(9)))
