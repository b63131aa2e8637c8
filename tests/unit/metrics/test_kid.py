"""KID against the estimator written out in NumPy."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from mdgan.metrics.kid import kernel_distance
from tests.unit.metrics.small import normal

Array = npt.NDArray[np.float64]


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
def test_the_mean_and_spread_over_the_subsets(num: int) -> None:
    real, generated = normal(num), normal(num, seed=1, shift=0.3)
    mean, deviation = kernel_distance(real, generated, seed=11)
    values = subsets(real, generated, num // 2, 100, seed=11)
    assert mean == pytest.approx(np.mean(values), rel=1e-9)
    assert deviation == pytest.approx(np.std(values), rel=1e-9)


def test_the_mean_is_near_the_value_of_all_samples() -> None:
    real, generated = normal(400), normal(400, seed=1, shift=1.0)
    mean, deviation = kernel_distance(real, generated, seed=0)
    assert deviation > 0
    whole = unbiased(real.numpy(), generated.numpy())
    assert abs(mean - whole) < 4 * deviation / 10


def test_two_thousand_are_compared_in_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdgan.metrics.kid._NUM_SUBSETS", 3)
    real, generated = normal(2001, 3), normal(2001, 3, seed=1, shift=0.5)
    values = subsets(real, generated, 1000, 3, seed=2)
    mean, deviation = kernel_distance(real, generated, seed=2)
    assert mean == pytest.approx(np.mean(values), rel=1e-9)
    assert deviation == pytest.approx(np.std(values), rel=1e-9)


def test_seed_decides_and_random_numbers_are_left() -> None:
    real, generated = normal(50), normal(50, seed=1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = kernel_distance(real, generated, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert kernel_distance(real, generated, seed=5) == first
    assert kernel_distance(real, generated, seed=6) != first
