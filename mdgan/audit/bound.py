"""A lower bound on ε from the canaries of one run.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2: of m
canaries that fair coins include, an attacker that sees the output of an (ε, δ)-private mechanism
guesses r. That at least v guesses are right has at most the probability of `p_value`.
"""

from pathlib import Path

import numpy as np
import torch

from mdgan.privacy.canaries import CANARIES, read_watched
from mdgan.records.audit import Bound

CONFIDENCE = 0.95
_GUESSED = 4
_MOST_EPSILON, _HALVINGS = 64.0, 40


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The probability of as many right guesses, at most, if the mechanism is (ε, δ)-private.

    Args:
        canaries: m, ≥ `guesses`.
        guesses: r, fixed before any score was seen.
        right: v ≤ r.
        epsilon: ε ≥ 0.
        delta: δ, in [0, 1].
    """
    from scipy.stats import binom  # takes a second to import

    accuracy = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, accuracy))
    if not right or not delta:
        return min(tail, 1.0)
    fewer = np.arange(1, right + 1)
    between = np.cumsum(binom.pmf(right - fewer, guesses, accuracy))
    return min(tail + 2 * canaries * delta * float((between / fewer).max()), 1.0)


def epsilon_at_least(canaries: int, guesses: int, right: int, delta: float) -> float:
    """The largest ε that the guesses rule out with 95 % confidence; 0 if they rule out none.

    Args:
        canaries: see `p_value`.
        guesses: see `p_value`.
        right: see `p_value`.
        delta: see `p_value`.
    """
    low, high = 0.0, _MOST_EPSILON
    if p_value(canaries, guesses, right, low, delta) > 1 - CONFIDENCE:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if p_value(canaries, guesses, right, middle, delta) > 1 - CONFIDENCE:
            high = middle
        else:
            low = middle
    return low


def bound(coins: list[bool], scores: list[float], delta: float, stated: float) -> Bound:
    """The bound from the surest quarter of guesses; how many these are depends on no score.

    Args:
        coins: whether each canary was included.
        scores: log likelihood ratios.
        delta: δ of the run.
        stated: ε of the run.
    """
    guesses = -(-len(coins) // _GUESSED)
    score = torch.tensor(scores, dtype=torch.float64)
    surest = score.abs().argsort(descending=True, stable=True)[:guesses]
    right = int(((score > 0) == torch.tensor(coins))[surest].sum())
    return Bound(
        canaries=len(coins),
        guesses=guesses,
        right=right,
        delta=delta,
        confidence=CONFIDENCE,
        epsilon=epsilon_at_least(len(coins), guesses, right, delta),
        stated=stated,
    )


def bound_of_run(run: Path, delta: float, stated: float) -> Bound | None:
    """The bound from all canaries that a run's folder knows; None if there are none.

    Each belongs to one worker, and what that worker releases is all that tells of it, so the run as
    a whole is as private towards each.

    Args:
        run: its folder.
        delta: δ.
        stated: the largest ε of its workers.

    Raises:
        BadInput: a file is damaged.
    """
    coins: list[bool] = []
    scores: list[float] = []
    for path in sorted((run / CANARIES).glob("*.json")):
        if (found := read_watched(path)) is not None:
            coins += found.coins
            scores += found.scores
    return bound(coins, scores, delta, stated) if coins else None
