"""What every role did in a few iterations or rounds, named by their last iteration, as lanes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median, median_low
from typing import NamedTuple

from mdgan.observe.tracer import WINDOW
from mdgan.records.recorded_run import Trace
from mdgan.records.roles import SCORER, first_worker
from mdgan.report.numbers.durations import NOT_TRAINING
from mdgan.report.numbers.subject import Subject

MOST_LANES = 24


class Lane(NamedTuple):
    """One row of a timeline: operation, start and duration of each span, in seconds."""

    label: str
    spans: list[tuple[str, float, float]]

    def busy(self, seconds: float) -> float:
        """The share of a timeline of this length in which this lane was not idle."""
        end = covered = 0.0
        for _, start, duration in sorted(self.spans, key=lambda span: span[1]):
            covered += max(0.0, start + duration - max(start, end))
            end = max(end, start + duration)
        return covered / seconds if seconds > 0 else 0.0


class Timeline(NamedTuple):
    """Lanes over the same stretch of time, from the first iteration, or number of a round, on."""

    first: int
    last: int
    seconds: float
    lanes: list[Lane]
    num_left_out: int


def typical_window(subject: Subject) -> tuple[int, int] | None:
    """The first and last of at most ten iterations or rounds in a row of a usual duration."""
    at, recorded = _recorded(subject)
    windows = [[*range(first, first + WINDOW)] for first in recorded if first % WINDOW == 1]
    windows = [window for window in windows if recorded >= {*window}]
    if len(windows) > 1:
        windows = [w for w in windows if w[0] > 1]  # in the first ten caches are still cold
    windows = [w for w in windows if not _pauses(subject, [at[i] for i in w])] or windows
    if windows:
        lengths = {w[0]: sum(subject.durations[at[i]] for i in w) for w in windows}
        middle = median_low(lengths.values())
        first = min(lengths, key=lambda start: (abs(lengths[start] - middle), start))
        return at[first], at[first + WINDOW - 1]
    if not recorded:
        return None
    first = last = max(recorded)
    while first - 1 in recorded and last - first + 1 < WINDOW:
        first -= 1
    return at[first], at[last]


def typical_iteration(subject: Subject) -> int | None:
    """The iteration or round of the typical window that is nearest to the median duration."""
    window = typical_window(subject)
    if window is None:
        return None
    middle = median(subject.durations.values())
    inside = [i for i in subject.durations if window[0] <= i <= window[1]]
    return min(inside, key=lambda i: abs(subject.durations[i] - middle))


def timeline(subject: Subject, first: int, last: int) -> Timeline:
    """What every role did from the start of one iteration or round to the end of another."""
    main = subject.main_trace
    assert main is not None
    begin = min(span.start for span in main.spans[first])
    end = max(span.end for span in main.spans[last] if span.name not in NOT_TRAINING)
    near = _near(subject, first, last)
    lanes = [Lane(main.role, _clip(main, near, begin, end))]
    for host in subject.hosts:
        if _is_there(subject, host, first, last):
            lanes += _host_lanes(host, near, begin, end)
    scorer = subject.run.traces.get(SCORER)
    if scorer:
        spans = _clip(scorer, scorer.spans, begin, end)
        lanes += [Lane("scorer", spans)] if spans else []
    numbers = subject.number_of(first), subject.number_of(last)
    return Timeline(*numbers, end - begin, _fitting(lanes), max(0, len(lanes) - MOST_LANES))


def _near(subject: Subject, first: int, last: int) -> Sequence[int]:
    """The iterations of a timeline, and those just before and after it, in order."""
    if not subject.has_rounds():
        return range(first - 1, last + 2)
    ends = [0, *sorted(subject.round_numbers)]
    places = [place for place, end in enumerate(ends) if first <= end <= last]
    return ends[max(0, places[0] - 1) : places[-1] + 2]


def _fitting(lanes: list[Lane]) -> list[Lane]:
    """As many lanes as there is room for, in their order; empty ones are left out first."""
    chosen = sorted(range(len(lanes)), key=lambda n: (not lanes[n].spans, n))[:MOST_LANES]
    return [lanes[n] for n in sorted(chosen)]


def _is_there(subject: Subject, host: Trace, first: int, last: int) -> bool:
    """Whether a host took part then; with rounds, also if none of its workers was asked."""
    if not subject.has_rounds():
        return bool(host.spans) and min(host.spans) <= last and max(host.spans) >= first
    carried = host.workers or {first_worker(host.role)}
    return any(
        begin < last and end >= first
        for worker in subject.presences
        if worker.worker in carried
        for begin, end in worker.stays
    )


def _recorded(subject: Subject) -> tuple[dict[int, int], set[int]]:
    """Place → iteration, and the places that as many hosts as possible recorded."""
    every = sorted(subject.durations)
    at = dict(enumerate(every, start=1)) if subject.has_rounds() else {i: i for i in every}
    times = Counter(i for host in subject.hosts for i in subject.durations.keys() & host.spans)
    most = 1 if subject.has_rounds() else max(times.values(), default=0)
    chosen = {i for i, amount in times.items() if amount >= most} or set(every)
    return at, {place for place, i in at.items() if i in chosen}


def _pauses(subject: Subject, iterations: Sequence[int]) -> bool:
    """Whether some iterations were held up by scoring or by a checkpoint."""
    spans = subject.main_trace.spans if subject.main_trace else {}
    return any(span.name in NOT_TRAINING for i in iterations for span in spans.get(i, ()))


def _host_lanes(host: Trace, near: Sequence[int], begin: float, end: float) -> list[Lane]:
    workers = sorted(host.workers)
    if len(workers) <= 1:
        name = workers[0] if workers else first_worker(host.role)
        return [Lane(f"worker {name}", _clip(host, near, begin, end))]
    lanes = [Lane(f"host {workers[0]}–{workers[-1]}", _clip(host, near, begin, end, 0))]
    return lanes + [Lane(f"worker {n}", _clip(host, near, begin, end, n)) for n in workers]


def _clip(
    trace: Trace, iterations: Iterable[int], begin: float, end: float, worker: int | None = None
) -> list[tuple[str, float, float]]:
    clipped = []
    for iteration in iterations:
        for span in trace.spans.get(iteration, ()):
            start, stop = max(span.start, begin), min(span.end, end)
            if stop > start and worker in (None, span.worker):
                clipped.append((span.name, start - begin, stop - start))
    return clipped
