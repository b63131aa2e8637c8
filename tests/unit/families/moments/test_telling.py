"""A worker sends its sums once, with its noise or its part of the noise."""

from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.audit.bound import Game, bound, epsilon_at_least
from mdgan.data.dataset_file import load
from mdgan.data.shard import Shard
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.contract import Statistic
from mdgan.families.moments.host import SumTeller
from mdgan.families.moments.message import SampleFeatures
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.privacy.canaries import Canaries, most_canaries
from mdgan.privacy.noise import SENSITIVITY, lattice_step
from mdgan.records.audit import Bound
from tests.claims.registry import claim
from tests.unit.families.moments.pair_tables import learnt
from tests.unit.privacy.attackers import likelihood

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
    result = teller.tell()
    assert allowance.taken == 1
    return result


@claim("known-exactly", "For samples that never spent before, ε is known exactly.")
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


def test_a_part_of_the_noise_stays_on_the_lattice(shard: Shard, features: SampleFeatures) -> None:
    """Rounded once more, it would be no sum of rounded normal numbers."""
    part = told(shard, features, 1, 1 / sqrt(10))
    assert part.dtype == torch.float64
    step = lattice_step(1.0, part.numel())
    assert torch.equal((part / step).round() * step, part)


def bound_by_canaries(shard: Any, features: Statistic, told_noise: float) -> Bound:
    """What canaries say of one message whose noise is thought to be SIGMA_OF_3."""
    coins, scores = [], []
    number = min(1000, most_canaries(features.most_numbers))
    for secret in range(3):
        canaries = Canaries(number, 1.0, 1.0, SIGMA_OF_3, num_planted=0)
        allowance = Allowance(secret, canaries)
        allowance.noise = told_noise
        SumTeller(shard, features, allowance, 1).tell()  # type: ignore[arg-type] # a stand-in
        assert canaries.watched.steps == 1
        coins += canaries.watched.coins
        scores += canaries.watched.scores
    return bound([Game("gradients", coins, scores)], DELTA, EPSILON)


def test_canaries_bound_epsilon_from_below(shard: Shard, features: SampleFeatures) -> None:
    result = bound_by_canaries(shard, features, SIGMA_OF_3)
    assert 0.5 < result.epsilon <= EPSILON
    assert not result.contradicts


def test_canaries_see_noise_that_is_missing(shard: Shard, features: SampleFeatures) -> None:
    assert bound_by_canaries(shard, features, SIGMA_OF_3 / 8).contradicts


class Held:
    """Stands for a shard of samples in memory."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def taken(self, places: Tensor) -> Samples:
        return self._samples[places.tolist()]


@pytest.mark.parametrize(("share", "is_found"), [(1, False), (1 / 8, True)])
def test_canaries_among_pairs_see_noise_that_is_missing(
    tmp_path: Path, share: float, is_found: bool
) -> None:
    counts, samples, _ = learnt(tmp_path)
    counts = counts.asked({"fineness": 32, "least": 0.0})
    result = bound_by_canaries(Held(samples), counts, SIGMA_OF_3 * share)
    assert result.epsilon > 0.2
    assert result.contradicts is is_found


@pytest.mark.parametrize(("share", "is_found"), [(1, False), (1 / 8, True)])
def test_an_attacker_of_tables_that_differ_by_a_row_finds_what_epsilon_allows(
    tmp_path: Path, share: float, is_found: bool
) -> None:
    """It knows all other rows and the row, and takes the likelihood ratio: no guess is better."""
    counts, samples, _ = learnt(tmp_path)
    counts = counts.asked({"fineness": 16, "least": 4.0})
    every = counts.sums([(samples, torch.ones(len(samples)))])
    coins = (torch.rand(200, generator=generator_for(0)) < 0.5).tolist()
    scores, unit = [], SIGMA_OF_3 * share * counts.length
    for i, is_in in enumerate(coins):
        others = [j for j in range(len(samples)) if is_in or j != i]
        allowance: Any = Allowance(i)
        allowance.noise = SIGMA_OF_3 * share
        teller = SumTeller(Held(samples[others]), counts, allowance)  # type: ignore[arg-type] # stand-ins
        of_row = counts.sums([(samples[[i]], torch.ones(1))])
        rest = teller.tell().double() - (every - of_row)
        scores.append(likelihood(rest.flatten() / unit, of_row.flatten() / unit))
    right = sum(is_in == (score > 0) for is_in, score in zip(coins, scores, strict=True))
    assert right > 110  # by chance 100 ± 7
    assert (epsilon_at_least(200, 200, right, DELTA) > EPSILON) is is_found
