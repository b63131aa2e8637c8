"""The Inception score against NumPy, and from sums alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.metrics.inception_score import inception_score, score_from_sums


def random_probabilities(num: int, num_classes: int, sharpness: float, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(num, num_classes, generator=random, dtype=torch.float64)
    return (sharpness * logits).softmax(1)


def reference(probabilities: Tensor) -> float:
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
def test_both_ways_give_the_textbooks_value(
    num: int, num_classes: int, sharpness: float, seed: int
) -> None:
    p = random_probabilities(num, num_classes, sharpness, seed)
    expected = reference(p)
    assert inception_score(p) == pytest.approx(expected, rel=1e-9)
    assert from_sums(p) == pytest.approx(expected, rel=1e-9)
    assert 1 - 1e-9 <= expected <= num_classes + 1e-9


def test_sure_and_even_is_the_number_of_classes() -> None:
    p = torch.eye(7, dtype=torch.float64).repeat(5, 1)
    assert inception_score(p) == pytest.approx(7.0)
    assert from_sums(p) == pytest.approx(7.0)


def test_one_class_only_and_unsure_are_both_worth_one() -> None:
    only = torch.eye(7, dtype=torch.float64)[:1].repeat(9, 1)
    unsure = torch.full((9, 7), 1 / 7, dtype=torch.float64)
    for p in (only, unsure):
        assert inception_score(p) == pytest.approx(1.0)
        assert from_sums(p) == pytest.approx(1.0)


def test_random_numbers_are_left() -> None:
    state = torch.get_rng_state()
    assert math.isfinite(inception_score(random_probabilities(9, 3, 1.0, 0)))
    assert torch.equal(torch.get_rng_state(), state)
