"""SampleFeatures, their sums by class, and what the server makes of the sums."""

from math import prod, sqrt
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.families.moments.build import draw_features
from mdgan.families.moments.message import CONSTANT, Embedding, SampleFeatures
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.labels import Samples
from tests.marks import examples


def drawn(num_classes: int | None = 3, num_features: int = 40) -> SampleFeatures:
    return draw_features(FeatureSettings(num_features=num_features), (1, 2, 2), num_classes, 0)


def samples(number: int, seed: int = 0) -> Samples:
    random = torch.Generator().manual_seed(seed)
    images = torch.rand(number, 1, 2, 2, generator=random) * 2 - 1
    return Samples(images, torch.randint(3, (number,), generator=random))


def test_all_that_a_sample_adds_has_length_1() -> None:
    sums = drawn().of(samples(50).images)
    assert sums.shape == (50, 41)
    torch.testing.assert_close(sums.norm(dim=1), torch.ones(50))
    torch.testing.assert_close(sums[:, 0], torch.full((50,), CONSTANT))


def test_scalar_products_are_those_of_a_gaussian_kernel() -> None:
    """Rahimi and Recht 2007: on average over W, and more nearly so the more features there are."""
    features, few = drawn(num_features=40_000), samples(6).images
    sums = features.of(few)[:, 1:]
    distances = torch.cdist(few.flatten(1), few.flatten(1)).square()
    width = 0.5 * sqrt(4)
    kernel = (1 - CONSTANT**2) * torch.exp(-distances / (2 * width**2))
    torch.testing.assert_close(sums @ sums.T, kernel, atol=0.02, rtol=0)


def test_values_that_count_for_more_are_farther_apart() -> None:
    plain, weights = FeatureSettings(num_features=40), (2.0, 1.0, 1.0, 0.5)
    features = draw_features(plain, (4,), 3, 0, weights)
    inputs = samples(5).images.flatten(1)
    same = draw_features(plain, (4,), 3, 0).of(inputs * torch.tensor(weights))
    torch.testing.assert_close(features.of(inputs), same)


def weighing_one(*pieces: Samples) -> list[tuple[Samples, Tensor]]:
    return [(piece, torch.ones(len(piece))) for piece in pieces]


def test_sums_are_those_of_a_plain_computation() -> None:
    features, inputs = drawn(), samples(300)
    pieces = [inputs[0:256], inputs[256:300]]
    images, classes = inputs.images.flatten(1).double().numpy(), inputs.labels
    assert classes is not None
    frequencies = features.frequencies.double().numpy()
    expected = np.zeros((3, 41))
    for image, c in zip(images, classes.tolist(), strict=True):
        waves = [f(w @ image) for f in (np.cos, np.sin) for w in frequencies]
        rest = sqrt((1 - CONSTANT**2) / len(frequencies))
        expected[c] += [CONSTANT, *(rest * wave for wave in waves)]
    np.testing.assert_allclose(features.sums(weighing_one(*pieces)).numpy(), expected, atol=1e-4)


def test_without_classes_there_is_one_row() -> None:
    features, inputs = drawn(None), samples(20)
    pieces = weighing_one(inputs)
    assert features.sums(pieces).shape == (1, 41)
    torch.testing.assert_close(features.sums(pieces), drawn().sums(pieces).sum(0, keepdim=True))


ODD = st.one_of(st.floats(width=32), st.sampled_from([3e38, -3e38, 1e-45, 1.0 + 2**-23, 0.0]))


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.lists(ODD, min_size=5, max_size=5), min_size=2, max_size=6), st.integers(0, 1))
def test_one_sample_changes_sums_by_1_at_most_whatever_a_network_gives(
    rows: list[list[float]], doubles: int
) -> None:
    """Noise pays for the rounding of vectors of length 1 to float32."""
    result = torch.tensor(rows, dtype=(torch.float32, torch.float64)[doubles])
    features = drawn(None, 4)
    images = torch.arange(len(rows), dtype=torch.float32)[:, None]
    with patch.object(SampleFeatures, "of", lambda _, images: result[images[:, 0].long()]):
        whole = features.sums(weighing_one(Samples(images, None)))
        without = features.sums(weighing_one(Samples(images[1:], None)))
    assert bool(whole.isfinite().all())
    assert float(torch.linalg.vector_norm(whole - without)) <= 1 + 2**-19


@pytest.mark.parametrize("length", [0.5, 3.0, 77.0])
def test_long_vectors_are_cut_and_short_ones_are_not(length: float) -> None:
    features, inputs, of = drawn(), samples(50), SampleFeatures.of
    honest = features.sums(weighing_one(inputs))
    with patch.object(SampleFeatures, "of", lambda self, images: length * of(self, images)):
        sums = features.sums(weighing_one(inputs))
    torch.testing.assert_close(sums, honest * min(length, 1.0), atol=1e-5, rtol=1e-5)


