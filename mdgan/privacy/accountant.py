"""What steps of DP-SGD cost, by Opacus's accountants (Yousefpour et al. 2021).

Mironov, Talwar and Zhang 2019 for Rényi differential privacy, Gopi, Lee and Wutschitz 2021 for
privacy loss random variables; samples are added or removed.
"""

import logging
import warnings
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from mdgan.errors import BadInput

_MOST_NOISE = 1e6
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
        steps: how many.
    """

    noise: float
    rate: float
    steps: int


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


@lru_cache(maxsize=256)
def _renyi_of_a_step(noise: float, rate: float) -> Any:
    """Rényi divergences of one step, by order: what takes time of `RDPAccountant.get_epsilon`."""
    accountants = _accountants()
    orders = accountants.RDPAccountant.DEFAULT_ALPHAS
    compute = accountants.analysis.rdp.compute_rdp
    return compute(q=rate, noise_multiplier=noise, steps=1, orders=orders)


def _epsilon_by_renyi(history: Sequence[Charge], delta: float) -> float:
    accountants = _accountants()
    orders = accountants.RDPAccountant.DEFAULT_ALPHAS
    spent = sum(_renyi_of_a_step(noise, rate) * steps for noise, rate, steps in history)
    epsilon, _ = accountants.analysis.rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(epsilon)


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
def epsilon_of(charges: tuple[Charge, ...], delta: float, kind: str) -> float:
    """ε of some steps together, for δ.

    Args:
        charges: in the order in which they were taken.
        delta: δ.
        kind: rdp or prv.

    Raises:
        BadInput: Opacus is not there, or its accountant cannot say.
    """
    history = [charge for charge in charges if charge.steps]
    if not history:
        return 0.0
    if any(not noise for noise, _, _ in history):
        return inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another order of Rényi may give a lower bound
        try:
            if kind == "rdp":
                return max(0.0, _epsilon_by_renyi(history, delta))
            accountant = _accountants().create_accountant(mechanism=kind)
            accountant.history = [tuple(charge) for charge in history]
            return max(0.0, float(accountant.get_epsilon(delta)))
        except (ArithmeticError, RuntimeError, ValueError, MemoryError) as error:
            raise BadInput(
                f"--dp-accountant {kind}: cannot say what {history[-1][2]:,} steps with noise "
                f"{history[-1][0]:g} cost ({error}); use --dp-accountant "
                f"{'rdp' if kind == 'prv' else 'prv'}"
            ) from error


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    earlier: tuple[Charge, ...],
    kind: str,
) -> float:
    """The least σ with which steps can be taken, to a thousandth.

    Args:
        epsilon: that all steps together may cost.
        delta: δ.
        rate: q.
        steps: how many are planned.
        earlier: what was charged before.
        kind: rdp or prv.

    Raises:
        BadInput: no noise is enough.
    """

    def cost(noise: float) -> float:
        return epsilon_of((*earlier, Charge(noise, rate, steps)), delta, kind)

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
                        epsilon_tolerance=min(0.01, epsilon / 100),
                    )
                )
            except (ArithmeticError, RuntimeError, ValueError, MemoryError):
                high = _MOST_NOISE  # found below, or not at all
    high, low = 1.0, 0.0
    while cost(high) > epsilon:
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            raise BadInput(
                f"--dp-epsilon {epsilon:g}: too small for {steps:,} steps of which each takes a "
                f"sample with probability {rate:.3g}; give more, or --dp-accountant prv"
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
    earlier: tuple[Charge, ...],
    kind: str,
    most: int,
) -> int:
    """How many steps with a given noise an ε allows; at most `most`. See `noise_for`."""
    low, high = 0, most
    while low < high:
        middle = -(-(low + high) // 2)
        charges = (*earlier, Charge(noise, rate, middle))
        fits = epsilon_of(charges, delta, kind) <= epsilon
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def joined(charges: Sequence[Charge]) -> tuple[Charge, ...]:
    """The same steps, with those that follow each other and are alike as one charge."""
    found: list[Charge] = []
    for charge in charges:
        if found and found[-1][:2] == charge[:2]:
            found[-1] = found[-1]._replace(steps=found[-1].steps + charge.steps)
        elif charge.steps:
            found.append(charge)
    return tuple(found)
