"""Where clients trained: one round, idle slots, predictions, curves, and numbers of slots."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log
from statistics import fmean
from typing import NamedTuple

from mdgan.records.placements import InSlot, Place, Placed, Trained
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import chosen_evenly

Curve = tuple[float, float, float]

MOST_LANES = 64
_MOST_BARS = 4000
_LEAST_SECONDS = 1e-9
"""Shorter times are no measurements."""


def typical_round(run: RecordedRun) -> Placed | None:
    """A round of the second half with its clients, whose makespan is in the middle of theirs."""
    told = [row for row in run.of(Placed) if row.detailed]
    late = sorted(told[len(told) // 2 :], key=lambda row: row.makespan)
    return late[(len(late) - 1) // 2] if late else None


def lanes(row: Placed) -> list[InSlot]:
    """The slots to draw, sorted by kind and host."""
    return chosen_evenly(sorted(row.slots, key=lambda slot: slot.place), MOST_LANES)


def round_seconds(row: Placed) -> float:
    """Seconds until the last slot was done, by the server or by what hosts say of their clients."""
    ends = [one.begin + one.seconds for slot in row.slots for one in slot.trained]
    return max([row.makespan, _LEAST_SECONDS, *ends])


def idle_share(slot: InSlot, row: Placed) -> float:
    """The share of the makespan in which a slot did not train; 0 if there was none."""
    return max(0.0, 1 - slot.busy / row.makespan) if row.makespan else 0.0


def predicted_of(slot: InSlot) -> float | None:
    """How long a slot was expected to train; None unless that is known of all its clients."""
    known = [one.predicted for one in slot.trained if one.predicted is not None]
    return sum(known) if known and len(known) == len(slot.clients) else None


def bars(slot: InSlot, least: float) -> Iterator[Trained]:
    """The clients of a slot in order, joined until they are `least` seconds long together."""
    joined: list[Trained] = []
    for one in slot.trained:
        joined.append(one)
        if one.begin + one.seconds - joined[0].begin >= least:
            yield _joined(joined)
            joined = []
    if joined:
        yield _joined(joined)


def shortest_bar(row: Placed) -> float:
    """What `bars` has to join so that no more are drawn than a page can hold."""
    num_clients = sum(len(slot.clients) for slot in row.slots)
    return round_seconds(row) * MOST_LANES / _MOST_BARS if num_clients > _MOST_BARS else 0.0


def _joined(parts: Sequence[Trained]) -> Trained:
    predicted = [one.predicted for one in parts if one.predicted is not None]
    return Trained(
        parts[0].client,
        fmean(one.batches for one in parts),
        parts[0].begin,
        sum(one.seconds for one in parts),
        sum(predicted) if len(predicted) == len(parts) else None,
    )


def idle_shares(run: RecordedRun) -> dict[Place, dict[int, float]]:
    """Slot → number of the round, from 1 → the share of the makespan in which it did not train."""
    found: defaultdict[Place, dict[int, float]] = defaultdict(dict)
    for row in run.of(Placed):
        for slot in row.slots:
            found[slot.place][row.number + 1] = idle_share(slot, row)
    return dict(sorted(found.items()))


def idle_by_strategy(run: RecordedRun) -> dict[str, list[float]]:
    """Strategy → of each of its rounds, the mean of the idle shares of the slots."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in run.of(Placed):
        if row.slots:
            found[row.strategy].append(fmean(idle_share(slot, row) for slot in row.slots))
    return found


def by_kind(run: RecordedRun) -> dict[str, list[Trained]]:
    """Kind of slot → all clients that trained in one."""
    found: defaultdict[str, list[Trained]] = defaultdict(list)
    for row in run.of(Placed):
        for slot in row.slots:
            found[slot.kind] += slot.trained
    return {kind: trained for kind, trained in sorted(found.items()) if trained}


def predicted_by_kind(run: RecordedRun) -> dict[str, list[tuple[float, float]]]:
    """Kind of slot → predicted and measured seconds of its clients, of which both are known."""
    found = {
        kind: [
            (one.predicted, one.seconds)
            for one in trained
            if one.predicted and min(one.predicted, one.seconds) >= _LEAST_SECONDS
        ]
        for kind, trained in by_kind(run).items()
    }
    return {kind: pairs for kind, pairs in found.items() if pairs}


class Fit(NamedTuple):
    """A curve a·x + b·log(x) + d, as fitted last, and batches and seconds of its clients."""

    curve: Curve
    points: list[tuple[float, float]]

    def residuals(self) -> list[float]:
        """Measured seconds minus those on the curve."""
        a, b, d = self.curve
        return [seconds - (a * x + b * log(x) + d) for x, seconds in self.points]


def fits(run: RecordedRun) -> dict[str, Fit]:
    """Kind of slot → its last curve, of those that have one and clients."""
    curves = {kind: curve for row in run.of(Placed) for kind, curve in row.fits.items()}
    found = {
        kind: Fit(
            curves[kind],
            [
                (one.batches, one.seconds)
                for one in trained
                if one.batches >= 1 and one.seconds >= _LEAST_SECONDS
            ],
        )
        for kind, trained in by_kind(run).items()
        if kind in curves
    }
    return {kind: fit for kind, fit in found.items() if fit.points}


class Tried(NamedTuple):
    """How a host used a number of slots for some rounds in a row; rounds count from 1."""

    num_slots: int
    rounds: list[int]
    rates: list[float]


def climbs(run: RecordedRun) -> dict[int, list[Tried]]:
    """Host → the numbers of slots that it used, in order, of hosts that used more than one."""
    used: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for row in run.of(Placed):
        work: defaultdict[int, int] = defaultdict(int)
        seconds: defaultdict[int, float] = defaultdict(float)
        for slot in row.slots:
            work[slot.host] += slot.work
            seconds[slot.host] = max(seconds[slot.host], slot.busy)
        for host, num_slots in row.num_slots.items():
            if work[host] and seconds[host] >= _LEAST_SECONDS:
                used[host].append((row.number + 1, num_slots, work[host] / seconds[host]))
    found = {host: _stretches(told) for host, told in sorted(used.items())}
    return {host: tried for host, tried in found.items() if len(tried) > 1}


def _stretches(told: Sequence[tuple[int, int, float]]) -> list[Tried]:
    every = []
    for num_slots, group in groupby(told, key=lambda each: each[1]):
        members = list(group)
        every.append(Tried(num_slots, [n for n, _, _ in members], [r for _, _, r in members]))
    return every
