"""Computes ε of steps of DP-SGD by Opacus's accountants (Yousefpour et al. 2021).

`rdp` is Rényi differential privacy (Mironov, Talwar and Zhang 2019); `prv` is privacy loss random
variables (Gopi, Lee and Wutschitz 2021). Neighbouring data differ by one added or removed sample.
"""

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import inf, sqrt
from typing import Any, NamedTuple

from mdgan.errors import BadInput, without_warnings
from mdgan.spelling import flag, key

_ORDER_OF_REPLACEMENT = 4.0
MOST_NOISE = 1e5
"""More noise hides nothing more, and would need too many digits on the lattice."""
_CLOSE = 0.001  # relative width of the interval in which a search for noise ends
_NO_ANSWER = (ArithmeticError, RuntimeError, ValueError, MemoryError)
"""What Opacus raises if it finds no answer."""


class PrivacyCharge(NamedTuple):
    """A number of equal steps: noise σ in units of C, and q, the probability of each sample."""

    noise: float
    rate: float
    steps: int


class PrivacyHistory(NamedTuple):
    """The steps of samples in earlier plans, the first of which fixed the Rényi `order`."""

    order: float
    charges: tuple[PrivacyCharge, ...]


def _accountants() -> Any:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with without_warnings():  # from the packages that Opacus imports
            import opacus.accountants
            import opacus.accountants.analysis.gdp
            import opacus.accountants.analysis.rdp
            import opacus.accountants.utils
    except ImportError as error:
        raise BadInput(
            "Opacus, which says what privacy is lost, is not installed on this machine",
            way_out="pip install 'mdgan[privacy]'",
        ) from error
    finally:  # Opacus sets up logging for the whole program
        root.handlers[:], root.level = handlers, level
    return opacus.accountants


def check_installed(asked: str) -> None:
    """Raises BadInput about `asked` if Opacus is not installed."""
    try:
        _accountants()
    except BadInput as error:
        raise BadInput(asked, error.marked) from error


@contextmanager
def _asking_opacus(kind: str, what: str) -> Iterator[None]:
    with without_warnings():  # that another Rényi order may give a lower bound
        try:
            yield
        except _NO_ANSWER as error:
            if isinstance(error, BadInput):
                raise
            why = f"cannot say what {what} cost ({error})"
            way_out = f"use {key('dp_accountant', 'rdp' if kind == 'prv' else 'prv')}"
            raise BadInput(key("dp_accountant", kind), why, way_out) from error


@lru_cache(maxsize=1024)
def _renyi_of_a_step(noise: float, rate: float, orders: tuple[float, ...]) -> Any:
    """Rényi divergences of a step by order: the slow part of `RDPAccountant.get_epsilon`."""
    compute = _accountants().analysis.rdp.compute_rdp
    return compute(q=rate, noise_multiplier=noise, steps=1, orders=orders)


def _divergence(order: float, charges: Iterable[PrivacyCharge]) -> float:
    return float(sum(_renyi_of_a_step(c.noise, c.rate, (order,))[0] * c.steps for c in charges))


@lru_cache(maxsize=16)
def _worst(earlier: tuple[PrivacyHistory, ...]) -> Mapping[float, float]:
    """For each Rényi order, the divergence of the history that costs most."""
    return {history.order: _divergence(*history) for history in worst_of(earlier)}


def worst_of(earlier: Iterable[PrivacyHistory]) -> tuple[PrivacyHistory, ...]:
    """For each Rényi order, the history that costs most; the others do not change `epsilon_of`."""
    worst = {history.order: history for history in sorted(earlier, key=lambda e: _divergence(*e))}
    return tuple(worst.values())


def _epsilon_at(divergences: Mapping[float, float], delta: float) -> float:
    """The largest ε of some divergences at their Rényi orders."""
    convert = _accountants().analysis.rdp.get_privacy_spent
    epsilons = (
        float(convert(orders=[order], rdp=[spent], delta=delta)[0])
        for order, spent in divergences.items()
    )
    return max(0.0, *epsilons)


def _best(charge: PrivacyCharge, delta: float) -> tuple[float, float]:
    """ε of the steps of a first plan, and the Rényi order at which they cost least."""
    orders = tuple(_accountants().RDPAccountant.DEFAULT_ALPHAS)
    spent = _renyi_of_a_step(charge.noise, charge.rate, orders) * charge.steps
    convert = _accountants().analysis.rdp.get_privacy_spent
    epsilon, order = convert(orders=orders, rdp=spent, delta=delta)
    return float(epsilon), float(order)


def _of_first(charge: PrivacyCharge, delta: float) -> float:
    """ε of the steps of a first plan.

    Steps that take every sample are together one Gaussian mechanism, whose ε is known exactly
    (Balle and Wang 2018, theorem 8; Dong, Roth and Su 2022, corollary 3.3).
    """
    least = _best(charge, delta)[0]
    if charge.rate == 1.0:
        exact = _accountants().analysis.gdp.eps_from_mu
        with suppress(*_NO_ANSWER):  # ε is 0, or too large for a float
            least = min(least, float(exact(mu=sqrt(charge.steps) / charge.noise, delta=delta)))
    return max(0.0, least)


