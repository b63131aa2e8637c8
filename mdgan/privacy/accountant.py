"""What steps of DP-SGD cost, by Opacus's accountants (Yousefpour et al. 2021).

Mironov, Talwar and Zhang 2019 for Rényi differential privacy, Gopi, Lee and Wutschitz 2021 for
privacy loss random variables; samples are added or removed.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from mdgan.errors import BadInput

_ORDER_OF_REPLACEMENT = 4.0
MOST_NOISE = 1e5
"""More hides nothing more, and its multiples of a lattice's step would have too many digits."""
_CLOSE = 0.001
"""Relative width of the interval in which a search for noise ends."""
_NOT_THERE = (
    "Opacus, which says what privacy is lost, is not installed on this machine; pip install "
    "'mdgan[privacy]'"
)


class Charge(NamedTuple):
    """Steps that are alike.

    Attributes:
        noise: σ, in units of the bound C.
        rate: q, the probability with which each sample is in a batch.
    """

    noise: float
    rate: float
    steps: int


class Past(NamedTuple):
    """What some samples have been through in earlier plans.

    Attributes:
        order: of Rényi, above 1; fixed when the first of these plans was made.
    """

    order: float
    charges: tuple[Charge, ...]


def _accountants() -> Any:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports
            import opacus.accountants
            import opacus.accountants.analysis.rdp
            import opacus.accountants.utils
    except ImportError as error:
        raise BadInput(_NOT_THERE) from error
    finally:  # it sets up logging for the whole program
        root.handlers[:], root.level = handlers, level
    return opacus.accountants


@lru_cache(maxsize=1024)
def _renyi_of_a_step(noise: float, rate: float, orders: tuple[float, ...]) -> Any:
    """Rényi divergences of one step, by order: what takes time of `RDPAccountant.get_epsilon`."""
    compute = _accountants().analysis.rdp.compute_rdp
    return compute(q=rate, noise_multiplier=noise, steps=1, orders=orders)


def _divergence(past: Past) -> float:
    of_each = (_renyi_of_a_step(c.noise, c.rate, (past.order,))[0] * c.steps for c in past.charges)
    return float(sum(of_each))


@lru_cache(maxsize=16)
def _worst(earlier: tuple[Past, ...]) -> dict[float, float]:
    """For each Rényi order, the divergence of the past that costs most."""
    return {past.order: _divergence(past) for past in worst_of(earlier)}


def worst_of(earlier: Iterable[Past]) -> tuple[Past, ...]:
    """Of each order that some pasts have, the one that costs most: `epsilon_of` is the same."""
    return tuple({past.order: past for past in sorted(earlier, key=_divergence)}.values())


def _by_renyi(charge: Charge, delta: float, earlier: tuple[Past, ...]) -> tuple[float, float]:
    """ε, and the order that it was found at."""
    convert = _accountants().analysis.rdp.get_privacy_spent
    if not earlier:
        orders = tuple(_accountants().RDPAccountant.DEFAULT_ALPHAS)
        spent = _renyi_of_a_step(charge.noise, charge.rate, orders) * charge.steps
        epsilon, order = convert(orders=orders, rdp=spent, delta=delta)
        return float(epsilon), float(order)
    found = []
    for order, spent in _worst(earlier).items():
        if charge.steps:
            of_a_step = _renyi_of_a_step(charge.noise, charge.rate, (order,))[0]
            spent += float(of_a_step) * charge.steps
        found.append((float(convert(orders=[order], rdp=[spent], delta=delta)[0]), order))
    return max(found)


def check_installed(asked: str) -> None:
    """Checks that Opacus is there.

    Args:
        asked: the flag that needs it, with its value.

    Raises:
        BadInput: it is not.
    """
    try:
        _accountants()
    except BadInput as error:
        raise BadInput(f"{asked}: {error}") from error


