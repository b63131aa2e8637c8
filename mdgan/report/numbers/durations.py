"""How long iterations and their operations take, and which iterations take unusually long."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from mdgan.records.recorded_run import RecordedSpan, Trace

Key = TypeVar("Key", bound=Hashable)

SERVER_ORDER = (
    *("generate", "real half", "fake half", "both halves", "local step", "send", "wait"),
    *("reduce", "aggregate", "step", "swap", "evaluate", "checkpoint"),
)
"""Operations of the server, or of the only role of a run without hosts."""

WORKER_ORDER = (
    *("receive", "train", "real half", "fake half", "both halves", "local step", "feedback"),
    *("reduce", "step", "send", "swap", "checkpoint"),
)
_WAITING = "receive"


def role_operations(
    spans: Mapping[int, Sequence[RecordedSpan]], iterations: Collection[int]
) -> dict[str, float]:
    """Mean seconds of a role in an iteration by operation; empty if it recorded none of them."""
    recorded = [iteration for iteration in iterations if iteration in spans]
    done = [(span.name, span.seconds) for iteration in recorded for span in spans[iteration]]
    return {name: total / len(recorded) for name, total in summed(done).items()}


def worker_operations(
    hosts: Sequence[Trace], iterations: Collection[int]
) -> tuple[dict[str, float], int]:
    """Seconds in an iteration by operation, mean over the workers; and the number of iterations.

    What a host does once for all its workers (receive, send, swap) is averaged over the hosts. What
    it does for each of them is averaged over the workers for which it did something.
    """
    recorded = [(i, host.spans[i]) for host in hosts for i in iterations if i in host.spans]
    num_by_workers = len({(i, s.worker) for i, spans in recorded for s in spans if s.worker})
    done = [((s.name, s.worker > 0), s.seconds) for _, spans in recorded for s in spans]
    means: dict[str, float] = {}
    for (name, by_worker), total in summed(done).items():
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
    """Sorts operations: known ones in their order, then all others."""
    present = set(names)
    return [name for name in order if name in present] + sorted(present - set(order))


def summed(done: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """The seconds of each operation."""
    totals: dict[Key, float] = {}
    for key, seconds in done:
        totals[key] = totals.get(key, 0.0) + seconds
    return totals


NOT_TRAINING = frozenset({"evaluate", "checkpoint"})
"""Operations that are no part of an iteration, though they may interrupt one."""

_LAST_OPERATION = "step"  # an iteration or a round without this operation was cut off or aborted

MOST_STRETCHES = 300  # points of a drawn line
OUTLIER_DEVIATIONS = 5
_DEVIATION_PER_MAD = 1.4826

OUTLIERS_ARE = (
    f"longer than the median by more than {OUTLIER_DEVIATIONS} robust standard deviations "
    f"({_DEVIATION_PER_MAD} × the median absolute deviation)."
)


def iteration_durations(spans: Mapping[int, Sequence[RecordedSpan]]) -> dict[int, float]:
    """Seconds by complete iteration, first start to last end, without scoring and checkpoints."""
    durations = {}
    for iteration, done in sorted(spans.items()):
        if iteration < 1 or all(span.name != _LAST_OPERATION for span in done):
            continue
        training = [span for span in done if span.name not in NOT_TRAINING]
        start, end = min(span.start for span in training), max(span.end for span in training)
        paused = sum(
            max(0.0, min(end, span.end) - max(start, span.start))
            for span in done
            if span.name in NOT_TRAINING
        )
        durations[iteration] = end - start - paused
    return durations


def outlier_threshold(values: Sequence[float]) -> float:
    """The value above which others are outliers: median + 5 · 1.4826 · MAD; infinite for none."""
    if not values:
        return float("inf")
    middle = median(values)
    spread = median(abs(value - middle) for value in values)
    return middle + OUTLIER_DEVIATIONS * _DEVIATION_PER_MAD * spread


class BandedLine(NamedTuple):
    """A line with a band."""

    x: list[float]
    low: list[float]
    middle: list[float]
    high: list[float]

    def add(self, x: float, values: Sequence[float], middle: float, spread: float = 0.0) -> None:
        """Adds a point, with a band that contains these values."""
        new = (x, min(values) - spread, middle, max(values) + spread)
        for series, value in zip(self, new, strict=True):
            series.append(float(value))


def envelope(series: Mapping[int, float], most: int) -> BandedLine:
    """The medians of a long series by at most `most` stretches, with the extremes of each."""
    points = list(series.items())
    size = -(-len(points) // most) if points else 1
    thin = BandedLine(x=[], low=[], middle=[], high=[])
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        values = [value for _, value in stretch]
        thin.add((stretch[0][0] + stretch[-1][0]) / 2, values, median(values))
    return thin
