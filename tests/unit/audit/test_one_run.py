"""Trade-off functions against formulas and another accountant, and the bounds that guesses give."""

from math import ceil, exp, sqrt
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mdgan.audit.bound import GRADIENTS, Game, bound
from mdgan.privacy.accountant import PrivacyCharge
from mdgan.privacy.canaries import planted_of
from mdgan.privacy.one_run import least_canaries, noise_share, right_alone, trade_off
from tests.claims.registry import claim


def delta_of_gaussian(mean: float, epsilon: float) -> float:
    """Dong, Roth and Su 2022, Corollary 2.13."""
    cdf = stats.norm.cdf
    left = cdf(mean / 2 - epsilon / mean)
    return float(left - exp(epsilon) * cdf(-mean / 2 - epsilon / mean))


@pytest.mark.parametrize(("noise", "steps"), [(3.0, 1), (0.5, 1), (5.0, 40)])
def test_of_steps_that_take_all_it_is_that_of_one_gaussian_mechanism(
    noise: float, steps: int
) -> None:
    curve = trade_off([(PrivacyCharge(noise, 1.0, steps),)])
    mean = sqrt(steps) / noise
    for epsilon, delta in zip(curve.epsilons, curve.deltas, strict=True):
        exact = delta_of_gaussian(mean, float(epsilon))
        assert exact - 1e-12 <= delta <= exact + 3e-4
    assert curve.accuracy == pytest.approx(stats.norm.cdf(mean / 2), abs=2e-4)


def test_of_drawn_steps_it_is_that_of_another_accountant() -> None:
    accountants = pytest.importorskip("opacus.accountants")
    for charge in (PrivacyCharge(1.0, 0.1, 100), PrivacyCharge(2.0, 0.05, 300)):
        curve, accountant = trade_off([(charge,)]), accountants.PRVAccountant()
        accountant.history = [tuple(charge)]
        for delta in (1e-5, 1e-3):
            expected = accountant.get_epsilon(delta, eps_error=0.005)
            assert curve.epsilon(delta) == pytest.approx(expected, rel=0.03)


def test_of_several_mechanisms_it_is_the_worst() -> None:
    one, other = (PrivacyCharge(2.0, 1.0, 1),), (PrivacyCharge(1.0, 1.0, 1),)
    both, worst = trade_off([one, other]), trade_off([other])
    for delta in (1e-2, 1e-4):
        assert both.epsilon(delta) == pytest.approx(worst.epsilon(delta), rel=0.05)
    assert both.accuracy >= worst.accuracy - 1e-9


def played(mean: float, canaries: int, random: Any) -> Game:
    """Guesses of canaries in Gaussian noise, with the likelihood ratio as their score."""
    coins = random.random(canaries) < 0.5
    seen = (coins - 0.5) * mean + random.standard_normal(canaries)
    return Game(GRADIENTS, coins.tolist(), (seen * mean).tolist())


@pytest.mark.parametrize(("mean", "canaries"), [(0.4, 300), (1.75, 100)])
@pytest.mark.parametrize("runs", [12, pytest.param(1000, marks=pytest.mark.slow)])
@claim("bound", "mdgan audit then says what ε is at least, with 95 % confidence")
def test_gaussian_noise_as_it_is_stated_is_contradicted_in_one_run_of_a_hundred_at_most(
    mean: float, canaries: int, runs: int
) -> None:
    mechanism, random = (PrivacyCharge(1 / mean, 1.0, 1),), np.random.default_rng(0)
    stated = trade_off([mechanism])
    results = [
        bound([played(mean, canaries, random)], 1e-5, stated.epsilon(1e-5), [mechanism])
        for _ in range(runs)
    ]
    contradicted = sum(each.contradicts for each in results)
    assert stats.binom.sf(contradicted - 1, runs, 0.01) > 1e-3, contradicted
    over = sum(each.epsilon > each.stated for each in results)
    assert stats.binom.sf(over - 1, runs, 0.05) > 1e-3, over


def test_half_the_noise_is_contradicted_by_guesses_alone_where_the_theorem_for_any_is_blind() -> (
    None
):
    mean, random = 1.75, np.random.default_rng(1)
    mechanism = (PrivacyCharge(1 / mean, 1.0, 1),)
    stated = trade_off([mechanism]).epsilon(1e-4)
    for _ in range(2):
        game = played(2 * mean, 400, random)
        assert not bound([game], 1e-4, stated).contradicts
        verdict = bound([game], 1e-4, stated, [mechanism])
        assert verdict.contradicts
        assert verdict.method == "Gaussian noise on each weight by itself"
        assert verdict.epsilon <= (verdict.ceiling or 0)


def test_the_theorem_rules_out_no_more_than_independent_guesses_do() -> None:
    """Of the probability of right guesses it knows an upper bound; independent ones have less."""
    tried = trade_off([(PrivacyCharge(1.0, 1.0, 1),)])
    for guesses in (50, 400):
        allowed = [r for r in range(guesses + 1) if not tried.rules_out(0.01, guesses, guesses, r)]
        assert allowed == list(range(len(allowed)))
        assert right_alone(tried, guesses, len(allowed)) <= 0.01


def test_the_share_that_is_ruled_out_is_found() -> None:
    mechanism = (PrivacyCharge(2.0, 1.0, 1),)
    curve = noise_share([mechanism], lambda tried: tried.accuracy <= stats.norm.cdf(0.5))
    assert curve == pytest.approx(0.5, rel=0.02)
    assert noise_share([mechanism], lambda tried: False) == float("inf")


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("noise", [0.55, 4.0])
def test_fewer_canaries_than_the_least_could_not_contradict(noise: float, workers: int) -> None:
    mechanism = (PrivacyCharge(noise, 1.0, 1),)
    stated = trade_off([mechanism]).epsilon(1e-5)
    least = least_canaries(mechanism, 1e-5, stated, workers)
    assert least is not None

    def best(each: int) -> bool:
        gradients, planted = workers * (each - planted_of(each)), workers * planted_of(each)
        games = [
            Game(kind, [True] * number, [1.0] * number)
            for kind, number in ((GRADIENTS, gradients), ("samples", planted))
            if number
        ]
        return bound(games, 1e-5, stated, [mechanism]).contradicts

    assert best(least + 1)
    assert not best(max(1, ceil(least / 2) - 1)) or least <= 2


def test_no_number_could_contradict_what_hides_nothing() -> None:
    mechanism = (PrivacyCharge(0.01, 1.0, 1),)
    assert least_canaries(mechanism, 1e-5, 250.0, 1) is None
