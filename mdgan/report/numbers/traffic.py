"""What a run moved, in bytes, and how many samples it used."""

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
    """What the server moves in an average iteration or round; None if it recorded nothing."""
    trace = run.traces.get(SERVER)
    return role_rate(trace.traffic, len(run.of(RoundRow))) if trace else None


def worker_rate(run: RecordedRun) -> Rate | None:
    """What one worker moves in an average iteration, or of all rounds; mean over the workers."""
    rates = [(host, role_rate(host.traffic, len(run.of(RoundRow)))) for host in run.hosts]
    known = [(host, rate) for host, rate in rates if rate is not None]
    workers = sum(max(1, len(host.workers)) for host, _ in known)
    ways = [[rate.sent for _, rate in known], [rate.received for _, rate in known]]
    return Rate(*(_mean(way, workers) for way in ways)) if known else None


def role_rate(traffic: Sequence[TrafficCount], num_rounds: int = 0) -> Rate | None:
    """Bytes an iteration by kind, from counts since the start in time order; or bytes a round.

    The mean over the iterations between the first and the last count of every start, or over all
    where a start has one count only. With rounds, everything that moved, divided by their number.
    """
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    iterations = 0
    for start in _starts_of(traffic):
        first, last = start[0], start[-1]
        if num_rounds or last.iteration == first.iteration:
            first = TrafficCount(0, 0.0, {}, {})
        iterations += max(0, last.iteration - first.iteration)
        for moved, before, after in (
            (sent, first.sent, last.sent),
            (received, first.received, last.received),
        ):
            moved.update(after)
            moved.subtract({kind: before.get(kind, 0) for kind in after})
    times = num_rounds or iterations
    if not times or not traffic:
        return None
    both = (sent, received)
    return Rate(*({kind.lower(): moved[kind] / times for kind in moved} for moved in both))


def server_bytes(subject: Subject, iteration: float) -> float | None:
    """Bytes that the server had sent and received after an iteration; None if not recorded."""
    trace = subject.run.traces.get(SERVER)
    return bytes_until(trace.traffic, iteration) if trace else None


def worker_bytes(subject: Subject, iteration: float) -> float | None:
    """As `server_bytes`, mean over the workers; what one sends to another counts for both."""
    counted = [bytes_until(host.traffic, iteration) for host in subject.run.hosts]
    known = [size for size in counted if size is not None]
    # A worker that was never asked may have recorded nothing; the settings count it all the same.
    workers = max(subject.num_workers, len(subject.workers))
    return sum(known) / workers if known and workers else None


def bytes_until(traffic: Sequence[TrafficCount], iteration: float) -> float | None:
    """Bytes sent and received until an iteration in all starts, interpolated between two counts."""
    if not traffic:
        return None
    iterations, moved = [0], [0]
    for start in _starts_of(traffic):
        before = moved[-1]
        iterations += [count.iteration for count in start]
        moved += [before + count.total for count in start]
    return float(np.interp(iteration, iterations, moved))


def samples_processed(subject: Subject) -> float | None:
    """Real samples that discriminators were trained on and whose result went into the model.

    Those of workers that took part in a round that was not aborted, or elsewhere b · L for every
    answer or, without workers, every iteration. A sample counts as often as it was used.
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


def _starts_of(traffic: Sequence[TrafficCount]) -> list[list[TrafficCount]]:
    """The counts of a role by its starts; a count below the one before belongs to a new start."""
    starts: list[list[TrafficCount]] = []
    for count in traffic:
        if not starts or count.total < starts[-1][-1].total:
            starts.append([])
        starts[-1].append(count)
    return starts


def _mean(sizes: Sequence[Mapping[str, float]], number: int) -> dict[str, float]:
    """The sum of some sizes by kind, divided."""
    kinds = dict.fromkeys(kind for of in sizes for kind in of)
    return {kind: sum(of.get(kind, 0.0) for of in sizes) / number for kind in kinds}
