"""Neighbours against loops over all pairs, and scores by them against scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from mdgan.metrics import neighbours as room
from mdgan.metrics.neighbours import PrecisionRecall, nearest, precision_recall
from tests.unit.metrics.small import normal


@pytest.mark.parametrize("num_held_out", [2, 7, 1200])
def test_neighbours_are_those_that_a_search_of_all_pairs_finds(num_held_out: int) -> None:
    draw = torch.Generator().manual_seed(num_held_out)
    generated = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    held_out = torch.randn(num_held_out, 4, generator=draw, dtype=torch.float64)
    found = nearest(generated, held_out)
    to_real = [[float((g - h).norm()) for h in held_out] for g in generated]
    assert found.places.tolist() == [row.index(min(row)) for row in to_real]
    median = sorted(map(min, to_real))[4]
    assert found.generated == pytest.approx(median)


def test_a_copy_is_nearer_than_real_samples_are_to_each_other() -> None:
    held_out = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    found = nearest(held_out[[2, 0]], held_out)
    assert found.places.tolist() == [2, 0]
    assert found.generated == 0.0
    assert found.real == 1.0  # of 1, 1, 2 and 4 the lower median


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
    k=st.integers(1, 7),
)
@settings(max_examples=25, deadline=None)
def test_against_the_definitions(
    num_real: int, num_generated: int, num_features: int, shift: float, seed: int, rows: int, k: int
) -> None:
    real = normal(num_real, num_features, seed)
    generated = normal(num_generated, num_features, seed + 1, shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_ROWS_AT_ONCE", rows)
        result = precision_recall(real, generated, k)
    assert result == pytest.approx(reference(real, generated, k), abs=1e-12)


def test_twins_are_neighbours() -> None:
    values = normal(10).repeat_interleave(6, dim=0)
    assert precision_recall(values, values).coverage == 1.0
    assert precision_recall(values, values + 1e-3).precision == 0.0
