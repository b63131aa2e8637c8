"""Bytes an iteration or a round, by kind of message."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mdgan.records.recorded_run import RecordedRun, Trace, Traffic
from mdgan.report.numbers.operations import hosts_of
from mdgan.report.numbers.rounds import rounds_of

KIND_ORDER = (
    *(
        "batches",
        "feedback",
        "round",
        "update",
        "discriminators",
        "state",
        "adopt",
        "swap",
        "swapped",
        "spans",
    ),
    *("checkpoint", "checkpointed", "stop"),
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
    """What the server moves in an average iteration or round, or None if it recorded nothing."""
    trace = run.traces.get("server")
    return role_rate(trace.traffic, len(rounds_of(run))) if trace else None


def worker_rate(run: RecordedRun) -> Rate | None:
    """What one worker moves in an average iteration or round, mean over the workers.

    Rounds count whether it takes part in them or not.
    """
    num_rounds = len(rounds_of(run))
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    workers = 0
    for host in hosts_of(run):
        rate = role_rate(host.traffic, num_rounds)
        if rate is None:
            continue
        workers += num_workers_of(host)
        for totals, of_host in ((sent, rate.sent), (received, rate.received)):
            for kind, size in of_host.items():
                totals[kind] = totals.get(kind, 0.0) + size
    if not workers:
        return None
    return Rate(
        {kind: size / workers for kind, size in sent.items()},
        {kind: size / workers for kind, size in received.items()},
    )


def num_workers_of(host: Trace) -> int:
    """How many workers a host carries, by its spans; at least 1."""
    return max(1, len({s.worker for spans in host.spans.values() for s in spans} - {0}))


def role_rate(traffic: Sequence[Traffic], num_rounds: int = 0) -> Rate | None:
    """Bytes an iteration by kind, from counts since the start; or bytes a round.

    Args:
        traffic: in time order. Counts that fall belong to a new start of the role.
        num_rounds: of the whole run; 0 for one that has none.

    Returns:
        The mean over the iterations between the first and the last count of every start, or
        over all iterations where a start has one count only; None if there was no iteration.
        With rounds, everything that moved, divided by their number.
    """
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    iterations = 0
    for start in starts_of(traffic):
        first, last = start[0], start[-1]
        if num_rounds or last.iteration == first.iteration:
            first = Traffic(0, 0.0, {}, {})
        iterations += max(0, last.iteration - first.iteration)
        _add_increase(sent, first.sent, last.sent)
        _add_increase(received, first.received, last.received)
    times = num_rounds if num_rounds and traffic else iterations
    if not times:
        return None
    return Rate(
        {kind: size / times for kind, size in sent.items()},
        {kind: size / times for kind, size in received.items()},
    )


def starts_of(traffic: Sequence[Traffic]) -> list[list[Traffic]]:
    """The counts of every start of a role: counts that fall belong to a new one."""
    starts: list[list[Traffic]] = []
    for count in traffic:
        fell = bool(starts) and _total(count) < _total(starts[-1][-1])
        if not starts or fell:
            starts.append([])
        starts[-1].append(count)
    return starts


def _total(count: Traffic) -> float:
    return sum(count.sent.values()) + sum(count.received.values())


def _add_increase(
    totals: dict[str, float], before: Mapping[str, float], after: Mapping[str, float]
) -> None:
    for kind, size in after.items():
        name = kind.lower()
        totals[name] = totals.get(name, 0.0) + size - before.get(kind, 0)