@lru_cache(maxsize=256)
def epsilon_of(charge: Charge, delta: float, kind: str, earlier: tuple[Past, ...] = ()) -> float:
    """ε of the steps of a plan, and of all that came before it, for δ.

    Of a plan that is the first, all steps were chosen before any was taken, so each accountant may
    look for its least bound. The noise and the number of steps of a later plan may be chosen by one
    who has seen what the earlier ones gave. Divergences still add up then at a Rényi order that was
    fixed before the first step (Feldman and Zrnic 2021, "Individual Privacy Accounting via a Rényi
    Filter"; Lécuyer 2021, "Practical Privacy Filters and Odometers with Rényi
    Differential Privacy"), but not at the order that turns out to be the best one in the
    end, and privacy loss random variables do not add up at all. So after earlier plans ε is that at
    their order, the best one for the first of them. Of several pasts the worst counts.

    Args:
        kind: rdp or prv; of a first plan.
        earlier: what different samples have been through before; empty for a first plan. A past
            without charges has the order of `charge` fixed.

    Raises:
        BadInput: Opacus is not there, or its accountant cannot say.
    """
    if not charge.steps and not any(past.charges for past in earlier):
        return 0.0
    if charge.steps and not charge.noise:
        return inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another order of Rényi may give a lower bound
        try:
            if kind == "rdp" or earlier:
                return max(0.0, _by_renyi(charge, delta, earlier)[0])
            accountant = _accountants().create_accountant(mechanism=kind)
            accountant.history = [tuple(charge)]
            return float(accountant.get_epsilon(delta))
        except (ArithmeticError, RuntimeError, ValueError, MemoryError) as error:
            raise BadInput(
                f"--dp-accountant {kind}: cannot say what {charge.steps:,} steps with noise "
                f"{charge.noise:g} cost ({error}); use --dp-accountant "
                f"{'rdp' if kind == 'prv' else 'prv'}"
            ) from error


def replaced(charge: Charge, earlier: tuple[Past, ...]) -> tuple[Charge, tuple[Past, ...]]:
    """The same steps, where a sample may be another one instead of one without a gradient.

    A sum changes by 2C at most then, and not by C, which is as if the noise were half as large.
    After earlier plans ε is that at order 4, which no plan has a say in.
    """

    def halved(one: Charge) -> Charge:
        return one._replace(noise=one.noise / 2)

    pasts = (Past(_ORDER_OF_REPLACEMENT, tuple(map(halved, past.charges))) for past in earlier)
    return halved(charge), tuple(pasts)


def best_order(charge: Charge, delta: float) -> float:
    """The Rényi order at which the steps of a first plan cost least, for δ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _by_renyi(charge, delta, ())[1]


def tolerance(epsilon: float) -> float:
    """The slack of the search for noise: a budget with less than that left counts as spent."""
    return min(0.01, epsilon / 100)


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    earlier: tuple[Past, ...],
    kind: str,
) -> float:
    """The least σ with which steps can be taken, to a thousandth.

    Args:
        earlier: see `epsilon_of`.

    Raises:
        BadInput: no noise is enough.
    """

    def cost(noise: float) -> float:
        return epsilon_of(Charge(noise, rate, steps), delta, kind, earlier)

    if not earlier:
        utils = _accountants().utils
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
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
            except (ArithmeticError, RuntimeError, ValueError, MemoryError):
                high = MOST_NOISE  # found below, or not at all
    high, low = 1.0, 0.0
    while cost(high) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise BadInput(
                f"--dp-epsilon {epsilon:g}: too small for {steps:,} steps of which each takes a "
                f"sample with probability {rate:.3g}; give more"
                f"{'' if earlier else ', or --dp-accountant prv'}"
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
    earlier: tuple[Past, ...],
    kind: str,
    most: int,
) -> int:
    """How many steps with a given noise an ε allows; at most `most`. See `noise_for`."""
    low, high = 0, most
    while low < high:
        middle = -(-(low + high) // 2)
        fits = epsilon_of(Charge(noise, rate, middle), delta, kind, earlier) <= epsilon
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def joined(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The same steps, those that are alike as one charge, in an order that is always the same."""
    steps: Counter[tuple[float, float]] = Counter()
    for noise, rate, number in charges:
        steps[noise, rate] += number
    return tuple(Charge(*kind, number) for kind, number in sorted(steps.items()) if number)
