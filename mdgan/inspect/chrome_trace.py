"""Writes a run's timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

The format is no longer specified anywhere, so this follows what Perfetto shows. It hides processes
and threads with the number 0, so numbers start at 1. It names a thread by its number alone, so no
two threads share one. It drops events that overlap others of their thread, so spans of a worker
that overlap go to two threads.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mdgan.errors import BadInput
from mdgan.records.happenings import JOINED, LEFT, LOST, RESUMED, SHUT_OUT, happening
from mdgan.records.recorded_run import RecordedRun, RecordedSpan, Trace, TrafficCount
from mdgan.records.values import number_in
from mdgan.storage.whole_file import write_output

_TOUCHING = 2
"""Microseconds by which rounding may make two spans overlap that in truth do not."""

_UNTOLD = ("event", "given", "taken", "holdings")
"""Fields of events that are left out: the name, shown anyway, digests, and what workers hold."""

_NAMES = {
    LOST: "lost worker {}",
    SHUT_OUT: "worker {} shut out",
    LEFT: "worker {} left",
    JOINED: "worker {} joined",
    RESUMED: "resumed",
}

_Event = dict[str, Any]


def write_chrome_trace(path: Path, output: Path) -> tuple[int, tuple[str, ...]]:
    """Writes the timeline of a finished or running run.

    Returns:
        The number of spans, and one line for each thing in the run that could not be read.
    """
    run = RecordedRun.read(path)
    trace = chrome_trace(run)
    data = json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    write_output("-o", output, data)
    return sum(event["ph"] == "X" for event in trace["traceEvents"]), run.damage


def chrome_trace(run: RecordedRun) -> dict[str, Any]:
    """The timeline of a run: a process is a role, a thread is a worker.

    Returns:
        The trace in the JSON object format. Times are whole microseconds since the earliest.
    """
    traces = sorted((trace for trace in run.traces.values() if trace.spans), key=_order)
    if not traces:
        raise BadInput(f"{run.path}: has no recorded spans; wait for its first iterations")
    numbers = count(1)
    processes = {trace.role: next(numbers) for trace in traces}
    events: list[_Event] = []
    for trace in traces:
        process = processes[trace.role]
        events += [
            _event("M", "process_name", process, args={"name": trace.role}),
            _event("M", "process_sort_index", process, args={"sort_index": process}),
        ]
        events += _spans(trace, process, numbers)
        events += _rates(trace.traffic, process)
    events += _instants(run, processes[traces[0].role])
    timed = [event for event in events if "ts" in event]
    earliest = min(event["ts"] for event in timed)
    for event in timed:
        event["ts"] -= earliest
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run": str(run.path), "version": str(run.status.get("version", ""))},
    }


def _order(trace: Trace) -> tuple[int, int, str]:
    """First the role that owns the generator, then hosts by their first worker, then the scorer."""
    kind, _, number = trace.role.partition("-")
    if kind == "host" and number.isdigit():
        return 1, int(number), trace.role
    return 2 * (kind == "scorer"), 0, trace.role


def _event(phase: str, name: str, process: int, thread: int | None = None, **more: Any) -> _Event:
    where = {"pid": process, "tid": process if thread is None else thread}
    return {"ph": phase, "name": name, **where, **more}


def _spans(trace: Trace, process: int, numbers: Iterator[int]) -> Iterator[_Event]:
    """The spans of all of a role's workers, and the names of their threads."""
    by_worker: dict[int, list[tuple[int, int, int, RecordedSpan]]] = {}
    for iteration, spans in trace.spans.items():
        for span in spans:
            begin = _microseconds(span.start)
            end = _microseconds(span.start + span.seconds)
            by_worker.setdefault(span.worker, []).append((begin, end, iteration, span))
    for worker, rows in sorted(by_worker.items()):
        # A thread that has its process's number is that process's main thread.
        threads = [process if worker == 0 else next(numbers)]
        rows.sort(key=lambda row: (row[0], -row[1]))
        lanes = _lanes((begin, end) for begin, end, _, _ in rows)
        for (_, _, iteration, span), (begin, end, lane) in zip(rows, lanes, strict=True):
            if lane == len(threads):
                threads.append(next(numbers))
            args = {"iteration": iteration, "bytes": span.num_bytes}
            where = process, threads[lane]
            yield _event("X", span.name, *where, ts=begin, dur=end - begin, args=args)
        name = f"worker {worker}" if worker else trace.role
        for lane, thread in enumerate(threads):
            more = f" ({lane + 1})" if lane else ""
            yield _event("M", "thread_name", process, thread, args={"name": name + more})
            yield _event("M", "thread_sort_index", process, thread, args={"sort_index": worker})


