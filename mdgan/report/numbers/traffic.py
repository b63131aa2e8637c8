"""The bytes that a run moved, and the samples that it used."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mdgan.records.recorded_run import RecordedRun, TrafficCount
from mdgan.records.roles import SERVER
from mdgan.records.rows import RoundRow
from mdgan.records.values import number_in
from mdgan.report.numbers.attendance import samples_trained
from mdgan.report.numbers.subject import Subject

KIND_ORDER = (
    *("batches", "feedback", "round", "update", "discriminators", "state", "adopt", "swap"),
    *("swapped", "spans", "checkpoint", "checkpointed", "stop"),
)


class Rate(NamedTuple):
    """Bytes an iteration, or a round."""

    sent: Mapping[str, float]
    received: Mapping[str, float]


def server_rate(run: RecordedRun) -> Rate | None:
    """Bytes of the server in an average iteration or round; None if it recorded none."""
    trace = run.traces.get(SERVER)
    return role_rate(trace.traffic, len(run.of(RoundRow))) if trace else None


def worker_rate(run: RecordedRun) -> Rate | None:
    """Bytes of one worker in an average iteration or round; mean over the workers."""
    rates = [(host, role_rate(host.traffic, len(run.of(RoundRow)))) for host in run.hosts]
    known = [(host, rate) for host, rate in rates if rate is not None]
    workers = sum(max(1, len(host.workers)) for host, _ in known)
    ways = [[rate.sent for _, rate in known], [rate.received for _, rate in known]]
    return Rate(*(_mean(way, workers) for way in ways)) if known else None


def role_rate(traffic: Sequence[TrafficCount], num_rounds: int = 0) -> Rate | None:
    """Bytes an iteration by kind, from counts since the start in time order; or bytes a round.

    The mean between the first and the last count, or since the beginning where there is one only.
    With rounds, everything that moved, divided by their number.
    """
    if not traffic:
        return None
    every = _since_the_beginning(traffic)
    first, last = every[0], every[-1]
    if num_rounds or last.iteration == first.iteration:
        first = _NOTHING
    times = num_rounds or last.iteration - first.iteration
    ways = ((last.sent, first.sent), (last.received, first.received))
    rates = (
        {kind.lower(): (now[kind] - before.get(kind, 0)) / times for kind in now}
        for now, before in ways
    )
    return Rate(*rates) if times else None


def server_bytes(subject: Subject, iteration: float) -> float | None:
    """Bytes that the server had sent and received after an iteration; None if not recorded."""
    trace = subject.run.traces.get(SERVER)
    return bytes_until(trace.traffic, iteration) if trace else None


def worker_bytes(subject: Subject, iteration: float) -> float | None:
    """As `server_bytes`, mean over the workers; bytes between workers count for both."""
    counted = [bytes_until(host.traffic, iteration) for host in subject.run.hosts]
    known = [size for size in counted if size is not None]
    # A worker that was never asked may have recorded nothing, but counts by the settings.
    workers = max(subject.num_workers, len(subject.workers))
    return sum(known) / workers if known and workers else None


def bytes_until(traffic: Sequence[TrafficCount], iteration: float) -> float | None:
    """Bytes sent and received in all starts until an iteration, interpolated between counts."""
    if not traffic:
        return None
    every = [_NOTHING, *_since_the_beginning(traffic)]
    return float(
        np.interp(iteration, [one.iteration for one in every], [one.total for one in every])
    )


def samples_processed(subject: Subject) -> float | None:
    """Real samples that discriminators were trained on and whose result went into the model.

    In rounds, the samples of workers that took part in a round that was not aborted. Otherwise
    b · L for every answer, or without workers for every iteration. A sample counts at each use.
    """
    config = subject.run.config
    steps = number_in(config, "local_steps") or 1.0
    if rounds := subject.run.of(RoundRow):
        return steps * samples_trained(rounds)
    batch = number_in(config, "batch_size")
    if batch is None or not subject.done:
        return None
    answers = sum(worker.counts["answered"] for worker in subject.presences)
    return steps * batch * (answers or max(1, subject.num_workers) * subject.done)


_NOTHING = TrafficCount(0, 0.0)


def _since_the_beginning(traffic: Sequence[TrafficCount]) -> list[TrafficCount]:
    """The counts of a role, summed over all starts; a count falls when the role starts anew."""
    counts: list[TrafficCount] = []
    base, before = _NOTHING, _NOTHING
    for count in traffic:
        if count.total < before.total:
            base = counts[-1]
        sent, received = Counter(base.sent), Counter(base.received)
        sent.update(count.sent)
        received.update(count.received)
        counts.append(TrafficCount(count.iteration, count.seconds, sent, received=received))
        before = count
    return counts


def _mean(sizes: Sequence[Mapping[str, float]], number: int) -> dict[str, float]:
    kinds = dict.fromkeys(kind for of in sizes for kind in of)
    return {kind: sum(of.get(kind, 0.0) for of in sizes) / number for kind in kinds}
