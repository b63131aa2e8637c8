"""A lower bound on ε from the canaries of one run.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2: of m
canaries that fair coins include, an attacker that sees the output of an (ε, δ)-private mechanism
guesses r. That at least v guesses are right has at most the probability of `p_value`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from mdgan.privacy.canaries import CANARIES, read_watched
from mdgan.records.audit import Bound

CONFIDENCE = 0.95
_GUESSED = 4
_MOST_EPSILON = 64.0


class Game(NamedTuple):
    """Canaries of one kind."""

    kind: str
    coins: list[bool]
    scores: list[float]


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The probability of as many right guesses, at most, if the mechanism is (ε, δ)-private."""
    from scipy.stats import binom  # takes a second to import

    accuracy = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, accuracy))
    if not right or not delta:
        return min(tail, 1.0)
    fewer = np.arange(1, right + 1)
    between = np.cumsum(binom.pmf(right - fewer, guesses, accuracy))
    return min(tail + 2 * canaries * delta * float((between / fewer).max()), 1.0)


def epsilon_at_least(
    canaries: int, guesses: int, right: int, delta: float, doubt: float = 1 - CONFIDENCE
) -> float:
    """The largest ε that guesses rule out, but for the probability `doubt`; 0 if they do none."""
    from scipy.optimize import brentq  # takes a second to import

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, right, epsilon, delta) - doubt

    return 0.0 if excess(0.0) > 0 else float(brentq(excess, 0.0, _MOST_EPSILON))


def bound(games: Sequence[Game], delta: float, stated: float) -> Bound:
    """The largest bound from some games, in each from the surest quarter of guesses.

    How many guesses these are depends on no score. With several games each bound is surer, so that
    all of them together hold with 95 %.
    """
    doubt, found = (1 - CONFIDENCE) / len(games), []
    for game in games:
        canaries = len(game.coins)
        guesses = -(-canaries // _GUESSED)
        score = torch.tensor(game.scores, dtype=torch.float64)
        surest = score.abs().argsort(descending=True, stable=True)[:guesses]
        right = int(((score > 0) == torch.tensor(game.coins))[surest].sum())
        found.append(
            Bound(
                kind=game.kind,
                canaries=canaries,
                guesses=guesses,
                right=right,
                delta=delta,
                confidence=CONFIDENCE,
                epsilon=epsilon_at_least(canaries, guesses, right, delta, doubt),
                stated=stated,
            )
        )
    return max(found, key=lambda each: each.epsilon)


def bound_of_run(run: Path, delta: float, stated: float) -> Bound | None:
    """The bound from all canaries that a run's folder knows; None if there are none.

    Each belongs to one worker, and what that worker releases is all that tells of it, so the run as
    a whole is as private towards each.
    """
    gradients, samples = Game("gradients", [], []), Game("samples", [], [])
    for path in sorted((run / CANARIES).glob("*.json")):
        if (found := read_watched(path)) is not None:
            first = len(found.coins) - found.planted
            gradients.coins.extend(found.coins[:first])
            gradients.scores.extend(found.scores[:first])
            samples.coins.extend(found.coins[first:])
            samples.scores.extend(found.scores[first:])
    games = [game for game in (gradients, samples) if game.coins]
    return bound(games, delta, stated) if games else None
