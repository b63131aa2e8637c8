"""How long each operation takes in an average iteration."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from mdgan.observe.recorded_run import RecordedRun, RecordedSpan, Trace

SERVER_ORDER = ("generate", "send", "wait", "aggregate", "step", "swap", "evaluate", "checkpoint")
WORKER_ORDER = (
    *("receive", "real half", "fake half", "local step", "feedback", "send", "swap"),
    "checkpoint",
)
STANDALONE_ORDER = (
    "generate",
    "real half",
    "fake half",
    "local step",
    "aggregate",
    "step",
    "evaluate",
    "checkpoint",
)


def role_operations(
    spans: Mapping[int, Sequence[RecordedSpan]], iterations: Collection[int]
) -> dict[str, float]:
    """Seconds an iteration by operation, of one role; empty if it did not record any of them."""
    recorded = [iteration for iteration in iterations if iteration in spans]
    totals = _totals(span for iteration in recorded for span in spans[iteration])
    return {name: seconds / len(recorded) for name, seconds in totals.items()}


def worker_operations(
    hosts: Iterable[Trace], iterations: Collection[int]
) -> tuple[dict[str, float], int]:
    """Seconds an iteration by operation, mean over the workers.

    What a host does once for all its workers (receive, send, swap) is averaged over hosts, and what
    it does for each of them over workers.

    Args:
        hosts: the traces of the hosts.
        iterations: over which to average; those that a host did not record do not count.

    Returns:
        Seconds by operation, and the number of iterations that any host recorded.
    """
    of_hosts: Counter[str] = Counter()
    of_workers: Counter[str] = Counter()
    host_iterations = worker_iterations = 0
    seen: set[int] = set()
    for trace in hosts:
        recorded = [iteration for iteration in iterations if iteration in trace.spans]
        spans = [span for iteration in recorded for span in trace.spans[iteration]]
        of_hosts.update(_totals(span for span in spans if span.worker == 0))
        of_workers.update(_totals(span for span in spans if span.worker != 0))
        host_iterations += len(recorded)
        worker_iterations += len(recorded) * len({span.worker for span in spans} - {0})
        seen.update(recorded)
    means = {name: seconds / host_iterations for name, seconds in of_hosts.items()}
    for name, seconds in of_workers.items():
        means[name] = means.get(name, 0.0) + seconds / worker_iterations
    return means, len(seen)


def hosts_of(run: RecordedRun) -> list[Trace]:
    """The traces of a run's hosts, in the order of their first workers."""
    hosts = [trace for role, trace in run.traces.items() if role.startswith("host-")]
    return sorted(hosts, key=lambda trace: first_worker(trace.role))


def first_worker(role: str) -> int:
    """N of `host-N`; 0 if there is no number."""
    number = role.removeprefix("host-")
    return int(number) if number.isdecimal() else 0


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Known operations in their order, then all others."""
    present = set(names)
    return [name for name in order if name in present] + sorted(present - set(order))


def _totals(spans: Iterable[RecordedSpan]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for span in spans:
        totals[span.name] += span.seconds  # type: ignore[assignment]  # a Counter adds floats too
    return totals
