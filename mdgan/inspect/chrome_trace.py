"""Writes a run's timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

The format is no longer specified anywhere, so this file follows what Perfetto shows. Perfetto hides
processes and threads with the number 0, so numbers start at 1. Perfetto names a thread by its
number alone, so no two threads share one. Perfetto drops events that overlap others of their
thread, so overlapping spans of a worker go to two threads.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.records.happenings import JOINED, LEFT, LOST, RESUMED, SHUT_OUT, Happening
from mdgan.records.recorded_run import RecordedRun, Trace
from mdgan.records.roles import SCORER, first_worker
from mdgan.records.rows import typed
from mdgan.records.values import number_in
from mdgan.storage.whole_file import write_output

_ROUNDING = 2  # microseconds by which two spans in sequence may overlap once they are rounded

_HIDDEN_FIELDS = ("event", "given", "taken", "holdings")
"""Fields of events that the trace omits: the name, which it shows anyway, digests, and holdings."""

_NAME_BY_EVENT = {
    LOST: "lost worker {}",
    SHUT_OUT: "worker {} shut out",
    LEFT: "worker {} left",
    JOINED: "worker {} joined",
    RESUMED: "resumed",
}

_Event = dict[str, Any]


def write_chrome_trace(path: Path, output: Path) -> tuple[int, tuple[str, ...]]:
    """Writes the timeline of a run; returns the number of spans, and a line for each damage."""
    run = RecordedRun.read_for_others(path)
    trace = chrome_trace(run)
    data = json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    write_output(output, data)
    return sum(event["ph"] == "X" for event in trace["traceEvents"]), run.damage


def chrome_trace(run: RecordedRun) -> dict[str, Any]:
    """Makes the trace of a run, with a process for each role and a thread for each worker.

    Returns:
        The trace in the JSON object format. Times are whole microseconds since the first event.

    Raises:
        BadInput: no process of the run has recorded a span.
    """
    # The owner of the generator first, then hosts by their first worker, then the scorer.
    named = [(first_worker(role), role) for role, trace in run.traces.items() if trace.spans]
    named.sort(key=lambda one: (1 if one[0] else 2 * (one[1] == SCORER), *one))
    traces = [run.traces[role] for _, role in named]
    if not traces:
        raise BadInput(run.path, "has no recorded spans", "wait for its first iterations")
    numbers = count(1)
    events: list[_Event] = []
    for trace in traces:
        process = next(numbers)
        events += _names("process", trace.role, process, thread=process, place=process)
        events += _span_events(trace, process, numbers)
    events += _instant_events(run)
    timed = [event for event in events if "ts" in event]
    earliest = min(event["ts"] for event in timed)
    for event in timed:
        event["ts"] -= earliest
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run": str(run.path), "version": str(run.status.get("version", ""))},
    }


def _names(kind: str, name: str, process: int, thread: int, place: int) -> Iterator[_Event]:
    """Yields the events that give a process or a thread its name and its place in the list."""
    for field, value in (("name", name), ("sort_index", place)):
        event = {"ph": "M", "name": f"{kind}_{field}", "args": {field: value}}
        yield {**event, "pid": process, "tid": thread}


def _span_events(trace: Trace, process: int, numbers: Iterator[int]) -> Iterator[_Event]:
    """Yields the spans of all workers of a role, and the names of their threads."""
    by_worker = defaultdict(list)
    for iteration, spans in trace.spans.items():
        for span in spans:
            begin, end = _microseconds(span.start), _microseconds(span.end)
            by_worker[span.worker].append((begin, end, iteration, span))
    for worker, rows in sorted(by_worker.items()):
        name = f"worker {worker}" if worker else trace.role
        free_from: dict[int, int] = {}  # by thread
        for begin, end, iteration, span in sorted(rows, key=lambda row: (row[0], -row[1])):
            free_threads = (n for n, free in free_from.items() if free - begin <= _ROUNDING)
            thread = next(free_threads, 0)
            if not thread:
                # A thread that has its process's number is that process's main thread.
                thread = next(numbers) if worker or free_from else process
                suffix = f" ({len(free_from) + 1})" if free_from else ""
                yield from _names("thread", name + suffix, process, thread=thread, place=worker)
            begin = max(begin, free_from.get(thread, begin))
            free_from[thread] = max(begin, end)
            yield {
                "ph": "X",
                "name": span.name,
                "pid": process,
                "tid": thread,
                "ts": begin,
                "dur": free_from[thread] - begin,
                "args": {"iteration": iteration, "bytes": span.num_bytes},
            }


def _instant_events(run: RecordedRun) -> Iterator[_Event]:
    """Yields swaps, ends of rounds, and workers that joined or left, for the first process."""
    rounds = count(1)
    for event in run.events:
        name = str(event.get("event"))
        if name == "round":
            name = f"round {next(rounds)}" + (" aborted" if event.get("aborted") is True else "")
        elif name in _NAME_BY_EVENT:
            workers = typed(event, Happening).workers
            name = _NAME_BY_EVENT[name].format(", ".join(map(str, workers)))
        elif name != "swap":
            continue
        seconds = number_in(event, "seconds")
        if seconds is not None:
            args = {field: v for field, v in event.items() if field not in _HIDDEN_FIELDS}
            where = {"pid": 1, "tid": 1, "s": "p", "ts": _microseconds(seconds)}
            yield {"ph": "i", "name": name, **where, "args": args}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
