"""Which classes are made, and the Inception score against NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.metrics.classes import (
    by_class,
    class_divergence,
    class_histogram,
    classes_covered,
    inception_score,
    score_from_sums,
)
from mdgan.metrics.distances import Moments, frechet_distance
from mdgan.metrics.extractor import Features
from mdgan.metrics.scores import score
from tests.unit.metrics.small import extractor_of, normal
from tests.unit.metrics.test_scores import HELD_OUT, REAL, scored, statistics


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


def test_divergence_from_what_is_never_seen_is_infinite() -> None:
    assert class_divergence(torch.tensor([1, 1]), torch.tensor([9, 0])) == math.inf


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


NUM_CLASSES, D = 4, 6
EXTRACTOR = extractor_of(num_features=D, num_classes=NUM_CLASSES)


def features(num_samples: int, seed: int, shift: float = 0.0) -> Features:
    values = normal(num_samples, D, seed, shift)
    labels = torch.arange(num_samples) % NUM_CLASSES
    return Features(values, (3 * values[:, :NUM_CLASSES]).softmax(1), labels)


GENERATED, KEPT = features(100, 2, 0.3), features(60, 3)


def test_the_share_that_is_right_is_counted() -> None:
    found = by_class(GENERATED, NUM_CLASSES, KEPT, EXTRACTOR)
    assert found.asked == [25] * 4
    assert GENERATED.probabilities is not None
    predicted = GENERATED.probabilities.argmax(1).tolist()
    pairs = [(y % NUM_CLASSES, c) for y, c in enumerate(predicted)]
    shares = [sum(pair == (c, c) for pair in pairs) / 25 for c in range(NUM_CLASSES)]
    assert found.right == pytest.approx(shares)
    assert found.label_accuracy == pytest.approx(sum(shares) / 4)


def test_fid_is_that_of_each_class_alone() -> None:
    found = by_class(GENERATED, NUM_CLASSES, KEPT, EXTRACTOR)
    wanted = [
        frechet_distance(Moments.of(KEPT.values[c::4]), Moments.of(GENERATED.values[c::4]))
        for c in range(NUM_CLASSES)
    ]
    assert found.fid == pytest.approx(wanted)
    assert found.intra_fid == pytest.approx(sum(wanted) / 4)
    assert found.left_out == {}


def test_too_few_real_samples_of_a_class_are_told() -> None:
    few = Features(KEPT.values[:26], None, KEPT.labels[:26] if KEPT.labels is not None else None)
    found = by_class(GENERATED, NUM_CLASSES, few, EXTRACTOR)
    assert [value is None for value in found.fid] == [False, False, True, True]
    assert found.intra_fid is None
    assert "class 2: a covariance of 6 features needs at least 7" in found.left_out["intra_fid"]


def test_classes_of_another_kind_are_not_compared() -> None:
    other = extractor_of(num_features=D, num_classes=9)
    found = by_class(GENERATED, NUM_CLASSES, None, other)
    assert (found.right, found.fid) == ([], [])
    assert "does not know the data's classes" in found.left_out["label_accuracy"]
    assert "--held-out" in found.left_out["intra_fid"]


def test_only_conditional_runs_have_them() -> None:
    assert "by_class" not in scored().as_record()
    assert not {"label_accuracy", "intra_fid"} & {*scored().scores, *scored().left_out}
    kept = Features(HELD_OUT.values, HELD_OUT.probabilities, torch.arange(80) % NUM_CLASSES)
    result = score(GENERATED, statistics(REAL), kept, EXTRACTOR, 0, NUM_CLASSES)
    record = result.as_record()
    assert record["by_class"].keys() == {"asked", "right", "fid"}
    assert record["scores"].keys() >= {"label_accuracy", "intra_fid"}
