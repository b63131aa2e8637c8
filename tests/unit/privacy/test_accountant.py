"""ε is that of Opacus and, in small cases, of dp-accounting."""

import sys
from math import exp, sqrt
from typing import Any

import pytest
from scipy.stats import norm

from mdgan.errors import BadInput
from mdgan.privacy import accountant
from mdgan.privacy.accountant import (
    PrivacyCharge,
    PrivacyHistory,
    best_order,
    epsilon_of,
    joined,
    noise_for,
    replaced,
    steps_for,
)
from mdgan.spelling import flag
from tests.claims.registry import claim

pytestmark = pytest.mark.filterwarnings("ignore")

PLANS = [PrivacyCharge(1.1, 0.01, 1000), PrivacyCharge(0.8, 0.1, 30), PrivacyCharge(3.0, 1.0, 5)]
FIRST, SECOND = PrivacyCharge(0.8, 0.1, 30), PrivacyCharge(1.0, 0.1, 400)


@pytest.fixture(scope="module")
def opacus() -> Any:
    return pytest.importorskip("opacus.accountants", reason="pip install 'mdgan[privacy]'")


@pytest.mark.parametrize("charge", PLANS, ids=str)
@pytest.mark.parametrize("kind", ["rdp", pytest.param("prv", marks=pytest.mark.slow)])
def test_a_first_plan_costs_what_opacus_says(opacus: Any, charge: PrivacyCharge, kind: str) -> None:
    if charge.rate == 1:
        pytest.skip("that is known exactly; see below")
    theirs = opacus.create_accountant(mechanism=kind)
    theirs.history = [tuple(charge)]
    assert epsilon_of(charge, 1e-5, kind) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-9)


@pytest.mark.usefixtures("opacus")
@pytest.mark.parametrize(("noise", "steps"), [(0.4, 1), (3.0, 5), (20.0, 1), (1.0, 100)])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_steps_that_take_every_sample_are_one_gaussian_mechanism(
    noise: float, steps: int, delta: float
) -> None:
    """Balle and Wang 2018, equation 6: at ε, and at no less, δ is enough."""
    mean = sqrt(steps) / noise

    def delta_at(epsilon: float) -> float:
        upper, lower = mean / 2 - epsilon / mean, -mean / 2 - epsilon / mean
        return float(norm.cdf(upper) - exp(epsilon + norm.logcdf(lower)))

    epsilon_found = epsilon_of(PrivacyCharge(noise, 1.0, steps), delta, "rdp")
    assert delta_at(epsilon_found) == pytest.approx(delta, rel=1e-6)
    assert delta_at(epsilon_found * 0.999) > delta


@pytest.mark.usefixtures("opacus")
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@claim("known-exactly", "For samples that never spent before, ε is known exactly.")
def test_the_noise_of_one_such_step_is_the_least(epsilon: float) -> None:
    noise = noise_for(epsilon, 1e-4, 1.0, 1, (), "rdp")
    cost, less = (epsilon_of(PrivacyCharge(n, 1.0, 1), 1e-4, "rdp") for n in (noise, noise * 0.998))
    assert cost <= epsilon < less


def at_order(opacus: Any, order: float, *charges: PrivacyCharge) -> float:
    """ε by Opacus at one Rényi order."""
    theirs = opacus.RDPAccountant()
    theirs.history = [tuple(charge) for charge in charges]
    return float(theirs.get_epsilon(1e-5, alphas=[order]))


def test_a_later_plan_costs_what_opacus_says_at_the_order_of_the_first(opacus: Any) -> None:
    order = best_order(FIRST, 1e-5)
    assert at_order(opacus, order, FIRST) == pytest.approx(epsilon_of(FIRST, 1e-5, "rdp"))
    filtered = epsilon_of(SECOND, 1e-5, "rdp", (PrivacyHistory(order, (FIRST,)),))
    assert filtered == pytest.approx(at_order(opacus, order, FIRST, SECOND), rel=1e-9)
    theirs = opacus.RDPAccountant()
    theirs.history = [tuple(FIRST), tuple(SECOND)]
    assert filtered > 1.02 * theirs.get_epsilon(1e-5), "the order of hindsight would be less"


