"""Scores class by class, against the same computed apart."""

import pytest
import torch

from mdgan.metrics.by_class import by_class
from mdgan.metrics.distances import Moments, frechet_distance
from mdgan.metrics.extractor import Features
from mdgan.metrics.scores import score
from tests.unit.metrics.small import extractor_of, normal
from tests.unit.metrics.test_scores import HELD_OUT, REAL, scored, statistics

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
