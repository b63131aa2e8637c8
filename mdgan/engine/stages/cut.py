"""Cuts answers that are far longer than is usual, so that none decides a step alone.

The usual norm is the median of those of an iteration, so fewer than half of the workers cannot move
it, nor can the order in which answers come. Where they come one by one, it is the median of the
newest of each worker. Workers that came later do not say what is usual, as in `screen.py`, and of
fewer than three norms none is.

An answer that is not longer stays as it is, bit for bit. On digits no honest answer was more than
2.6 times as long as usual: with iid and sorted shards, exchanges and means, batches of 10 and 64.
"""

from collections.abc import Collection, Mapping
from math import inf
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # settings read the number below without torch
    from mdgan.engine.answers import Answers

MOST_USUAL = 4.0  # how many times the usual norm an answer may have by default
LEAST_VOTES = 3  # with fewer votes the server cannot tell which norm is usual


def limit_of(norms: Collection[float], factor: float) -> float:
    """How long an answer may be; infinite where too little is known."""
    return factor * median(norms) if factor and len(norms) >= LEAST_VOTES else inf


def cut(answers: "Answers", norms: Mapping[int, float], limit: float) -> list[int]:
    """Shortens what is longer than the limit; the workers whose answers were.

    Args:
        norms: by worker, of its answer; of a sum, that of the mean of its workers' answers.
    """
    factors = {n: limit / norm for n, norm in norms.items() if norm > limit}
    for n in answers.singles.keys() & factors.keys():
        answers.singles[n] = answers.singles[n] * factors[n]
    answers.sums = [
        part._replace(total=part.total * factor) if factor < 1 else part
        for part in answers.sums
        for factor in [factors.get(part.workers[0], 1.0)]
    ]
    return sorted(answers.losses.keys() & factors.keys())
