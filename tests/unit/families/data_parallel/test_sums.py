"""What members of a ring add up has the mean of the star."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.families.data_parallel.replica import OF_BOTH, GradientVector
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.weighted_mean import average, sum_in_steps, total_weight
from tests.unit.families.data_parallel.replicas import make_reference

BELOW = 511.0
WEIGHTS = st.lists(st.integers(1, 40), min_size=2, max_size=6)


def vectors(seed: int, count: int, like: GradientVector) -> dict[int, Tensor]:
    """Of workers 1, 2, …: values of all sizes up to where sums are exact."""
    random = torch.Generator().manual_seed(seed)
    drawn = (torch.rand(*like.shape, generator=random) * 2 - 1 for _ in range(count))
    sizes = (BELOW * torch.rand(*like.shape, generator=random) ** 30 for _ in range(count))
    return {n: (x * y).float() for n, (x, y) in enumerate(zip(drawn, sizes, strict=True), 1)}


def by_members(
    sums: Sums, like: GradientVector, found: dict[int, Tensor], weights: dict[int, float], at: int
) -> Tensor | None:
    """Two hosts and a server without workers, which come in any order."""
    first = {n: vector for n, vector in found.items() if n <= at}
    second = {n: vector for n, vector in found.items() if n > at}
    parts = [sums.addends(like, part, weights) for part in (second, {}, first)]
    mean = sums.mean([torch.stack(each).sum(0) for each in zip(*parts, strict=True)], weights)
    return None if mean is None else torch.cat(mean)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), WEIGHTS, st.integers(0, 6))
def test_whole_steps_have_the_mean_of_the_star(seed: int, sizes: list[int], at: int) -> None:
    like = make_reference().vector(OF_BOTH)
    found = vectors(seed, len(sizes), like)
    weights = {n: size / sum(sizes) for n, size in enumerate(sizes, 1)}
    ours = by_members(Sums("ring"), like, found, weights, at)
    assert ours is not None
    assert torch.equal(ours, average(found, [], weights))


@pytest.mark.parametrize(("how", "error"), [("fast", 1e-5), ("fast-bf16", 0.02)])
def test_rough_sums_are_of_gradients_alone(how: str, error: float) -> None:
    like = make_reference().vector(OF_BOTH)
    found, weights = vectors(3, 3, like), {1: 0.5, 2: 0.25, 3: 0.25}
    ours, star = by_members(Sums(how), like, found, weights, 1), average(found, [], weights)
    assert ours is not None
    cut = like.num_gradient_blocks
    assert 0 < cut < like.shape[0]
    assert torch.equal(ours[cut:], star[cut:])
    assert not torch.equal(ours[:cut], star[:cut])
    assert torch.allclose(ours, star, rtol=0, atol=error * BELOW)


def test_a_rough_sum_beyond_its_type_is_none() -> None:
    like = make_reference().vector(OF_BOTH)
    found = {n: torch.full(like.shape, 3e38) for n in (1, 2)}
    found = {
        n: vector.index_fill_(0, torch.arange(like.num_gradient_blocks, like.shape[0]), 0)
        for n, vector in found.items()
    }
    assert by_members(Sums("fast"), like, found, {1: 1.0, 2: 1.0}, 1) is None


def test_steps_are_counted_without_loss() -> None:
    found = {n: torch.tensor([400.0 + n * 2**-15]) for n in (1, 2)}
    total = sum_in_steps(found, {1: 0.5, 2: 0.5})
    assert total.item() == round((400 + 1.5 * 2**-15) * 2**44)
    assert total_weight({2: 0.1, 1: 0.2, 3: 0.3}) == 0.2 + 0.1 + 0.3
