"""Bytes an iteration or a round, by kind of message."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mdgan.records.recorded_run import RecordedRun, Traffic
from mdgan.records.roles import SERVER
from mdgan.records.rows import Round

KIND_ORDER = (
    *("batches", "feedback", "round", "update", "discriminators", "state", "adopt", "swap"),
    *("swapped", "spans", "checkpoint", "checkpointed", "stop"),
)


class Rate(NamedTuple):
    """Bytes an iteration, or a round.

    Attributes:
        sent: by kind of message.
        received: by kind of message.
    """

    sent: Mapping[str, float]
    received: Mapping[str, float]


def server_rate(run: RecordedRun) -> Rate | None:
    """What the server moves in an average iteration or round; None if it recorded nothing."""
    trace = run.traces.get(SERVER)
    return role_rate(trace.traffic, len(run.of(Round))) if trace else None


def worker_rate(run: RecordedRun) -> Rate | None:
    """What one worker moves in an average iteration or round, mean over the workers.

    The average is over all rounds, also those in which a worker takes no part.
    """
    rates = [(host, role_rate(host.traffic, len(run.of(Round)))) for host in run.hosts]
    known = [(host, rate) for host, rate in rates if rate is not None]
    if not known:
        return None
    workers = sum(max(1, len(host.workers)) for host, _ in known)
    return _mean([rate for _, rate in known], workers)


def role_rate(traffic: Sequence[Traffic], num_rounds: int = 0) -> Rate | None:
    """Bytes an iteration by kind, from counts since the start; or bytes a round.

    Args:
        traffic: in time order. Where a count is below the one before, the role has started again.
        num_rounds: of the whole run; 0 for one that has none.

    Returns:
        The mean over the iterations between the first and the last count of every start, or
        over all iterations where a start has one count only; None if there was no iteration.
        With rounds, everything that moved, divided by their number.
    """
    increases = []
    iterations = 0
    for start in starts_of(traffic):
        first, last = start[0], start[-1]
        if num_rounds or last.iteration == first.iteration:
            first = Traffic(0, 0.0, {}, {})
        iterations += max(0, last.iteration - first.iteration)
        ways = ((first.sent, last.sent), (first.received, last.received))
        increases.append(Rate(*(_increase(before, after) for before, after in ways)))
    times = num_rounds or iterations
    return _mean(increases, times) if times and traffic else None


def starts_of(traffic: Sequence[Traffic]) -> list[list[Traffic]]:
    """The counts of a role by its starts; a count below the one before belongs to a new start."""
    starts: list[list[Traffic]] = []
    for count in traffic:
        if not starts or count.total < starts[-1][-1].total:
            starts.append([])
        starts[-1].append(count)
    return starts


def _increase(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {kind.lower(): size - before.get(kind, 0) for kind, size in after.items()}


def _mean(rates: Sequence[Rate], times: int) -> Rate:
    """The sum of some rates, divided."""
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for rate in rates:
        for totals, sizes in zip(sums, rate, strict=True):
            for kind, size in sizes.items():
                totals[kind] = totals.get(kind, 0.0) + size
    return Rate(*({kind: size / times for kind, size in totals.items()} for totals in sums))
