"""Precision, recall, density and coverage against scikit-learn's neighbours, one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from mdgan.metrics import precision_recall as room
from mdgan.metrics.precision_recall import PrecisionRecall, precision_recall
from tests.unit.metrics.small import normal


def reference(real: Tensor, generated: Tensor, k: int) -> PrecisionRecall:
    """The definitions of both papers with loops over samples."""
    x, y = real.numpy(), generated.numpy()
    radii = []
    for values in (x, y):
        neighbours = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(values)
        radii.append(neighbours.kneighbors(values)[0][:, -1])
    distances = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in y] for a in x])
    in_real = distances <= radii[0][:, None]
    in_generated = distances <= radii[1][None, :]
    return PrecisionRecall(
        precision=float(np.mean([column.any() for column in in_real.T])),
        recall=float(np.mean([row.any() for row in in_generated])),
        density=float(np.mean([column.sum() / k for column in in_real.T])),
        coverage=float(np.mean([row.any() for row in in_real])),
    )


@given(
    num_real=st.integers(8, 50),
    num_generated=st.integers(8, 50),
    num_features=st.integers(2, 9),
    shift=st.floats(-3, 3),
    seed=st.integers(0, 1000),
    rows=st.sampled_from([3, 1000]),
)
@settings(max_examples=25, deadline=None)
def test_against_the_definitions(
    num_real: int, num_generated: int, num_features: int, shift: float, seed: int, rows: int
) -> None:
    real = normal(num_real, num_features, seed)
    generated = normal(num_generated, num_features, seed + 1, shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_ROWS_AT_ONCE", rows)
        result = precision_recall(real, generated)
    assert result == pytest.approx(reference(real, generated, 5), abs=1e-12)


def test_other_numbers_of_neighbours() -> None:
    real, generated = normal(60), normal(40, seed=1)
    for k in (1, 3, 10):
        expected = reference(real, generated, k)
        assert precision_recall(real, generated, k) == pytest.approx(expected, abs=1e-12)


def test_identical_sets() -> None:
    values = normal(300, 16)
    result = precision_recall(values, values.clone())
    assert (result.precision, result.recall, result.coverage) == (1.0, 1.0, 1.0)
    assert result.density >= 1.0


def test_sets_from_the_same_distribution() -> None:
    result = precision_recall(normal(1500, 3), normal(1500, 3, seed=1))
    assert min(result.precision, result.recall, result.coverage) > 0.9
    assert result.density == pytest.approx(1.0, abs=0.1)


def test_all_samples_in_one_place() -> None:
    real = normal(200)
    result = precision_recall(real, real[:1].repeat(200, 1))
    assert result.precision == 1.0
    assert result.recall <= 0.01
    assert result.coverage < 0.2


def test_far_away() -> None:
    assert precision_recall(normal(50), normal(50, shift=1e6)) == (0.0, 0.0, 0.0, 0.0)


def test_twins_are_neighbours() -> None:
    values = normal(10).repeat_interleave(6, dim=0)
    assert precision_recall(values, values).coverage == 1.0
    assert precision_recall(values, values + 1e-3).precision == 0.0


def test_a_generated_half_is_precise_but_does_not_recall() -> None:
    modes = torch.cat([normal(200), normal(200, seed=1, shift=100.0)])
    result = precision_recall(modes, normal(200, seed=2))
    assert result.precision > 0.9
    assert result.recall <= 0.5
    assert result.coverage <= 0.5


@pytest.mark.parametrize(("num_real", "num_generated"), [(5, 50), (50, 5)])
def test_too_few(num_real: int, num_generated: int) -> None:
    with pytest.raises(ValueError, match="more than 5 samples"):
        precision_recall(normal(num_real), normal(num_generated))
