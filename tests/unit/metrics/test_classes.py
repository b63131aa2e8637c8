"""Which classes are made."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan.metrics.classes import class_divergence, class_histogram, classes_covered


def test_histogram_counts_the_likeliest() -> None:
    p = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)
    assert class_histogram(p).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("generated", "real", "covered"),
    [
        ([10, 10, 10], [100, 100, 100], 3),
        ([30, 0, 0], [100, 100, 100], 1),
        ([90, 1, 9], [1, 1, 1], 2),
        ([97, 100, 3], [1, 1, 1], 2),
        ([90, 100, 10], [1, 1, 1], 3),
        ([900, 50, 50], [900, 50, 50], 3),
        ([996, 4, 0], [900, 50, 50], 1),
        ([995, 5, 0], [900, 50, 50], 2),
        ([10, 10, 10], [100, 100, 0], 2),
    ],
)
def test_a_class_is_covered_from_a_tenth_of_its_share_on(
    generated: list[int], real: list[int], covered: int
) -> None:
    assert classes_covered(torch.tensor(generated), torch.tensor(real)) == covered


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), min_size=2, max_size=9))
def test_divergence(pairs: list[tuple[int, int]]) -> None:
    generated, real = (np.array(counts) for counts in zip(*pairs, strict=True))
    generated[0] += 1
    g, r = generated / generated.sum(), real / real.sum()
    expected = sum(a * math.log(a / b) for a, b in zip(g, r, strict=True) if a > 0)
    found = class_divergence(torch.from_numpy(generated), torch.from_numpy(real))
    assert found == pytest.approx(expected, abs=1e-12)
    assert found >= 0


def test_divergence_of_equal_shares_is_zero() -> None:
    assert class_divergence(torch.tensor([3, 5, 0]), torch.tensor([30, 50, 0])) == 0.0


def test_divergence_of_collapse_onto_one_of_ten() -> None:
    collapsed = torch.tensor([50, *[0] * 9])
    assert class_divergence(collapsed, torch.full((10,), 7)) == pytest.approx(math.log(10))


def test_divergence_from_what_is_never_seen_is_infinite() -> None:
    assert class_divergence(torch.tensor([1, 1]), torch.tensor([9, 0])) == math.inf
