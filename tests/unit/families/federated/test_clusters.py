"""Counts of clusters: what a client without labels tells the server."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families.federated.clusters import cluster_counts
from mdgan.gan.randomness import generator_for

Method = Literal["kmeans", "gmm"]
METHODS: tuple[Method, ...] = ("kmeans", "gmm")
both = pytest.mark.parametrize("method", METHODS)
SHAPE = (1, 8, 8)


def kinds(*counts: int, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    """So many images around each of some far points, in random order."""
    places = torch.rand(len(counts), *shape, generator=generator_for(9, "places")) * 2 - 1
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = torch.randperm(len(labels), generator=generator_for(seed, "order"))
    noise = torch.randn(len(labels), *shape, generator=generator_for(seed, "noise"))
    return places[labels[order]] + 0.02 * noise


@both
def test_clients_that_hold_all_kinds_agree_on_the_order(method: Method) -> None:
    first = cluster_counts([kinds(40, 10, 20, 30)], method, 4, seed=1)
    other = cluster_counts([kinds(9, 14, 19, 24, seed=5)], method, 4, seed=1)
    by_kind = dict(zip(first, other, strict=True))
    assert by_kind == {40: 9, 10: 14, 20: 19, 30: 24}


@both
def test_the_same_images_give_the_same_counts_whatever_the_global_state(method: Method) -> None:
    """Data without groups, where a bit decides to which one some image belongs."""
    images = torch.rand(700, *SHAPE, generator=generator_for(2, "noise"))
    first = cluster_counts([images], method, 10, seed=4)
    torch.manual_seed(123)
    torch.rand(5)
    before = torch.get_rng_state()
    assert cluster_counts([images.clone()], method, 10, seed=4) == first
    assert torch.equal(before, torch.get_rng_state())
    assert len({tuple(cluster_counts([images], method, 10, seed=s)) for s in range(4, 8)}) > 1


@both
def test_pieces_count_as_one(method: Method) -> None:
    images = torch.rand(333, *SHAPE, generator=generator_for(3, "images"))
    pieces = (images[start : start + 10] for start in range(0, len(images), 10))
    assert cluster_counts(pieces, method, 7, seed=0) == cluster_counts([images], method, 7, seed=0)


@settings(deadline=None, max_examples=15)
@given(st.sampled_from(METHODS), st.integers(0, 12), st.integers(1, 6), st.integers(0, 2**63 - 1))
def test_always_k_counts_of_all_images(method: Method, num_images: int, k: int, seed: int) -> None:
    images = torch.rand(num_images, *SHAPE, generator=generator_for(seed, "images"))
    counts = cluster_counts([images], method, k, seed)
    assert len(counts) == k
    assert sum(counts) == num_images
    assert all(count >= 0 for count in counts)
    if method == "kmeans":  # a Gaussian may attract nobody
        assert sum(count > 0 for count in counts) == min(k, num_images)
    assert counts == [count for count in counts if count] + [0] * counts.count(0)


@both
def test_equal_images_are_one_cluster(method: Method) -> None:
    image = torch.rand(1, *SHAPE, generator=generator_for(0, "image"))
    assert cluster_counts([image.expand(9, *SHAPE)], method, 4, seed=0) == [9, 0, 0, 0]
    two = torch.cat([image.expand(9, *SHAPE), -image.expand(4, *SHAPE)])
    assert sorted(cluster_counts([two], method, 4, seed=0)) == [0, 0, 4, 9]


def test_no_clusters_are_refused() -> None:
    with pytest.raises(BadInput, match="0 clusters: ask for at least 1"):
        cluster_counts([kinds(3)], "kmeans", 0, seed=0)
