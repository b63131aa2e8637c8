"""Decides which slot trains which clients, by how long each probably takes (Pollen, section 4).

Hosts measure the seconds, and may lie; seconds decide only where clients train, not the result.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

Strategy = Literal["rr", "bb", "lb"]

Seconds = Callable[[str, int], float]
"""From a kind of slot and a number of batches ≥ 1, the predicted seconds of a client; finite."""

Curve = tuple[float, float, float]
"""Equation 3 without its redundant c: a, b, d of f(x) = a·x + b·log(x) + d; none is negative."""

Point = tuple[int, int, float]
"""A number of batches, how many clients had it, and their mean seconds."""

_LEAST_SECONDS, _MOST_SECONDS = 1e-9, 1e6


class Slot(NamedTuple):
    """A place on a host where one client trains at a time.

    Slots of one kind, such as "Xeon @ 2.5 GHz, 2 slots on 1 core", count as equally fast.
    """

    host: int
    number: int
    kind: str


Placement = dict[Slot, list[int]]  # the clients of each slot, in order


def place(
    strategy: Strategy,
    clients: Sequence[int],
    num_batches: Mapping[int, int],
    slots: Iterable[Slot],
    seconds: Seconds,
) -> Placement:
    """Gives every client of a round, in the order of the draw, to one of the slots.

    Args:
        strategy: `rr`: equally many clients to every slot; the first slots take the remainder
            (section 4.1). `bb`: the largest client first, each to the slot with the fewest batches
            (4.1). `lb`: the largest client first, each to the slot that probably ends it first; of
            equal ones, to the fastest kind (4.2; `docs/decisions.md` explains a difference).
        seconds: the prediction; only `lb` calls it, once for each kind and x.
    """
    ordered = sorted(slots)
    if strategy == "rr":
        parts = np.array_split(clients, len(ordered))
        return {slot: part.tolist() for slot, part in zip(ordered, parts, strict=True)}
    largest_first = sorted(clients, key=num_batches.__getitem__, reverse=True)
    if strategy == "bb":
        return _done_first(largest_first, num_batches, ordered, cost=lambda _, x: x)
    kinds, sizes = {slot.kind for slot in ordered}, {num_batches[client] for client in clients}
    predicted = {kind: {x: seconds(kind, x) for x in sizes} for kind in kinds}
    total = {kind: sum(predicted[kind][num_batches[n]] for n in clients) for kind in kinds}
    fastest_first = sorted(ordered, key=lambda slot: total[slot.kind])
    return _done_first(largest_first, num_batches, fastest_first, cost=lambda k, x: predicted[k][x])


def _done_first(
    clients: Iterable[int], num_batches: Mapping[int, int], slots: Sequence[Slot], cost: Seconds
) -> Placement:
    """Gives each client to the slot that ends it first; of equal slots, to the first."""
    placement: Placement = {slot: [] for slot in slots}
    loads: dict[str, list[tuple[float, int]]] = {}  # by kind, heaps of load and place in `slots`
    for n, slot in enumerate(slots):
        loads.setdefault(slot.kind, []).append((0.0, n))
    for client in clients:
        x = num_batches[client]
        done, n = min((heap[0][0] + cost(kind, x), heap[0][1]) for kind, heap in loads.items())
        placement[slots[n]].append(client)
        heapq.heapreplace(loads[slots[n].kind], (done, n))
    return placement


_Sums = dict[tuple[str, int], tuple[int, float]]
"""By kind and number of batches, how many clients, and the sum of their seconds."""


def _merge(into: _Sums, others: _Sums) -> None:
    for key, (count, seconds) in others.items():
        before, total = into.get(key, (0, 0.0))
        into[key] = before + count, total + seconds


class Prediction(NamedTuple):
    """Predicts seconds: from curves by kind, and the last round's means by kind and batches."""

    curves: dict[str, Curve]
    lately: dict[tuple[str, int], float]

    def seconds(self, kind: str, x: int) -> float:
        """The seconds of a client of x ≥ 1 batches: g(x) of equation 4, finite, ≥ 0.

        A kind without a curve gets the mean of the other kinds; without any curve it gets x.
        """
        if kind in self.curves:
            predicted = curve_at(self.curves[kind], x)
            return (predicted + self.lately.get((kind, x), predicted)) / 2
        return fmean(self.seconds(other, x) for other in self.curves) if self.curves else float(x)


class TrainingTimes:
    """The seconds that clients took, and the curves through them (sections 4.2 and 4.2.1).

    It adds up counts and seconds of older rounds, so that memory does not grow. It forgets no
    round: a slot's speed hardly changes, and if it does, equation 4 follows the last round.
    """

    def __init__(self) -> None:
        self._rounds: defaultdict[int, _Sums] = defaultdict(dict)
        self._older: _Sums = {}
        self.prediction = Prediction({}, {})

    def observe(self, round_number: int, kind: str, x: int, seconds: float) -> None:
        """Adds the seconds of a client of x ≥ 1 batches; only seconds in [1e-9, 1e6] count."""
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            _merge(self._rounds[round_number], {(kind, x): (1, seconds)})

    def fit(self, until_round: int) -> None:
        """Fits curves to rounds up to this one: t - 2 for round t, as t - 1 still trains (4.2)."""
        for number in sorted(n for n in self._rounds if n < until_round):
            _merge(self._older, self._rounds.pop(number))
        last = self._rounds.get(until_round, {})
        fitted = dict(self._older)
        _merge(fitted, last)
        points: dict[str, list[Point]] = {}
        for (kind, x), (count, seconds) in sorted(fitted.items()):
            points.setdefault(kind, []).append((x, count, seconds / count))
        self.prediction = Prediction(
            {kind: fit_curve(of_kind) for kind, of_kind in points.items()},
            {key: seconds / count for key, (count, seconds) in last.items()},
        )


def fit_curve(points: Iterable[Point]) -> Curve:
    """Fits a curve by non-negative least squares; to a single number of batches, a line."""
    from scipy.optimize import nnls  # takes a third of a second to import; only `lb` fits

    x, count, seconds = (np.array(part, dtype=np.float64) for part in zip(*points, strict=True))
    columns = np.stack([x, np.log(x), np.ones_like(x)], axis=1)
    scale = np.maximum(columns.max(axis=0), 1e-9)
    weight = np.sqrt(count / count.max())
    unit = seconds.max()
    try:
        factors, _ = nnls(columns / scale * weight[:, None], seconds / unit * weight)
    except RuntimeError:  # it did not converge
        return 0.0, 0.0, float(np.average(seconds, weights=count))
    a, b, d = (factors * unit / scale).tolist()
    return a, b, d


def curve_at(curve: Curve, x: int) -> float:
    """Seconds on a curve: f(x) of equation 3, for x ≥ 1."""
    a, b, d = curve
    return a * x + b * log(x) + d