def test_of_several_pasts_the_worst_counts_whatever_their_orders_are(opacus: Any) -> None:
    pasts = tuple(
        PrivacyHistory(order, (FIRST._replace(steps=n),)) for order in (2.5, 9.0) for n in (5, 40)
    )
    each = [at_order(opacus, past.order, *past.charges, SECOND) for past in pasts]
    assert epsilon_of(SECOND, 1e-5, "rdp", pasts) == pytest.approx(max(each), rel=1e-9)
    assert epsilon_of(SECOND, 1e-5, "rdp", pasts[:1]) == pytest.approx(each[0], rel=1e-9)
    assert epsilon_of(SECOND, 1e-5, "rdp", (PrivacyHistory(2.5, ()),)) == pytest.approx(
        at_order(opacus, 2.5, SECOND)
    )


@pytest.mark.parametrize(
    "charge", [PrivacyCharge(1.0, 0.1, 20), PrivacyCharge(2.0, 0.02, 100)], ids=str
)
@claim("goes-on-counting", "tests compare it with Google's dp-accounting.")
def test_it_is_what_dp_accounting_says(opacus: Any, charge: PrivacyCharge) -> None:
    del opacus
    theirs = pytest.importorskip("dp_accounting", reason="pip install dp-accounting")
    event = theirs.PoissonSampledDpEvent(charge.rate, theirs.GaussianDpEvent(charge.noise))
    by_orders = theirs.rdp.RdpAccountant()
    by_orders.compose(event, charge.steps)
    assert epsilon_of(charge, 1e-5, "rdp") == pytest.approx(by_orders.get_epsilon(1e-5), rel=0.02)


def test_noise_is_that_of_opacus_and_enough(opacus: Any) -> None:
    noise = noise_for(8.0, 1e-5, 0.1, 300, (), "rdp")
    theirs = opacus.utils.get_noise_multiplier(
        target_epsilon=8.0, target_delta=1e-5, sample_rate=0.1, steps=300, accountant="rdp"
    )
    assert noise == theirs
    assert 7.9 < epsilon_of(PrivacyCharge(noise, 0.1, 300), 1e-5, "rdp") <= 8.0


def test_as_many_steps_as_fit(opacus: Any) -> None:
    del opacus
    steps = steps_for(5.0, 1e-5, 0.1, 1.0, (), "rdp", 10_000)
    costs = [epsilon_of(PrivacyCharge(1.0, 0.1, n), 1e-5, "rdp") for n in (steps, steps + 1)]
    assert costs[0] <= 5.0 < costs[1]
    assert steps_for(5.0, 1e-5, 0.1, 1.0, (), "rdp", 7) == 7
    assert steps_for(0.1, 1e-5, 0.5, 0.5, (), "rdp", 100) == 0


@pytest.mark.slow
def test_too_small_a_budget_is_told_in_one_line(opacus: Any) -> None:
    del opacus
    with pytest.raises(BadInput, match=r"--dp-epsilon 0.001: too small for 300 steps"):
        noise_for(0.001, 1e-5, 0.1, 300, (), "rdp")


def test_a_machine_without_opacus_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(BadInput, match=r"--dp-epsilon 8: Opacus.*pip install 'mdgan\[privacy\]'"):
        accountant.check_installed(flag("dp_epsilon", 8))


def test_nothing_costs_nothing_and_equal_steps_are_one_charge() -> None:
    assert epsilon_of(PrivacyCharge(1.0, 0.1, 0), 1e-5, "rdp") == 0.0
    charges = [
        PrivacyCharge(1.0, 0.1, 3),
        PrivacyCharge(1.0, 0.1, 0),
        PrivacyCharge(1.0, 0.1, 4),
        PrivacyCharge(2.0, 0.1, 1),
    ]
    assert joined(charges) == (PrivacyCharge(1.0, 0.1, 7), PrivacyCharge(2.0, 0.1, 1))


@claim("epsilon", "To replace a unit changes twice as much; the report has the ε of that.")
def test_one_sample_for_another_changes_a_sum_by_twice_the_bound(opacus: Any) -> None:
    """As with half the noise; for the past, too, at an order that no plan has chosen."""
    past = (PrivacyHistory(best_order(FIRST, 1e-5), (FIRST,)),)
    alone, nothing = replaced(SECOND, ())
    assert nothing == ()
    half = SECOND._replace(noise=SECOND.noise / 2)
    assert epsilon_of(alone, 1e-5, "rdp") == pytest.approx(epsilon_of(half, 1e-5, "rdp"))
    charge, histories = replaced(SECOND, past)
    expected = at_order(opacus, 4.0, FIRST._replace(noise=FIRST.noise / 2), half)
    assert epsilon_of(charge, 1e-5, "rdp", histories) == pytest.approx(expected, rel=1e-9)
