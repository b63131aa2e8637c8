"""A worker tells its sums once, with its noise or its part of it."""

from math import sqrt

import pytest
import torch
from torch import Tensor

from mdgan.audit.bound import Game, bound
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.host import SumTeller
from mdgan.families.moments.message import SampleFeatures
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.randomness import generator_for
from mdgan.privacy.canaries import Canaries
from mdgan.privacy.noise import SENSITIVITY, lattice_step
from mdgan.records.audit import Bound
from tests.claims.registry import claim

SIGMA = 3.0
EPSILON, DELTA, SIGMA_OF_3 = 3.0, 1e-4, 1.25
"""σ = 1.25 has ε = 2.92 for this δ (Balle and Wang 2018, Theorem 8)."""


class Allowance:
    """Stands for a `Budget` of one step."""

    noise, over, units, releases = SIGMA, False, None, None

    def __init__(self, secret: int, canaries: Canaries | None = None) -> None:
        self._secret = secret
        self.canaries = canaries
        self.taken = 0

    def key(self, use: str) -> bytes:
        assert use in ("moments", "canaries")
        return (self._secret + (use == "canaries") * 10**9).to_bytes(32, "big")

    def advance(self) -> None:
        self.taken += 1


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Shard:
    digits = load("digits", None).open(tmp_path_factory.mktemp("digits"))
    return Shard(digits, torch.arange(40), generator_for(0))


@pytest.fixture(scope="module")
def features() -> SampleFeatures:
    return draw_features(FeatureSettings(), (1, 8, 8), 10, 0)


def told(shard: Shard, features: SampleFeatures, secret: int, part: float) -> Tensor:
    allowance = Allowance(secret)
    teller = SumTeller(shard, features, allowance, part)  # type: ignore[arg-type] # a stand-in
    found = teller.tell()
    assert allowance.taken == 1
    return found


@claim(
    "known-exactly",
    "So that is the Gaussian mechanism, once and with every unit in it: for units without a past "
    "its ε is known exactly",
)
def test_the_noise_is_sigma_and_pays_for_rounding(shard: Shard, features: SampleFeatures) -> None:
    exact = SumTeller(shard, features, None, 1).tell()
    noisy = told(shard, features, 1, 1)
    assert noisy.dtype == exact.dtype == torch.float32
    noise = (noisy - exact).double()
    expected = SIGMA * SENSITIVITY
    assert float(noise.std()) == pytest.approx(expected, rel=5 / sqrt(2 * noise.numel()))
    assert abs(float(noise.mean())) < 5 * expected / sqrt(noise.numel())


def test_parts_of_the_noise_add_up_to_that_of_one_worker(
    shard: Shard, features: SampleFeatures
) -> None:
    sharers = 10
    exact = SumTeller(shard, features, None, 1).tell().double()
    parts = [told(shard, features, secret, 1 / sqrt(sharers)) for secret in range(sharers)]
    noise = sum((part - exact for part in parts), torch.zeros_like(exact))
    assert float(noise.std()) == pytest.approx(SIGMA * SENSITIVITY, rel=5 / sqrt(2 * noise.numel()))


@claim("shared-noise", "rounded to a lattice on which masks lie, too.")
def test_a_part_of_the_noise_stays_on_the_lattice(shard: Shard, features: SampleFeatures) -> None:
    """Rounded once more, it would be no sum of rounded normal numbers."""
    part = told(shard, features, 1, 1 / sqrt(10))
    assert part.dtype == torch.float64
    step = lattice_step(1.0, part.numel())
    assert torch.equal((part / step).round() * step, part)


def bound_by_canaries(shard: Shard, features: SampleFeatures, told_noise: float) -> Bound:
    """What canaries say of one message whose noise is thought to be SIGMA_OF_3."""
    coins, scores = [], []
    for secret in range(3):
        canaries = Canaries(1000, 1.0, 1.0, SIGMA_OF_3, num_planted=0)
        allowance = Allowance(secret, canaries)
        allowance.noise = told_noise
        SumTeller(shard, features, allowance, 1).tell()  # type: ignore[arg-type] # a stand-in
        assert canaries.watched.steps == 1
        coins += canaries.watched.coins
        scores += canaries.watched.scores
    return bound([Game("gradients", coins, scores)], DELTA, EPSILON)


def test_canaries_bound_epsilon_from_below(shard: Shard, features: SampleFeatures) -> None:
    found = bound_by_canaries(shard, features, SIGMA_OF_3)
    assert 0.5 < found.epsilon <= EPSILON
    assert not found.contradicts


def test_canaries_see_noise_that_is_missing(shard: Shard, features: SampleFeatures) -> None:
    assert bound_by_canaries(shard, features, SIGMA_OF_3 / 8).contradicts