def test_what_has_length_1_is_added_up_as_it_is() -> None:
    features, inputs = drawn(None, 2000), samples(300)
    sums = features.sums(weighing_one(inputs))
    assert torch.equal(sums[0], features.of(inputs.images).double().sum(0))


def test_a_sample_that_is_not_finite_adds_nothing() -> None:
    features, inputs = drawn(), samples(5)
    broken = inputs.images.clone()
    broken[2, 0, 1, 1] = torch.inf
    rest = inputs[[0, 1, 3, 4]]
    torch.testing.assert_close(
        features.sums(weighing_one(inputs.of(broken))), features.sums(weighing_one(rest))
    )


def embedding_of(features: SampleFeatures, inputs: Samples, variance: float = 0.0) -> Embedding:
    return Embedding.of(features.sums(weighing_one(inputs)), len(inputs), variance)


def test_shares_are_those_of_the_classes() -> None:
    inputs = samples(200)
    assert inputs.labels is not None
    result = embedding_of(drawn(), inputs)
    torch.testing.assert_close(result.shares, torch.bincount(inputs.labels) / 200)
    torch.testing.assert_close(result.features.sum(), result.features.double().sum().float())


@settings(max_examples=examples(20), deadline=None)
@given(
    counts=st.lists(st.floats(-50, 500), min_size=1, max_size=12), variance=st.floats(0.0, 10_000.0)
)
def test_shares_of_noisy_counts_are_shares(counts: list[float], variance: float) -> None:
    sums = torch.zeros(len(counts), 3, dtype=torch.float64)
    sums[:, 0] = torch.tensor(counts, dtype=torch.float64) * CONSTANT
    shares = Embedding.of(sums, 100, variance * CONSTANT**2).shares
    assert bool((shares >= 0).all())
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)


def test_counts_that_differ_less_than_noise_makes_them_count_as_equal() -> None:
    sums = torch.zeros(4, 3, dtype=torch.float64)
    sums[:, 0] = torch.tensor([95.0, 105.0, 99.0, 101.0], dtype=torch.float64) * CONSTANT
    shares = Embedding.of(sums, 400, 30.0**2 * CONSTANT**2).shares
    torch.testing.assert_close(shares, torch.full((4,), 0.25))


def test_the_distance_is_0_on_average_for_samples_of_the_same_kind() -> None:
    """However few they are, and however much noise there is: neither adds to it."""
    features, many = drawn(), samples(20_000, seed=1)
    variance, means = 9.0, []
    for seed in range(200):
        noise = torch.Generator().manual_seed(seed)
        sums = features.sums(weighing_one(many[0:1000]))
        sums += sqrt(variance) * torch.randn(sums.shape, dtype=torch.float64, generator=noise)
        embedding = Embedding.of(sums, 1000, variance)
        few = many[1000 + 90 * seed : 1090 + 90 * seed]
        assert few.labels is not None
        means.append(float(embedding.distance(features.of(few.images), few.labels)))
    result = torch.tensor(means)
    assert abs(float(result.mean())) < 4 * float(result.std()) / sqrt(len(result)) + 2e-3
    others = samples(90).images * 0.1
    labels = samples(90).labels
    assert labels is not None
    far = embedding_of(features, many[0:1000]).distance(features.of(others), labels)
    assert float(far) > 10 * abs(float(result.mean())) + 0.02


@pytest.mark.parametrize(
    ("shape", "cells"), [((1, 28, 28), 49), ((3, 16, 8), 3 * 8 * 8), ((2, 100), 2 * 8), ((90,), 90)]
)
def test_larger_samples_are_seen_coarsely(shape: tuple[int, ...], cells: int) -> None:
    result = draw_features(FeatureSettings(num_features=600), shape, None, 0).frequencies
    assert result.shape == (300, prod(shape))
    assert int(torch.linalg.matrix_rank(result)) == cells


def test_small_pictures_are_seen_as_they_are() -> None:
    both = [
        draw_features(FeatureSettings(feature_side=side), (1, 8, 8), None, 0).frequencies
        for side in (8, 100)
    ]
    assert torch.equal(*both)


def test_angles_of_coarse_pictures_are_as_wide_as_those_of_fine_ones() -> None:
    """Of pictures without any detail, so that one kernel width suits both."""
    shades = torch.rand(40, 1, 1, 1, generator=torch.Generator().manual_seed(3)) * 2 - 1
    coarse, fine = shades.expand(-1, -1, 7, 7), shades.expand(-1, -1, 28, 28)
    angles = [
        pictures.flatten(1) @ draw_features(own, shape, None, 0).frequencies.T
        for pictures, shape, own in (
            (coarse, (1, 7, 7), FeatureSettings()),
            (fine, (1, 28, 28), FeatureSettings()),
        )
    ]
    assert float(angles[1].std()) == pytest.approx(float(angles[0].std()), rel=0.1)
