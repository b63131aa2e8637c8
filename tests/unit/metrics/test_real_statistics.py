"""Workers' statistics add up to those of all samples in one place."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.metrics.distances import Moments, inception_score
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealStatistics
from tests.marks import examples
from tests.unit.metrics.small import extractor_of, normal, some, with_classes

EXTRACTOR = extractor_of(num_features=6, num_classes=4)
PLAIN = extractor_of(num_features=6)


def told_of(
    features: Features, pieces: list[int] | None = None, extractor: Extractor = EXTRACTOR
) -> RealStatistics:
    """One worker's statistics, taken in piece by piece."""
    statistics, position = RealStatistics.empty(extractor), 0
    for size in [*(pieces or []), len(features)]:
        piece = some(features, torch.arange(position, min(position + size, len(features))))
        statistics.add(piece)
        position += len(piece)
    return statistics


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    pieces=st.lists(st.integers(1, 20), max_size=4),
    seed=st.integers(0, 100),
)
@settings(max_examples=examples(10), deadline=None)
def test_any_partition_in_any_pieces_adds_up(
    sizes: list[int], pieces: list[int], seed: int
) -> None:
    everything = with_classes(normal(sum(sizes), seed=seed))
    total, start = RealStatistics.empty(EXTRACTOR), 0
    for size in sizes:
        part = told_of(some(everything, torch.arange(start, start + size)), pieces)
        before = {name: tensor.clone() for name, tensor in part.tensors().items()}
        total = total + part
        assert all(torch.equal(each, before[name]) for name, each in part.tensors().items())
        start += size
    probabilities = everything.probabilities
    assert probabilities is not None
    assert total.num_samples == total.moments.num_samples == sum(sizes)
    expected = Moments.of(everything.values)
    torch.testing.assert_close(total.moments.total, expected.total)
    torch.testing.assert_close(total.moments.outer, expected.outer)
    torch.testing.assert_close(total.tensors()["probability_sum"], probabilities.sum(0))
    counts = [int((probabilities.argmax(1) == c).sum()) for c in range(4)]
    assert total.class_histogram.tolist() == counts
    if sum(sizes):
        score = inception_score(probabilities)
        assert total.inception_score() == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("extractor", [EXTRACTOR, PLAIN])
def test_round_trip_through_a_file(extractor: Extractor) -> None:
    features = with_classes(normal(20))
    if extractor is PLAIN:
        features = Features(features.values, None)
    statistics = told_of(features, extractor=extractor)
    sent = load(save(statistics.tensors()))
    back = RealStatistics.from_tensors(sent)
    for tensor in sent.values():
        tensor.zero_()  # they were copied
    one, other = statistics.tensors(), back.tensors()
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert {tensor.dtype for tensor in other.values()} == {torch.float64, torch.int64}
    assert back.num_classes == extractor.num_classes


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("total", torch.zeros(6)),
        ("total", torch.zeros(5, dtype=torch.float64)),
        ("total", torch.full((6,), math.nan, dtype=torch.float64)),
        ("outer", torch.zeros(6, dtype=torch.float64)),
        ("num_samples", torch.tensor(-1)),
        ("num_samples", torch.tensor(1.0)),
        ("class_histogram", torch.tensor([9, 9, 9, 9])),
        ("class_histogram", torch.tensor([-1, 10, 0, 0])),
        ("class_histogram", torch.tensor(9)),
        ("probability_sum", torch.zeros(3, dtype=torch.float64)),
        ("negative_entropy_sum", torch.tensor(math.inf, dtype=torch.float64)),
        ("negative_entropy_sum", None),
    ],
)
def test_damaged_statistics_are_refused(name: str, tensor: Tensor | None) -> None:
    tensors = told_of(with_classes(normal(9))).tensors()
    del tensors[name]
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(BadInput, match="damaged statistics of real samples") as caught:
        RealStatistics.from_tensors(tensors)
    assert len(str(caught.value).splitlines()) == 1


def test_statistics_of_different_extractors_do_not_add_up() -> None:
    with pytest.raises(BadInput, match="give every rank the same extractor"):
        RealStatistics.empty(EXTRACTOR) + RealStatistics.empty(PLAIN)
    with pytest.raises(BadInput, match="6 features and 0 classes"):
        RealStatistics.empty(EXTRACTOR).add(Features(normal(3), None))