def best_order(charge: PrivacyCharge, delta: float) -> float:
    """The Rényi order at which the steps of a first plan cost least, for δ."""
    with without_warnings():
        return _best(charge, delta)[1]


@lru_cache(maxsize=256)
def epsilon_of(
    charge: PrivacyCharge, delta: float, kind: str, earlier: tuple[PrivacyHistory, ...] = ()
) -> float:
    """ε of the steps of a plan and of all earlier plans, for δ.

    All steps of a first plan are chosen before any is taken, so each accountant may look for its
    least bound. A later plan's noise and number of steps may depend on the results of earlier ones.
    Divergences then still add up at a Rényi order that was fixed before the first step (Feldman and
    Zrnic 2021, "Individual Privacy Accounting via a Rényi Filter"; Lécuyer 2021, "Practical Privacy
    Filters and Odometers with Rényi Differential Privacy"), but not at an order chosen in the end.
    Privacy loss random variables do not add up at all. So after earlier plans this is ε at their
    Rényi order, which was the best for the first plan. The worst of several histories counts.

    Args:
        earlier: histories of different samples; empty for a first plan. A history without charges
            only fixes the Rényi order.
    """
    if not charge.steps:
        return epsilon_of_histories(earlier, delta)
    if not charge.noise:
        return inf
    with _asking_opacus(kind, f"{charge.steps:,} steps with noise {charge.noise:g}"):
        if earlier:
            spent = {
                order: before + _divergence(order, (charge,))
                for order, before in _worst(earlier).items()
            }
            return _epsilon_at(spent, delta)
        if kind == "rdp":
            return _of_first(charge, delta)
        accountant = _accountants().create_accountant(mechanism=kind)
        accountant.history = [tuple(charge)]
        return float(accountant.get_epsilon(delta))


def epsilon_of_histories(histories: tuple[PrivacyHistory, ...], delta: float) -> float:
    """The largest ε of any of these histories; see `epsilon_of`."""
    if not any(history.charges for history in histories):
        return 0.0
    with _asking_opacus("rdp", "earlier runs"):
        return _epsilon_at(_worst(histories), delta)


def replaced(
    charge: PrivacyCharge, earlier: tuple[PrivacyHistory, ...]
) -> tuple[PrivacyCharge, tuple[PrivacyHistory, ...]]:
    """The same steps and histories, if neighbouring data differ by a replaced sample.

    A sum then changes by up to 2C instead of C, which is as if the noise were half as large. After
    earlier plans, ε is computed at Rényi order 4, which no plan chooses.
    """

    def halved(one: PrivacyCharge) -> PrivacyCharge:
        return one._replace(noise=one.noise / 2)

    return halved(charge), tuple(
        PrivacyHistory(_ORDER_OF_REPLACEMENT, tuple(map(halved, history.charges)))
        for history in earlier
    )


def tolerance(epsilon: float) -> float:
    """The slack of the search for noise: a budget with less than this left counts as spent."""
    return min(0.01, epsilon / 100)


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    earlier: tuple[PrivacyHistory, ...],
    kind: str,
) -> float:
    """The least σ with which these steps cost at most ε, to a thousandth; see `epsilon_of`."""

    def cost(noise: float) -> float:
        return epsilon_of(PrivacyCharge(noise, rate, steps), delta, kind, earlier=earlier)

    if not earlier and not (kind == "rdp" and rate == 1.0):
        utils = _accountants().utils
        with without_warnings(), suppress(*_NO_ANSWER):  # then the search below decides
            return float(
                utils.get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant=kind,
                    epsilon_tolerance=tolerance(epsilon),
                )
            )
    low, high = 0.0, 1.0
    while cost(high) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            prv = "" if earlier else f", or {key('dp_accountant', 'prv')}"
            raise BadInput(
                flag("dp_epsilon", f"{epsilon:g}"),
                f"too small for {steps:,} steps of which each takes a sample with probability "
                f"{rate:.3g}",
                f"give more{prv}",
            )
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high


def steps_for(
    epsilon: float,
    delta: float,
    rate: float,
    noise: float,
    earlier: tuple[PrivacyHistory, ...],
    kind: str,
    most: int,
) -> int:
    """The number of steps with this noise that cost at most ε, up to `most`; see `noise_for`."""

    def cost(steps: int) -> float:
        return epsilon_of(PrivacyCharge(noise, rate, steps), delta, kind, earlier=earlier)

    return bisect_right(range(1, most + 1), epsilon, key=cost)


def joined(charges: Iterable[PrivacyCharge]) -> tuple[PrivacyCharge, ...]:
    """Merges charges of equal steps, and sorts them."""
    steps: Counter[tuple[float, float]] = Counter()
    for noise, rate, number in charges:
        steps[noise, rate] += number
    return tuple(PrivacyCharge(*kind, number) for kind, number in sorted(steps.items()) if number)
