"""Which classes are made, and the Inception score against NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.metrics.classes import (
    class_divergence,
    classes_covered,
    inception_score,
    score_from_sums,
)


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


def random_probabilities(num: int, num_classes: int, sharpness: float, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(num, num_classes, generator=random, dtype=torch.float64)
    return (sharpness * logits).softmax(1)


def score_by_formula(probabilities: Tensor) -> float:
    p = probabilities.numpy()
    marginal = p.mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(marginal)), 0.0)
    return float(np.exp(terms.sum(1).mean()))


def from_sums(p: Tensor) -> float:
    return score_from_sums(len(p), p.sum(0), float(torch.xlogy(p, p).sum()))


@given(
    num=st.integers(1, 40),
    num_classes=st.integers(2, 12),
    sharpness=st.floats(0, 500),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_both_ways_give_the_inception_score_of_the_textbook(
    num: int, num_classes: int, sharpness: float, seed: int
) -> None:
    p = random_probabilities(num, num_classes, sharpness, seed)
    expected = score_by_formula(p)
    assert inception_score(p) == pytest.approx(expected, rel=1e-9)
    assert from_sums(p) == pytest.approx(expected, rel=1e-9)
    assert 1 - 1e-9 <= expected <= num_classes + 1e-9
