"""How long each operation takes in an average iteration."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from mdgan.records.recorded_run import RecordedSpan, Trace

Key = TypeVar("Key", bound=Hashable)

SERVER_ORDER = (
    *("generate", "real half", "fake half", "both halves", "local step", "send", "wait"),
    *("reduce", "aggregate", "step", "swap", "evaluate", "checkpoint"),
)
"""On the server, or on the only role of a run without hosts."""

WORKER_ORDER = (
    *("receive", "train", "real half", "fake half", "both halves", "local step", "feedback"),
    *("reduce", "step", "send", "swap", "checkpoint"),
)
_WAITING = "receive"


def role_operations(
    spans: Mapping[int, Sequence[RecordedSpan]], iterations: Collection[int]
) -> dict[str, float]:
    """Seconds an iteration by operation, of one role; empty if it did not record any of them."""
    recorded = [iteration for iteration in iterations if iteration in spans]
    done = [(span.name, span.seconds) for iteration in recorded for span in spans[iteration]]
    return {name: total / len(recorded) for name, total in _totals(done).items()}


def worker_operations(
    hosts: Sequence[Trace], iterations: Collection[int]
) -> tuple[dict[str, float], int]:
    """Seconds an iteration by operation, mean over the workers.

    What a host does once for all its workers (receive, send, swap) is averaged over the hosts. What
    it does for each of them is averaged over the workers for which it did something.

    Returns:
        Seconds by operation, and the number of iterations that any host recorded.
    """
    recorded = [(i, host.spans[i]) for host in hosts for i in iterations if i in host.spans]
    num_by_workers = len({(i, s.worker) for i, spans in recorded for s in spans if s.worker})
    done = [((s.name, s.worker > 0), s.seconds) for _, spans in recorded for s in spans]
    means: dict[str, float] = {}
    for (name, by_worker), total in _totals(done).items():
        times = num_by_workers if by_worker else len(recorded)
        means[name] = means.get(name, 0.0) + total / times
    return means, len({i for i, _ in recorded})


def within_rounds(host: Trace, server: Trace) -> Trace:
    """A host's spans without the waiting outside the rounds that it took part in."""
    spans = {}
    for iteration, done in host.spans.items():
        round_ = server.spans.get(iteration, ())
        begin = min((span.start for span in round_), default=0.0)
        end = max((span.end for span in round_), default=0.0)
        spans[iteration] = [
            span._replace(start=start, seconds=stop - start)
            for span in done
            for start, stop in [_clipped(span, begin, end)]
            if stop > start or span.name != _WAITING
        ]
    return Trace(host.role, spans, host.traffic)


def _clipped(span: RecordedSpan, begin: float, end: float) -> tuple[float, float]:
    inside = max(span.start, begin), min(span.end, end)
    return inside if span.name == _WAITING else (span.start, span.end)


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Known operations in their order, then all others."""
    present = set(names)
    return [name for name in order if name in present] + sorted(present - set(order))


def _totals(done: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    totals: dict[Key, float] = {}
    for key, seconds in done:
        totals[key] = totals.get(key, 0.0) + seconds
    return totals
