"""Hosts that average among themselves get the server's mean, bit for bit."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mdgan.families.data_parallel.collective import Collective, Counted
from mdgan.families.data_parallel.vectors import GradientVector
from mdgan.gan.exact_sum import average
from mdgan.transport.base import LOOPBACK
from tests.marks import examples

MODEL = nn.Sequential(nn.Linear(40, 70), nn.BatchNorm1d(70))
VECTORS = [
    GradientVector([MODEL], []),
    GradientVector([MODEL], [MODEL]),
    GradientVector([], [MODEL]),
]
GROUPS = st.sampled_from(
    [
        [[], [1], [2]],
        [[], [2, 3], [1]],  # hosts in another order than workers
        [[], [], [4]],  # a host whose workers were all refused
        [[], [1, 5], [], [2, 3, 4]],
    ]
)


def members(size: int) -> list[Collective]:
    own = [Collective(rank, size, LOOPBACK) for rank in range(size)]
    places = [member.place for member in own]
    with ThreadPoolExecutor(size) as pool:
        assert all(pool.map(lambda member: member.connect(places), own))
    return own


@settings(max_examples=examples(16))
@given(GROUPS, st.sampled_from(VECTORS), st.integers(0, 99), st.floats(-30, 2))
def test_the_bits_of_the_average(
    groups: Sequence[Sequence[int]], like: GradientVector, seed: int, exponent: float
) -> None:
    random = torch.Generator().manual_seed(seed)
    workers = [worker for group in groups for worker in group]
    results = {n: 10**exponent * torch.randn(like.shape, generator=random) for n in workers}
    weights = {n: float(torch.rand(1, generator=random)) + 0.1 for n in workers}
    theirs = average(results, (), weights)

    def mean(rank: int, own: Collective) -> torch.Tensor | None:
        its = {n: results[n] for n in groups[rank]}
        return own.mean(like, Counted(groups, weights), its)

    with ThreadPoolExecutor(len(groups)) as pool:
        means = list(pool.map(mean, range(len(groups)), members(len(groups))))
    for ours in means:
        assert ours is not None
        assert ours.shape == theirs.shape
        cut = like.num_gradient_blocks
        assert torch.equal(ours[:cut].float(), theirs[:cut].float()), "gradients are float32"
        assert torch.equal(ours[cut:], theirs[cut:])
