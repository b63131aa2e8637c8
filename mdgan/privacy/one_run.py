"""Which noise the right guesses of one run rule out, by the trade-off function of its mechanism.

Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-Differential Privacy in One Run", Theorem 3.2 and
Algorithm 3, for fair coins. A mechanism is the steps that a run states, Gaussian noise on sums that
contain each canary with some probability, or the same steps with only a share of that noise.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from math import ceil, inf, isinf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdgan.privacy.accountant import PrivacyCharge
from mdgan.privacy.canaries import planted_of

Mechanism = tuple[PrivacyCharge, ...]  # all steps of a worker
_Array = NDArray[np.float64]

CONFIDENCE, SURELY = 0.95, 0.999
"""The confidence of a bound on ε, and that of a statement that a run's ε is wrong.

Together with the direct tests, less than one honest run in a hundred is said to be wrong."""
_MOST_BOUNDS = 5  # of two kinds of canaries by three methods, one of which is for one kind alone
_MOST_CANARIES = 1 << 20
_ORDERS = np.array([1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0])
_BEYOND = 1e-10
"""The most that losses beyond the table may have of the probability; it is added to δ."""
_FINEST, _MOST_POINTS = 0.05, 1 << 19
"""The distance of tabulated losses in standard deviations of a step's, and their number."""
_TOLD = 300
_SHARES, CLOSE = (1 / 16, 4.0), 1.01
"""The least and largest share of the stated noise that a search tries, and its final precision."""
_MOST_EPSILON = 300.0


class TradeOff(NamedTuple):
    """δ at some ascending ε ≥ 0, for the worse of adding a canary and removing it.

    So f(x) = max(0, 1 − δ − e^ε x, e^−ε (1 − δ − x)) over all ε (Dong, Roth and Su 2022, 2.5).
    """

    epsilons: _Array
    deltas: _Array

    def epsilon(self, delta: float) -> float:
        """The last tabulated ε below the one that has this δ."""
        behind = int((self.deltas > delta).sum())
        return float(self.epsilons[max(0, behind - 1)])

    @property
    def accuracy(self) -> float:
        """The largest probability with which an attacker guesses one coin."""
        return float(1 + self.deltas[0]) / 2

    def rules_out(self, doubt: float, canaries: int, guesses: int, right: int) -> bool:
        """Whether the probability of at least this many right guesses is at most `doubt`.

        Assume that it is more. Theorem 3.2 then gives fewer right guesses a least probability; if
        the sum exceeds 1, the assumption is wrong. The least is reached if each number of right
        guesses gets as little as the numbers above it allow: moving probability from there to lower
        numbers breaks none of the theorem's bounds.
        """
        slopes = np.concatenate([np.exp(-self.epsilons), np.exp(self.epsilons)])
        starts = np.concatenate(
            [-self.deltas * np.exp(-self.epsilons), 1 - self.deltas - np.exp(self.epsilons)]
        )
        total, rights, wrongs = (
            doubt,
            doubt * right / canaries,
            doubt * (guesses - right) / canaries,
        )
        for number in range(right - 1, -1, -1):
            least = float((starts + slopes * rights).max())  # of wrong guesses: 1 − f inverted
            if least <= wrongs:
                return False  # from here on the sum stays as it is
            more = (least - wrongs) * canaries / (guesses - number)
            total, wrongs = total + more, least
            rights += more * number / canaries
            if total > 1:
                return True
        return False


def noise_share(mechanisms: Iterable[Mechanism], is_out: Callable[[TradeOff], bool]) -> float:
    """The least share of the stated noise that is ruled out; infinite if even 4 is not."""
    steps = tuple(sorted(set(mechanisms)))
    low, high = _SHARES
    if is_out(trade_off(steps, low)):
        return low
    if not is_out(trade_off(steps, high)):
        return inf
    while high / low > CLOSE:
        middle = sqrt(low * high)
        low, high = (low, middle) if is_out(trade_off(steps, middle)) else (middle, high)
    return high


def right_alone(mechanism: TradeOff, guesses: int, right: int) -> float:
    """The probability of this many right guesses, or more, of canaries on separate weights.

    Noise of one weight tells nothing of another's, so each guess is right by itself.
    """
    from scipy.stats import binom  # takes a second to import

    return float(binom.sf(right - 1, guesses, mechanism.accuracy))


def least_canaries(mechanism: Mechanism, delta: float, stated: float, workers: int) -> int | None:
    """The smallest M of each worker with which a run may contradict ε, if all guesses are right.

    None if it would be more than a worker could have.
    """
    fits = noise_share([mechanism], lambda tried: tried.epsilon(delta) <= stated)
    accuracy = trade_off([mechanism], min(1.0, fits / CLOSE)).accuracy
    doubt = (1 - SURELY) / (_MOST_BOUNDS)
    needed = log(doubt) / log(accuracy) if accuracy < 1 else inf
    if isinf(needed) or needed > workers * _MOST_CANARIES:
        return None
    each = ceil(needed / workers)
    return next(m for m in count(each) if workers * (m - planted_of(m)) >= needed)


