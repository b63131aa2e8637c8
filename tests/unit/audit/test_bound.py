"""Lower bounds on ε: the theorem computed in another way, and mechanisms whose ε is known."""

from fractions import Fraction
from math import comb, exp, log
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from mdgan.audit.bound import Game, bound, epsilon_at_least, p_value
from tests.claims.registry import claim


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "odds", "delta"),
    [
        (10, 10, 10, Fraction(3, 1), Fraction(0)),
        (40, 12, 9, Fraction(2, 1), Fraction(1, 1000)),
        (100, 25, 24, Fraction(5, 1), Fraction(1, 10000)),
        (30, 30, 1, Fraction(1, 1), Fraction(1, 100)),
        (30, 8, 0, Fraction(1, 1), Fraction(1, 100)),
    ],
)
def test_the_probability_is_the_theorems(
    canaries: int, guesses: int, right: int, odds: Fraction, delta: Fraction
) -> None:
    """P[W ≥ v] + 2mδ·max_i (P[W ≥ v − i] − P[W ≥ v]) / i, in fractions without rounding."""

    def tail(least: int) -> Fraction:
        sure = odds / (1 + odds)
        return sum(
            (
                comb(guesses, k) * sure**k * (1 - sure) ** (guesses - k)
                for k in range(max(least, 0), guesses + 1)
            ),
            Fraction(0),
        )

    steps = ((tail(right - i) - tail(right)) / i for i in range(1, canaries + 1))
    expected = min(tail(right) + 2 * canaries * delta * max(steps), Fraction(1))
    result = p_value(canaries, guesses, right, log(odds), float(delta))
    assert result == pytest.approx(float(expected), rel=1e-9)


def test_without_delta_the_bound_is_clopper_and_pearsons() -> None:
    for guesses, right in ((100, 97), (250, 250), (60, 40)):
        accuracy = stats.beta.ppf(0.05, right, guesses - right + 1)
        expected = log(accuracy / (1 - accuracy))
        assert epsilon_at_least(1000, guesses, right, 0.0) == pytest.approx(expected, abs=1e-6)
    assert epsilon_at_least(1000, 100, 50, 0.0) == 0


def game(coins: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> Game:
    return Game("gradients", coins.tolist(), scores.tolist())


def epsilon_of_gaussian(deviation: float, delta: float) -> float:
    """Balle and Wang 2018, "Improving the Gaussian Mechanism", Theorem 8, sensitivity 1."""
    cdf = stats.norm.cdf

    def excess(e: float) -> float:
        mean, slope = 1 / (2 * deviation), e * deviation
        return float(cdf(mean - slope) - exp(e) * cdf(-mean - slope)) - delta

    return float(optimize.brentq(excess, 0, 30))


@pytest.mark.parametrize("deviation", [0.4, 5.0])
@claim("bound", "mdgan audit then says what ε is at least, with 95 % confidence")
def test_the_gaussian_mechanism_is_contradicted_in_5_percent_of_repetitions_at_most(
    deviation: float,
) -> None:
    random, delta = np.random.default_rng(1), 1e-4
    epsilon, results = epsilon_of_gaussian(deviation, delta), []
    for _ in range(60):
        coins = random.random(400) < 0.5
        seen = coins + deviation * random.standard_normal(400)
        scores = (2 * seen - 1) / (2 * deviation**2)
        results.append(bound([game(coins, scores)], delta, epsilon).epsilon)
    over = sum(each > epsilon for each in results)
    assert stats.binom.sf(over - 1, len(results), 0.05) > 1e-4, f"{over} of {len(results)}"


def test_noise_that_is_smaller_than_it_says_is_contradicted() -> None:
    random, delta = np.random.default_rng(2), 1e-5
    coins = random.random(1000) < 0.5
    seen = coins + 0.3 * random.standard_normal(1000)
    stated = epsilon_of_gaussian(3.0, delta)
    verdict = bound([game(coins, 2 * seen - 1)], delta, stated)
    assert verdict.contradicts
    assert verdict.ceiling is not None
    assert verdict.epsilon <= verdict.ceiling
    could = f"at most {verdict.ceiling:.3g} could be shown"
    assert str(verdict) == f"ε ≥ {verdict.epsilon:.2f} (95 %), {could}, stated ≤ {stated:.3g}"
    blind = game(coins, random.standard_normal(1000))
    assert not bound([blind], delta, stated).contradicts
    both = bound([blind, game(coins, 2 * seen - 1)._replace(kind="samples")], delta, stated)
    assert both.kind == "samples"
    assert stated < both.epsilon < verdict.epsilon, "each of two bounds is surer than one alone"
