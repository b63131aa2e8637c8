"""Scores against references: FID, KID, classes, and neighbours."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from mdgan.metrics import distances as room
from mdgan.metrics.distances import (
    Moments,
    PrecisionRecall,
    class_divergence,
    classes_covered,
    distance_of_real_data,
    frechet_distance,
    inception_score,
    kernel_distance,
    nearest,
    precision_recall,
    score_from_sums,
    why_no_distance,
)
from mdgan.metrics.extractor import Features
from mdgan.metrics.real_statistics import RealStatistics
from tests.marks import examples
from tests.unit.metrics.small import extractor_of, normal

LINALG: Any = pytest.importorskip("scipy.linalg")

Array = npt.NDArray[np.float64]


def frechet_by_formula(a: Tensor, b: Tensor) -> float:
    """The textbook's formula on all samples in one place."""
    x: Array = a.numpy()
    y: Array = b.numpy()
    cov_x, cov_y = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    root = LINALG.sqrtm(cov_x @ cov_y).real
    difference = x.mean(0) - y.mean(0)
    return float(difference @ difference + np.trace(cov_x + cov_y - 2 * root))


@pytest.mark.parametrize(("num_real", "num_others"), [(60, 2000), (300, 300), (2000, 150)])
def test_what_real_data_get_is_what_more_of_them_get(num_real: int, num_others: int) -> None:
    """Of features with clusters and without negative numbers, as networks have them."""
    centres = normal(5, seed=3)

    def drawn(number: int, seed: int) -> Moments:
        which = torch.randint(5, (number,), generator=torch.Generator().manual_seed(seed))
        return Moments.of((normal(number, seed=seed) + centres[which]).relu())

    told = [distance_of_real_data(drawn(num_real, seed), num_others) for seed in range(20)]
    result = [frechet_distance(drawn(num_real, n), drawn(num_others, 500 + n)) for n in range(60)]
    assert sum(told) / len(told) == pytest.approx(sum(result) / len(result), rel=0.35)
    assert max(told) < 2 * min(told), "which samples were drawn plays little part"


@given(
    owners=st.lists(st.integers(0, 4), min_size=20, max_size=120),
    seed=st.integers(0, 1000),
    shift=st.floats(-3, 3),
)
@settings(max_examples=examples(10), deadline=None)
def test_summed_moments_of_any_partition_give_the_central_value(
    owners: list[int], seed: int, shift: float
) -> None:
    real, generated = normal(len(owners), seed=seed), normal(60, seed=seed + 1, shift=shift)
    whose = torch.tensor(owners)
    nothing = RealStatistics.empty(extractor_of(num_features=real.shape[1]))
    total = nothing
    for worker in range(5):
        own = nothing + nothing
        own.add(Features(real[whose == worker], None))
        total = total + own
    assert total.num_samples == len(owners)
    expected = frechet_by_formula(real, generated)
    distance = frechet_distance(total.moments, Moments.of(generated))
    assert distance == pytest.approx(expected, rel=1e-6)


def test_moments_far_from_zero_lose_little() -> None:
    a, b = normal(400, shift=1000.0), normal(400, seed=1, shift=1000.5)
    distance = frechet_distance(Moments.of(a), Moments.of(b))
    assert distance == pytest.approx(frechet_by_formula(a, b), rel=1e-4)


def test_too_few_samples_are_said_with_how_many_are_needed() -> None:
    assert why_no_distance(Moments.of(normal(7)), "real") is None
    assert why_no_distance(Moments.of(normal(50, 64)), "generated") == (
        "a covariance of 64 features needs at least 65 samples, got 50 generated"
    )


def test_features_that_are_too_large_give_nan_and_not_zero(
    capfd: pytest.CaptureFixture[str],
) -> None:
    huge = Moments.of(normal(50) * 1e160)
    assert math.isnan(frechet_distance(huge, Moments.of(normal(50))))
    assert capfd.readouterr() == ("", "")


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
def test_kid_is_mean_and_spread_over_subsets(num: int) -> None:
    real, generated = normal(num), normal(num, seed=1, shift=0.3)
    mean, deviation = kernel_distance(real, generated, seed=11)
    values = subsets(real, generated, num // 2, 100, seed=11)
    assert mean == pytest.approx(np.mean(values), rel=1e-9)
    assert deviation == pytest.approx(np.std(values), rel=1e-9)


def test_the_seed_decides_kid_and_random_numbers_are_left() -> None:
    real, generated = normal(50), normal(50, seed=1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = kernel_distance(real, generated, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert kernel_distance(real, generated, seed=5) == first
    assert kernel_distance(real, generated, seed=6) != first


# Which classes are made, and the Inception score against NumPy.


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
    result = class_divergence(torch.from_numpy(generated), torch.from_numpy(real))
    assert result == pytest.approx(expected, abs=1e-12)
    assert result >= 0


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
@settings(max_examples=examples(10), deadline=None)
def test_both_ways_give_the_inception_score_of_the_textbook(
    num: int, num_classes: int, sharpness: float, seed: int
) -> None:
    p = random_probabilities(num, num_classes, sharpness, seed)
    expected = score_by_formula(p)
    assert inception_score(p) == pytest.approx(expected, rel=1e-9)
    assert from_sums(p) == pytest.approx(expected, rel=1e-9)
    assert 1 - 1e-9 <= expected <= num_classes + 1e-9


# Neighbours against loops over all pairs, and scores by them against scikit-learn.


@pytest.mark.parametrize("num_held_out", [2, 7, 1200])
def test_neighbours_are_those_that_a_search_of_all_pairs_finds(num_held_out: int) -> None:
    draw = torch.Generator().manual_seed(num_held_out)
    generated = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    held_out = torch.randn(num_held_out, 4, generator=draw, dtype=torch.float64)
    result = nearest(generated, held_out)
    to_real = [[float((g - h).norm()) for h in held_out] for g in generated]
    assert result.places.tolist() == [row.index(min(row)) for row in to_real]
    median = sorted(map(min, to_real))[4]
    assert result.generated == pytest.approx(median)


def test_a_copy_is_nearer_than_real_samples_are_to_each_other() -> None:
    held_out = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    result = nearest(held_out[[2, 0]], held_out)
    assert result.places.tolist() == [2, 0]
    assert result.generated == 0.0
    assert result.real == 1.0  # of 1, 1, 2 and 4 the lower median


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
@settings(max_examples=examples(10), deadline=None)
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