def trade_off(mechanisms: Iterable[Mechanism], share: float = 1.0) -> TradeOff:
    """The trade-off function of the worst of some mechanisms, with a share of their noise."""
    curves = [_trade_off(mechanism, share) for mechanism in mechanisms]
    if len(curves) == 1:
        return curves[0]
    grid = np.linspace(0.0, 1.0, _TOLD) ** 2 * max(curve.epsilons[-1] for curve in curves)
    # δ is convex in e^ε, so between two tabulated ε it lies on or below their chord.
    deltas = [np.interp(np.exp(grid), np.exp(one.epsilons), one.deltas) for one in curves]
    return TradeOff(grid, np.max(deltas, axis=0))


@lru_cache(maxsize=256)
def _trade_off(steps: Mechanism, share: float) -> TradeOff:
    """Computes it from a table of the privacy loss of all steps in which δ is never too small.

    A loss between two tabulated losses is split between them so that its probability with the
    canary and without it stays the same (Doroshenko et al. 2022, "Connect the Dots").
    """
    charges = [charge._replace(noise=share * charge.noise) for charge in steps if charge.steps]
    renyi = [_renyi(charge) for charge in charges]
    spent = np.sum([divergences for divergences, _ in renyi], axis=0)
    most = 1 + 1.05 * float((spent - log(_BEYOND) / (_ORDERS - 1)).min())
    width = max(min(spread for _, spread in renyi) * _FINEST, 2 * most / _MOST_POINTS)
    half = max(8, int(most / width) + 1)
    losses = np.asarray(width * np.arange(-half, half + 1), np.float64)
    removed, added = np.ones(half + 1, complex), np.ones(half + 1, complex)
    beyond = _BEYOND
    for charge in charges:
        for direction, whole in enumerate((removed, added)):
            table, lost = _table(charge, losses, direction)
            whole *= np.fft.rfft(np.roll(table[:-1], -half)) ** charge.steps
            beyond += lost * charge.steps
    kept = losses[half:-1][losses[half:-1] <= _MOST_EPSILON]
    deltas = np.zeros(len(kept))
    for whole in (removed, added):
        weights = np.maximum(np.fft.irfft(whole, 2 * half), 0.0)[:half]
        with_it = _sums_behind(weights)[: len(kept)]
        without = _sums_behind(weights * np.exp(-losses[half:-1]))[: len(kept)]
        deltas = np.maximum(deltas, with_it - np.exp(kept) * without)
    deltas = np.minimum(deltas + beyond, 1.0)
    small = deltas <= 2 * beyond
    last = int(np.argmax(small)) if small.any() else len(kept) - 1
    chosen = np.unique((last * np.linspace(0.0, 1.0, _TOLD) ** 2).astype(int))
    return TradeOff(kept[chosen], deltas[chosen])


def _sums_behind(values: _Array) -> _Array:
    """For each value, the sum of all values after it."""
    return np.append(np.cumsum(values[::-1])[::-1][1:], 0.0)


def _renyi(charge: PrivacyCharge) -> tuple[_Array, float]:
    """Rényi divergences of all steps at `_ORDERS`, and a step's standard deviation of losses."""
    from scipy.special import logsumexp  # takes a second to import

    noise, rate, steps = charge
    values = np.linspace(-12 * noise, _ORDERS[-1] + 12 * noise, 1 << 14)
    losses = np.logaddexp(
        log(1 - rate) if rate < 1 else -inf, log(rate) + (2 * values - 1) / (2 * noise**2)
    )
    without = -((values / noise) ** 2) / 2
    without -= logsumexp(without)
    divergences = [logsumexp(without + order * losses) / (order - 1) for order in _ORDERS]
    weights = np.exp(without + losses)
    mean = float((weights * losses).sum())
    return steps * np.array(divergences), sqrt(float((weights * (losses - mean) ** 2).sum()))


def _table(charge: PrivacyCharge, losses: _Array, direction: int) -> tuple[_Array, float]:
    """The probability of each tabulated loss of a step, and of losses beyond the table."""
    from scipy.special import ndtr  # takes a second to import

    noise, rate, _ = charge
    inside = np.maximum(np.expm1(np.minimum(losses, _MOST_EPSILON)) + rate, 0.0)
    with np.errstate(divide="ignore"):
        logs = np.where(losses > _MOST_EPSILON, losses - log(rate), np.log(inside / rate))
    values = noise**2 * logs + 0.5
    without = ndtr(values / noise)
    with_it = (1 - rate) * without + rate * ndtr((values - 1) / noise)
    if direction:
        with_it, without = 1 - without[::-1], 1 - with_it[::-1]
    both, alone = np.diff(with_it), np.diff(without)
    upper = both - alone * np.exp(np.minimum(losses[:-1], _MOST_EPSILON))
    upper = np.clip(upper / -np.expm1(losses[0] - losses[1]), 0.0, both)
    table = np.zeros(len(losses))
    table[:-1] += both - upper
    table[1:] += upper
    table[0] += with_it[0]
    return table, float(1 - with_it[-1] + table[-1])