def _lanes(intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Puts each interval into the first lane that is free by then."""
    free_from: list[int] = []
    for begin, end in intervals:
        fits = (lane for lane, free in enumerate(free_from) if free - begin <= _TOUCHING)
        lane = next(fits, len(free_from))
        moved = max([begin, *free_from[lane : lane + 1]])
        free_from[lane : lane + 1] = [max(moved, end)]
        yield moved, free_from[lane], lane


def _rates(traffic: list[TrafficCount], process: int) -> Iterator[_Event]:
    """Bytes per second between two rows, from the first of them on."""
    rates: list[tuple[float, int, int]] = []
    for before, after in pairwise([TrafficCount(0, 0.0, {}, {}), *traffic]):
        if (seconds := after.seconds - before.seconds) > 0:
            sent, received = (
                # 0 if counting began anew in between, as in a resumed run.
                round(max(0, sum(now.values()) - sum(earlier.values())) / seconds)
                for earlier, now in ((before.sent, after.sent), (before.received, after.received))
            )
            rates.append((before.seconds, sent, received))
    if traffic:
        rates.append((traffic[-1].seconds, 0, 0))
    for begin, sent, received in rates:
        args = {"sent": sent, "received": received}
        yield _event("C", "bytes per second", process, ts=_microseconds(begin), args=args)


def _instants(run: RecordedRun, process: int) -> Iterator[_Event]:
    """Swaps, ends of rounds, and workers that came or went."""
    server = run.traces.get("server", Trace("server"))
    ends = _ends(run, server)

    def end_of(iteration: float) -> float:
        return float(np.interp(iteration, list(ends), list(ends.values())))

    for event in run.named("swap"):
        iteration = number_in(event, "iteration")
        if iteration is not None:
            spans = server.spans.get(int(iteration), ())
            began = next((span.start for span in spans if span.name == "swap"), None)
            yield _instant("swap", process, end_of(iteration) if began is None else began, event)
    for number, event in enumerate(run.named("round"), start=1):
        iteration = number_in(event, "iteration")
        if iteration is not None:
            seconds = number_in(event, "seconds")
            name = f"round {number}" + (" aborted" if event.get("aborted") is True else "")
            yield _instant(name, process, end_of(iteration) if seconds is None else seconds, event)
    for event in run.events:
        found = happening(event)
        if found is not None and found.kind in _NAMES:
            name = _NAMES[found.kind].format(", ".join(map(str, found.workers)))
            seconds = end_of(found.iteration) if found.seconds is None else found.seconds
            yield _instant(name, process, seconds, event)


def _ends(run: RecordedRun, server: Trace) -> dict[int, float]:
    """When iterations ended, by increasing number, for events that are recorded without a time."""
    ends = {0: 0.0}
    for record in run.iterations:
        iteration, seconds = number_in(record, "iteration"), number_in(record, "seconds")
        if iteration is not None and seconds is not None:
            ends[int(iteration)] = seconds
    for number, spans in server.spans.items():
        ends[number] = max(span.start + span.seconds for span in spans)
    return dict(sorted(ends.items()))


def _instant(name: str, process: int, seconds: float, event: Mapping[str, Any]) -> _Event:
    args = {name: value for name, value in event.items() if name not in _UNTOLD}
    return _event("i", name, process, s="p", ts=_microseconds(seconds), args=args)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
