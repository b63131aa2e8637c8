"""The rounds of federated runs: who took part, and what the server has seen through them.

"Seen" is what FeGAN (Guerraoui et al., 2020, figures 10 and 14) counts: a worker that takes part in
a round shows the server all the samples that it holds, and again in every other round that it takes
part in.
"""

from collections.abc import Mapping, Sequence
from math import inf, log
from typing import Any, NamedTuple

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import mapping, number
from mdgan.report.numbers.attendance import holdings

SEEN_OFTEN = 500
"""Samples of a class after which FeGAN's figure 14 stops counting."""

_MOST_CLASSES = 100_000
_LONGEST_NAME = 9


class Round(NamedTuple):
    """One round.

    Attributes:
        number: its number, from 0.
        iteration: local iterations that a worker could have done by its end.
        asked: the workers that were asked, in increasing order.
        weights: of those that took part: worker → its weight in the average; they sum to 1.
        iterations: worker → local iterations that it did.
        batch_sizes: worker → samples in each of its batches.
        aborted: whether the model stayed as it was.
    """

    number: int
    iteration: int
    asked: tuple[int, ...]
    weights: Mapping[int, float]
    iterations: Mapping[int, int]
    batch_sizes: Mapping[int, int]
    aborted: bool

    @property
    def took_part(self) -> tuple[int, ...]:
        """The workers that took part, in increasing order."""
        return tuple(sorted(self.weights))

    @property
    def counted(self) -> tuple[int, ...]:
        """The workers whose models went into the average: nobody's if the round was aborted."""
        return () if self.aborted else self.took_part


def rounds_of(run: RecordedRun) -> list[Round]:
    """A run's rounds, in order; records that make no sense are left out."""
    found = (_round(event) for event in run.named("round"))
    return [one for one in found if one is not None]


def samples_trained(rounds: Sequence[Round]) -> float:
    """Samples in all local batches of the rounds that were not aborted."""
    return float(
        sum(
            one.iterations.get(worker, 0) * one.batch_sizes.get(worker, 0)
            for one in rounds
            for worker in one.counted
        )
    )


def real_counts(held: Mapping[int, Sequence[int]]) -> list[int]:
    """How many samples of each class there are in all, from those of every worker."""
    num_classes = max(map(len, held.values()), default=0)
    return [
        sum(counts[c] for counts in held.values() if c < len(counts)) for c in range(num_classes)
    ]


def seen_counts(rounds: Sequence[Round], held: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Samples of each class that the server has seen after every round.

    Args:
        rounds: in order.
        held: worker → samples of each class.

    Returns:
        For each round, as many numbers as there are classes.
    """
    seen = [0] * len(real_counts(held))
    after = []
    for one in rounds:
        for worker in one.counted:
            for c, amount in enumerate(held.get(worker, ())):
                seen[c] += amount
        after.append(list(seen))
    return after


def seen_of(run: RecordedRun) -> tuple[list[list[int]], list[int]]:
    """Samples of each class seen after every round of a run, and those that there are.

    Classes of which nobody holds a sample are left out of both.
    """
    held = holdings(run)
    real = real_counts(held)
    there = [c for c, amount in enumerate(real) if amount > 0][:_MOST_CLASSES]
    seen = seen_counts(rounds_of(run), held) if there else []
    return [[counts[c] for c in there] for counts in seen], [real[c] for c in there]


def kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """KL(p ‖ q) = Σ p ln(p / q) of two histograms, each divided by its sum first.

    Args:
        p: not negative, above 0 somewhere.
        q: as long, not negative.

    Returns:
        Nats; infinite where p is above 0 and q is 0.
    """
    if any(a > 0 >= b for a, b in zip(p, q, strict=True)):
        return inf
    total_p, total_q = sum(p), sum(q)
    divergence = sum(
        a / total_p * log(a / total_p * (total_q / b)) for a, b in zip(p, q, strict=True) if a > 0
    )
    return max(0.0, divergence)  # equal histograms may come out a rounding below 0


def kl_of_seen(run: RecordedRun) -> list[float]:
    """KL(real ‖ seen) after every round (FeGAN, figure 10); infinite until every class was seen."""
    seen, real = seen_of(run)
    return [kl_divergence(real, counts) for counts in seen]


def rounds_until_seen(run: RecordedRun, times: int = SEEN_OFTEN) -> int | None:
    """Rounds after which every class was seen so many times; None if that never happened."""
    for number_of_rounds, counts in enumerate(seen_of(run)[0], start=1):
        if min(counts) >= times:
            return number_of_rounds
    return None


def _round(event: Mapping[str, Any]) -> Round | None:
    place, iteration = number(event.get("number")), number(event.get("iteration"))
    took_part, weights = _ranks(event.get("took_part")), event.get("weights")
    if place is None or iteration is None or not isinstance(weights, list):
        return None
    known = [number(weight) for weight in weights]
    if len(known) != len(took_part) or any(weight is None for weight in known):
        return None
    return Round(
        int(place),
        int(iteration),
        tuple(sorted(set(_ranks(event.get("asked"))) | set(took_part))),
        {rank: weight for rank, weight in zip(took_part, known, strict=True) if weight is not None},
        _by_rank(event.get("iterations")),
        _by_rank(event.get("batch_sizes")),
        event.get("aborted") is True,
    )


def _ranks(told: Any) -> list[int]:
    known = told if isinstance(told, list) else []
    return [rank for rank in known if type(rank) is int and 0 < rank < 10**_LONGEST_NAME]


def _by_rank(told: Any) -> dict[int, int]:
    found = {}
    for name, value in mapping(told).items():
        amount = number(value)
        if name.isdecimal() and len(name) <= _LONGEST_NAME and amount is not None:
            found[int(name)] = int(amount)
    return found
