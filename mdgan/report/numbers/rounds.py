"""The rounds of a run: who took part, and what the server has seen through them.

As Guerraoui et al. (2020, figures 10 and 14) count: in every round that it takes part in, a worker
shows the server all the samples that it holds.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import inf

import numpy as np

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import RoundRow
from mdgan.report.numbers.attendance import holdings

SEEN_OFTEN = 500
"""Samples of a class after which their figure 14 stops counting."""


def samples_trained(rounds: Sequence[RoundRow]) -> float:
    """Samples in all local batches of the rounds that were not aborted."""
    return float(
        sum(
            one.iterations.get(worker, 0) * one.batch_sizes.get(worker, 0)
            for one in rounds
            for worker in one.counted
        )
    )


def real_counts(held: Mapping[int, Sequence[int]]) -> list[int]:
    """How many samples of each class several workers hold together, from those of each worker."""
    return [sum(counts) for counts in zip_longest(*held.values(), fillvalue=0)]


def seen_of(run: RecordedRun) -> tuple[list[list[int]], list[int]]:
    """Samples of each class seen after every round, and in all; of classes that are held."""
    held = holdings(run)
    real = real_counts(held)
    there = [c for c, amount in enumerate(real) if amount > 0]
    seen = [0] * len(real)
    after = []
    for one in run.of(RoundRow) if there else ():
        shown = real_counts({worker: held.get(worker, []) for worker in one.counted})
        seen = [a + b for a, b in zip_longest(seen, shown, fillvalue=0)]
        after.append([seen[c] for c in there])
    return after, [real[c] for c in there]


def kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """KL(p ‖ q) = Σ p ln(p / q) of two histograms, in nats; infinite where only q is 0."""
    if any(a > 0 >= b for a, b in zip(p, q, strict=True)):
        return inf
    there = np.asarray(p) > 0
    a, b = (np.divide(counts, sum(counts))[there] for counts in (p, q))
    return max(0.0, float(np.sum(a * np.log(a / b))))  # of equal ones a rounding below 0


def kl_of_seen(run: RecordedRun) -> list[float]:
    """KL(real ‖ seen) after every round (their figure 10); infinite until every class was seen."""
    seen, real = seen_of(run)
    return [kl_divergence(real, counts) for counts in seen]


def rounds_until_seen(run: RecordedRun, times: int = SEEN_OFTEN) -> int | None:
    """Rounds after which every class was seen so many times; None if that never happened."""
    seen = enumerate(seen_of(run)[0], start=1)
    return next((number for number, counts in seen if min(counts) >= times), None)
