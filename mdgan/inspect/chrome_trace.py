"""Writes a run's timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

The format is no longer specified anywhere, so this follows what Perfetto shows. It hides processes
and threads with the number 0, so numbers start at 1. It names a thread by its number alone, so no
two threads share one. It drops events that overlap others of their thread, so spans of a worker
that overlap go to two threads.
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

_TOUCHING = 2  # microseconds by which rounding may make two spans overlap that in truth do not

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
    """Writes the timeline of a run; returns how many spans, and a line for all unreadable."""
    run = RecordedRun.read(path)
    trace = chrome_trace(run)
    data = json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    write_output(output, data)
    return sum(event["ph"] == "X" for event in trace["traceEvents"]), run.damage


def chrome_trace(run: RecordedRun) -> dict[str, Any]:
    """The timeline of a run: a process is a role, a thread is a worker.

    Returns:
        The trace in the JSON object format. Times are whole microseconds since the earliest.
    """
    traces = sorted((trace for trace in run.traces.values() if trace.spans), key=_order)
    if not traces:
        raise BadInput(run.path, "has no recorded spans", "wait for its first iterations")
    numbers = count(1)
    events: list[_Event] = []
    for trace in traces:
        process = next(numbers)
        events += _named("process", trace.role, process, thread=process, place=process)
        events += _spans(trace, process, numbers)
    events += _instants(run)
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
    first = first_worker(trace.role)
    return 1 if first else 2 * (trace.role == SCORER), first, trace.role


def _named(kind: str, name: str, process: int, thread: int, place: int) -> Iterator[_Event]:
    """What a process or a thread is called, and its place among the others."""
    for what, value in (("name", name), ("sort_index", place)):
        about = {"ph": "M", "name": f"{kind}_{what}", "args": {what: value}}
        yield {**about, "pid": process, "tid": thread}


def _spans(trace: Trace, process: int, numbers: Iterator[int]) -> Iterator[_Event]:
    """The spans of all of a role's workers, and the names of their threads."""
    by_worker = defaultdict(list)
    for iteration, spans in trace.spans.items():
        for span in spans:
            begin, end = _microseconds(span.start), _microseconds(span.end)
            by_worker[span.worker].append((begin, end, iteration, span))
    for worker, rows in sorted(by_worker.items()):
        name = f"worker {worker}" if worker else trace.role
        free_from: dict[int, int] = {}  # by thread
        for begin, end, iteration, span in sorted(rows, key=lambda row: (row[0], -row[1])):
            fitting = (number for number, free in free_from.items() if free - begin <= _TOUCHING)
            thread = next(fitting, 0)
            if not thread:
                # A thread that has its process's number is that process's main thread.
                thread = next(numbers) if worker or free_from else process
                more = f" ({len(free_from) + 1})" if free_from else ""
                yield from _named("thread", name + more, process, thread=thread, place=worker)
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


def _instants(run: RecordedRun) -> Iterator[_Event]:
    """Swaps, ends of rounds, and workers that came or went, at the first process."""
    rounds = count(1)
    for event in run.events:
        name = str(event.get("event"))
        if name == "round":
            name = f"round {next(rounds)}" + (" aborted" if event.get("aborted") is True else "")
        elif name in _NAMES:
            workers = typed(event, Happening).workers
            name = _NAMES[name].format(", ".join(map(str, workers)))
        elif name != "swap":
            continue
        seconds = number_in(event, "seconds")
        if seconds is not None:
            args = {name: value for name, value in event.items() if name not in _UNTOLD}
            where = {"pid": 1, "tid": 1, "s": "p", "ts": _microseconds(seconds)}
            yield {"ph": "i", "name": name, **where, "args": args}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
