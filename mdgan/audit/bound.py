"""A lower bound on ε from the canaries of one run.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2: fair
coins include each of m canaries or not. An attacker that sees the output of an (ε, δ)-private
mechanism guesses r coins. At least v guesses are right with at most the probability of `p_value`.
"""

from collections.abc import Callable, Sequence
from math import isinf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from msgspec.structs import replace

from mdgan.audit.direct import flaws_of
from mdgan.privacy import one_run
from mdgan.privacy.accountant import PrivacyCharge, joined
from mdgan.privacy.canaries import CANARIES, read_watched
from mdgan.privacy.direct import Seen
from mdgan.privacy.one_run import Mechanism, TradeOff
from mdgan.records.audit import Bound

GRADIENTS, SAMPLES = "gradients", "samples"
_GUESSED = 4
_MOST_EPSILON = 64.0
_NEAR = 1.05  # the factor within which tabulated ε are exact


class Game(NamedTuple):
    """Canaries of one kind."""

    kind: str
    coins: list[bool]
    scores: list[float]


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The most that the probability of this many right guesses, or more, can be under (ε, δ)."""
    from scipy.stats import binom  # takes a second to import

    accuracy = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, accuracy))
    if not right or not delta:
        return min(tail, 1.0)
    fewer = np.arange(1, right + 1)
    between = np.cumsum(binom.pmf(right - fewer, guesses, accuracy))
    return min(tail + 2 * canaries * delta * float((between / fewer).max()), 1.0)


def epsilon_at_least(
    canaries: int, guesses: int, right: int, delta: float, doubt: float = 1 - one_run.CONFIDENCE
) -> float:
    """The largest ε that guesses rule out, up to the probability `doubt`; 0 if there is none."""
    from scipy.optimize import brentq  # takes a second to import

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, right, epsilon=epsilon, delta=delta) - doubt

    return 0.0 if excess(0.0) > 0 else float(brentq(excess, 0.0, _MOST_EPSILON))


def bound(
    games: Sequence[Game], delta: float, stated: float, mechanisms: Sequence[Mechanism] = ()
) -> Bound:
    """The largest bound over all games and all methods that are valid for their guesses.

    The number of guesses depends on no score: the surest quarter, or all. With several games and
    methods, each bound has more confidence, so that all together hold with `CONFIDENCE`.

    Args:
        mechanisms: the steps that workers state; empty if unknown.
    """
    methods = [(game, method) for game in games for method in _methods(game, mechanisms)]
    bounds, surely, ceiling = [], 0.0, 0.0
    for game, method in methods:
        canaries = len(game.coins)
        guesses = canaries if method is _independent else -(-canaries // _GUESSED)
        score = torch.tensor(game.scores, dtype=torch.float64)
        surest = score.abs().argsort(descending=True, stable=True)[:guesses]
        right = int(((score > 0) == torch.tensor(game.coins))[surest].sum())

        def epsilon(confidence: float, number: int) -> float:
            doubt = (1 - confidence) / len(methods)
            return method(mechanisms, delta, doubt, canaries, guesses, number)  # noqa: B023 # called at once

        surely = max(surely, epsilon(one_run.SURELY, right))
        ceiling = max(ceiling, epsilon(one_run.CONFIDENCE, guesses))
        bounds.append(
            Bound(
                kind=game.kind,
                canaries=canaries,
                guesses=guesses,
                right=right,
                delta=delta,
                confidence=one_run.CONFIDENCE,
                epsilon=epsilon(one_run.CONFIDENCE, right),
                stated=stated,
                method=_METHODS[method],
            )
        )
    best = max(bounds, key=lambda each: each.epsilon)
    return replace(best, surely=surely if mechanisms else None, ceiling=ceiling)


Method = Callable[[Sequence[Mechanism], float, float, int, int, int], float]
"""From mechanisms, δ, a doubt and numbers of canaries, guesses and right ones to a bound on ε."""


def _any(_mechanisms: Sequence[Mechanism], delta: float, doubt: float, *numbers: int) -> float:
    canaries, guesses, right = numbers
    return epsilon_at_least(canaries, guesses, right, delta=delta, doubt=doubt)


def _trade_off(mechanisms: Sequence[Mechanism], delta: float, doubt: float, *numbers: int) -> float:
    return _epsilon(mechanisms, delta, lambda tried: tried.rules_out(doubt, *numbers))


def _independent(
    mechanisms: Sequence[Mechanism], delta: float, doubt: float, *numbers: int
) -> float:
    _, *guesses_and_right = numbers
    return _epsilon(
        mechanisms, delta, lambda x: one_run.right_alone(x, *guesses_and_right) <= doubt
    )


def _epsilon(
    mechanisms: Sequence[Mechanism], delta: float, is_out: Callable[[TradeOff], bool]
) -> float:
    """ε at the largest noise that guesses rule out; tries shares of the stated noise."""
    share = one_run.noise_share(mechanisms, is_out)
    return 0.0 if isinf(share) else one_run.trade_off(mechanisms, share).epsilon(delta)


_METHODS: dict[Method, str] = {
    _any: "any mechanism",
    _trade_off: "Gaussian noise",
    _independent: "Gaussian noise on each weight by itself",
}


def _methods(game: Game, mechanisms: Sequence[Mechanism]) -> list[Method]:
    if not mechanisms:
        return [_any]
    return [_any, _trade_off, *([_independent] if game.kind == GRADIENTS else [])]


def bound_of_run(run: Path, delta: float, stated: float) -> Bound | None:
    """The bound of canaries and direct tests, from all files in a run's folder; None without any.

    Each canary belongs to one worker, and only that worker's releases depend on it. So the bound
    holds for the run as a whole.
    """
    gradients, samples = Game(GRADIENTS, [], []), Game(SAMPLES, [], [])
    seen: dict[str, list[Seen]] = {}
    mechanisms, is_whole = set[Mechanism](), True
    for path in sorted((run / CANARIES).glob("*.json")):
        if (watched := read_watched(path)) is not None:
            first = len(watched.coins) - watched.planted
            gradients.coins.extend(watched.coins[:first])
            gradients.scores.extend(watched.scores[:first])
            samples.coins.extend(watched.coins[first:])
            samples.scores.extend(watched.scores[first:])
            seen[path.stem] = watched.seen
            steps = joined(PrivacyCharge(one.noise, one.rate, one.steps) for one in watched.seen)
            mechanisms.add(steps)
            is_whole &= sum(one.steps for one in watched.seen) == watched.steps > 0
    games = [game for game in (gradients, samples) if game.coins]
    if not games:
        return None
    known = sorted(mechanisms) if is_whole else []
    whole = bound(games, delta, stated, mechanisms=known)
    flaws = flaws_of(seen)
    if known and (cost := one_run.trade_off(known).epsilon(delta)) > stated * _NEAR + _NEAR - 1:
        flaws.insert(0, f"its noise and its steps have ε = {cost:.3g}, as they are stated")
    of_all = [one for processes in seen.values() for one in processes]
    share = min((one.share for one in of_all), default=None)
    longest = max((one.longest for one in of_all), default=None)
    return replace(whole, flaws=flaws, noise=share, longest=longest)
