"""All scores together: which are computed, which are left out, and why."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from mdgan.metrics.distances import Moments, distance_of_real_data, frechet_distance
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.metrics.scores import Scores, score
from tests.unit.metrics.small import extractor_of, normal, some, with_classes

EXTRACTOR = extractor_of(num_features=6, num_classes=4)
PLAIN = extractor_of(num_features=6)
PAIRWISE = {"kid", "kid_std", "precision", "recall", "density", "coverage"}
OF_CLASSES = {"inception_score", "classes_covered", "class_kl"}
ALL = {"fid", *PAIRWISE, *OF_CLASSES}
REAL = with_classes(normal(300))
HELD_OUT = with_classes(normal(80, seed=1))
GENERATED = with_classes(normal(200, seed=2, shift=0.2))


def statistics(features: Features) -> RealStatistics:
    total = RealStatistics.empty(PLAIN if features.probabilities is None else EXTRACTOR)
    total.add(features)
    return total


def scored(
    generated: Features = GENERATED,
    real: Features = REAL,
    held_out: Features | None = HELD_OUT,
    seed: int = 0,
) -> Scores:
    extractor = PLAIN if generated.probabilities is None else EXTRACTOR
    return score(generated, statistics(real), held_out, extractor, seed)


def plain(features: Features) -> Features:
    return Features(features.values, None)


def assert_strict_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_everything_is_computed() -> None:
    result = scored()
    assert set(result.scores) == ALL
    assert result.left_out == {}
    assert (result.n, result.n_real, result.n_held_out, result.n_pairs) == (200, 300, 80, 80)
    assert result.extractor == EXTRACTOR.describe()
    assert_strict_json(result.as_record())


def test_fid_is_that_of_all_samples() -> None:
    result = scored()
    expected = frechet_distance(Moments.of(REAL.values), Moments.of(GENERATED.values))
    assert result.scores["fid"] == pytest.approx(expected, rel=1e-9)
    of_real = distance_of_real_data(Moments.of(REAL.values), len(GENERATED.values))
    assert result.real["fid"] == pytest.approx(of_real, rel=1e-9)


def test_the_seed_alone_decides_and_random_numbers_are_left() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = scored(seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    assert scored(seed=3) == first
    other = scored(seed=4)
    assert other.scores["kid"] != first.scores["kid"]
    assert other.scores["fid"] == first.scores["fid"]


def test_without_held_out_samples() -> None:
    result = scored(held_out=None)
    assert (result.n_held_out, result.n_pairs) == (0, 0)
    assert set(result.left_out) == PAIRWISE
    assert set(result.scores) == ALL - PAIRWISE
    (reason,) = set(result.left_out.values())
    assert reason.startswith("no held-out samples that the server may hold; name some with")


def test_without_classes() -> None:
    result = scored(plain(GENERATED), plain(REAL), plain(HELD_OUT))
    assert set(result.left_out) == OF_CLASSES
    assert set(result.scores) == ALL - OF_CLASSES
    assert set(result.left_out.values()) == {"extractor pixels has no classes"}
    assert (list(result.real), result.class_histogram) == (["fid"], [])
    assert result.real_class_histogram == []
    assert_strict_json(result.as_record())


@pytest.mark.parametrize(
    ("num_generated", "num_real", "says"),
    [
        (6, 300, "a covariance of 6 features needs at least 7 samples, got 6 generated"),
        (200, 5, "a covariance of 6 features needs at least 7 samples, got 5 real"),
        (200, 0, "a covariance of 6 features needs at least 7 samples, got 0 real"),
    ],
)
def test_too_few_for_a_covariance(num_generated: int, num_real: int, says: str) -> None:
    result = scored(with_classes(normal(num_generated)), with_classes(normal(num_real)))
    assert result.left_out["fid"] == says
    assert "fid" not in result.scores
    assert_strict_json(result.as_record())


def test_no_real_sample_known() -> None:
    result = scored(real=with_classes(normal(0)))
    assert result.left_out["class_kl"] == "no statistics of real samples"
    assert result.left_out["classes_covered"] == "no statistics of real samples"
    assert {"inception_score", "kid", "precision"} <= set(result.scores)
    assert result.real == {}


@pytest.mark.parametrize(
    ("num", "left_out"), [(3, PAIRWISE), (5, PAIRWISE - {"kid", "kid_std"}), (6, set())]
)
def test_too_few_held_out_samples(num: int, left_out: set[str]) -> None:
    result = scored(held_out=with_classes(normal(num)))
    assert set(result.left_out) == left_out
    assert all(f"got {num}" in reason for reason in result.left_out.values())


def test_few_generated_samples_are_warned_of() -> None:
    assert scored().warnings == [
        "FID from 200 samples is biased upwards; 2,048 or more are needed to compare"
    ]
    assert scored(with_classes(normal(2048))).warnings == []


def test_a_class_that_real_data_never_show() -> None:
    def sure(classes: list[int]) -> Features:
        probabilities = torch.eye(4, dtype=torch.float64)[torch.tensor(classes)]
        return Features(normal(len(classes)), probabilities)

    result = scored(sure([0, 1, 3] * 10), sure([0, 1, 2] * 10))
    assert result.left_out["class_kl"] == (
        "infinite: class 3 is generated but never predicted in the real data"
    )
    assert result.scores["classes_covered"] == 2
    assert result.scores["inception_score"] == pytest.approx(3.0)
    assert result.real.items() >= {"inception_score": pytest.approx(3.0), "classes": 3}.items()
    assert_strict_json(result.as_record())


def test_results_that_are_not_finite_stay_out_of_json() -> None:
    huge = Features(normal(50) * 1e160, None)
    for generated, real in ((huge, plain(REAL)), (plain(GENERATED), huge)):
        result = scored(generated, real, plain(HELD_OUT))
        assert all(math.isfinite(value) for value in result.scores.values())
        assert result.left_out["fid"] == "the result is not finite"
        assert "fid" not in result.real
        assert_strict_json(result.as_record())


def test_pairs_are_equal_in_number_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdgan.metrics.scores.MOST_PAIRS", 70)
    assert scored().n_pairs == 70
    assert scored(held_out=some(HELD_OUT, torch.arange(69))).n_pairs == 69


def of_classes(num_samples: int, seed: int, shift: float = 0.0) -> Features:
    labels = torch.arange(num_samples) % 4
    return replace(with_classes(normal(num_samples, seed=seed, shift=shift)), labels=labels)


def by_class(
    generated: Features, held_out: Features | None, extractor: Extractor = EXTRACTOR
) -> Scores:
    return score(generated, statistics(REAL), held_out, extractor, 0, num_classes=4)


def test_each_class_of_a_conditional_generator_is_scored_alone() -> None:
    generated, kept = of_classes(100, 2, 0.3), of_classes(60, 3)
    result = by_class(generated, kept)
    assert generated.probabilities is not None
    predicted = generated.probabilities.argmax(1)
    shares = [float((predicted[c::4] == c).double().mean()) for c in range(4)]
    distances = [
        frechet_distance(Moments.of(kept.values[c::4]), Moments.of(generated.values[c::4]))
        for c in range(4)
    ]
    record = result.as_record()
    assert record["by_class"] == {
        "asked": [25] * 4,
        "right": pytest.approx(shares),
        "fid": pytest.approx(distances),
    }
    assert record["scores"]["label_accuracy"] == pytest.approx(sum(shares) / 4)
    assert record["scores"]["intra_fid"] == pytest.approx(sum(distances) / 4)
    assert record["left_out"] == {}
    assert "by_class" not in scored().as_record()


def test_what_keeps_classes_from_being_scored_is_told() -> None:
    generated, few = of_classes(100, 2, 0.3), of_classes(26, 3)
    result = by_class(generated, few)
    assert result.by_class is not None
    assert [value is None for value in result.by_class.fid] == [False, False, True, True]
    assert "intra_fid" not in result.scores
    assert "class 2: a covariance of 6 features needs at least 7" in result.left_out["intra_fid"]
    result = by_class(generated, None, extractor_of(num_features=6, num_classes=9))
    assert result.by_class is not None
    assert (result.by_class.right, result.by_class.fid) == ([], [])
    assert "does not know the data's classes" in result.left_out["label_accuracy"]
    assert "--held-out" in result.left_out["intra_fid"]
