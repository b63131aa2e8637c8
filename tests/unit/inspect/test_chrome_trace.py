"""Timelines as Perfetto shows them, and `mdgan trace`."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from mdgan.cli.inspect import trace
from mdgan.errors import BadInput
from mdgan.inspect.chrome_trace import chrome_trace
from mdgan.records.recorded_run import RecordedRun, RecordedSpan, Trace
from tests.unit.observe.fake_run import FakeRun
from tests.unit.records import made_up

Event = dict[str, Any]
ROUNDING_MICROSECONDS = 2


def run_of(*traces: Trace, events: Sequence[Event] = ()) -> RecordedRun:
    by_role = {trace.role: trace for trace in traces}
    return made_up.run_of(*events, name="one", status={"version": "0"}, traces=by_role)


def trace_of(role: str, *spans: tuple[int, RecordedSpan]) -> Trace:
    trace = Trace(role)
    for iteration, span in spans:
        trace.spans.setdefault(iteration, []).append(span)
    return trace


def did(
    name: str, start: float, seconds: float, worker: int = 0, num_bytes: int = 0
) -> RecordedSpan:
    return RecordedSpan(name, worker, start, seconds, num_bytes)


def of_phase(trace: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def named(trace: dict[str, Any], kind: str) -> dict[int, Any]:
    """What metadata of one kind says, by process or thread."""
    key = "pid" if kind.startswith("process") else "tid"
    told = [event for event in of_phase(trace, "M") if event["name"] == kind]
    assert len({event[key] for event in told}) == len(told)
    return {event[key]: next(iter(event["args"].values())) for event in told}


def assert_perfetto_shows_all(trace: dict[str, Any]) -> None:
    """Perfetto hides the number 0, names threads by number alone and drops overlapping events."""
    threads = named(trace, "thread_name")
    owner: dict[int, int] = {}
    by_thread = defaultdict(list)
    for event in of_phase(trace, "X"):
        assert event["tid"] in threads
        assert owner.setdefault(event["tid"], event["pid"]) == event["pid"]
        by_thread[event["tid"]].append((event["ts"], event["dur"]))
    assert 0 not in threads
    assert 0 not in named(trace, "process_name")
    for spans in by_thread.values():
        assert all(dur >= 0 for _, dur in spans)
        assert all(ts + dur <= following for (ts, dur), (following, _) in pairwise(spans))
    timed = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert min(timed) == 0
    assert all(isinstance(ts, int) for ts in timed)


def test_a_process_is_a_role_and_a_thread_is_a_worker() -> None:
    trace = chrome_trace(
        run_of(
            trace_of("host-10", (1, did("feedback", 0.1, 0.1, worker=10))),
            trace_of("scorer", (1, did("evaluate", 0.3, 0.1))),
            trace_of(
                "host-2",
                (1, did("receive", 0.0, 0.1)),
                (1, did("feedback", 0.1, 0.1, worker=3)),
                (1, did("feedback", 0.2, 0.1, worker=2)),
            ),
            trace_of("server", (1, did("generate", 0.0, 0.1))),
        )
    )
    assert_perfetto_shows_all(trace)
    processes = named(trace, "process_name")
    assert list(processes.values()) == ["server", "host-2", "host-10", "scorer"]
    order = named(trace, "process_sort_index")
    assert sorted(processes, key=order.__getitem__) == list(processes)
    threads = named(trace, "thread_name")
    where = {
        (processes[event["pid"]], threads[event["tid"]], event["name"])
        for event in of_phase(trace, "X")
    }
    assert where == {
        ("server", "server", "generate"),
        ("host-2", "host-2", "receive"),
        ("host-2", "worker 2", "feedback"),
        ("host-2", "worker 3", "feedback"),
        ("host-10", "worker 10", "feedback"),
        ("scorer", "scorer", "evaluate"),
    }
    workers = named(trace, "thread_sort_index")
    assert {threads[thread]: worker for thread, worker in workers.items()}["worker 10"] == 10


def test_what_overlaps_gets_a_second_thread_unless_rounding_made_it_overlap() -> None:
    trace = chrome_trace(
        run_of(
            trace_of(
                "server",
                (1, did("generate", 0.0, 0.000011)),
                (1, did("send", 0.00001, 0.00001, num_bytes=640)),
                (1, did("wait", 0.000018, 0.000001)),
            ),
            trace_of(
                "host-4",
                (1, did("swap", 1.0, 1.0, worker=4)),
                (1, did("send", 1.5, 1.0, worker=4)),
                (1, did("receive", 2.5, 1.0, worker=4)),
            ),
        )
    )
    assert_perfetto_shows_all(trace)
    threads, spans = named(trace, "thread_name"), of_phase(trace, "X")
    assert [(threads[event["tid"]], event["ts"], event["dur"]) for event in spans] == [
        ("server", 0, 11),
        ("server", 11, 9),
        ("server", 20, 0),
        ("worker 4", 1_000_000, 1_000_000),
        ("worker 4 (2)", 1_500_000, 1_000_000),
        ("worker 4", 2_500_000, 1_000_000),
    ]
    assert spans[1]["args"] == {"iteration": 1, "bytes": 640}


SPANS = st.builds(
    RecordedSpan,
    st.sampled_from(["receive", "feedback"]),
    st.integers(0, 2),
    st.floats(-1, 1000),
    st.one_of(st.floats(0, 1e-5), st.floats(0, 100)),
    st.integers(0, 2**40),
)


@given(st.lists(st.tuples(st.integers(0, 50), SPANS), min_size=1, max_size=60))
def test_every_span_is_shown_once_and_hardly_moved(spans: list[tuple[int, RecordedSpan]]) -> None:
    trace = chrome_trace(run_of(trace_of("host-1", *spans)))
    assert_perfetto_shows_all(trace)
    first = min(round(span.start * 1e6) for _, span in spans)
    shown = sorted(
        (event["args"]["iteration"], event["name"], event["args"]["bytes"])
        for event in of_phase(trace, "X")
    )
    assert shown == sorted((iteration, span.name, span.num_bytes) for iteration, span in spans)
    ends = Counter(event["ts"] + event["dur"] for event in of_phase(trace, "X"))
    wanted = Counter(round((span.start + span.seconds) * 1e6) - first for _, span in spans)
    for end in wanted - ends:
        assert any(end < other <= end + ROUNDING_MICROSECONDS for other in ends)


def test_what_happened_is_marked_at_its_time() -> None:
    events: list[Event] = [
        {"event": "holdings", "iteration": 0, "seconds": 0.0, "workers": {"1": {}}},
        {"event": "swap", "iteration": 4, "seconds": 4.5, "moves": [[1, 2], [2, 1]]},
        {"event": "lost", "iteration": 5, "seconds": 5.0, "workers": [2, 3], "reason": "closed"},
        {"event": "round", "iteration": 6, "seconds": 6.0, "aborted": True},
        {"event": "late", "iteration": 6, "seconds": 6.0, "workers": [1]},
        {"event": "left", "iteration": 7, "seconds": 7.25, "workers": [2]},
        {"event": "round", "iteration": 8, "seconds": 8.0},
        {"event": "joined", "iteration": 9, "seconds": 9.5, "workers": [7], "holdings": {"7": {}}},
        {"event": "shut out", "iteration": 10, "seconds": 10.0, "workers": [3], "reason": "NaN"},
        {"event": "resumed", "iteration": 10, "seconds": 12.0, "workers": {"1": {}}},
        {"event": "lost", "iteration": 11, "workers": [1]},
        {"event": "swap"},
    ]
    trace = chrome_trace(run_of(trace_of("server", (4, did("step", 4.0, 0.5))), events=events))
    marked = of_phase(trace, "i")
    assert [(event["name"], event["ts"] / 1e6 + 4) for event in marked] == [
        ("swap", 4.5),
        ("lost worker 2, 3", 5.0),
        ("round 1 aborted", 6.0),
        ("worker 2 left", 7.25),
        ("round 2", 8.0),
        ("worker 7 joined", 9.5),
        ("worker 3 shut out", 10.0),
        ("resumed", 12.0),
    ]
    assert marked[0]["args"]["moves"] == [[1, 2], [2, 1]]
    assert "holdings" not in marked[5]["args"]
    assert {event["s"] for event in marked} == {"p"}


def test_a_run_without_spans_is_told_so(tmp_path: Path) -> None:
    (FakeRun(done=0).write(tmp_path / "run"))
    with pytest.raises(BadInput) as caught:
        chrome_trace(RecordedRun.read(tmp_path / "run"))
    assert str(caught.value).startswith(f"{tmp_path / 'run'}: has no recorded spans")


def command(*arguments: object) -> Result:
    return CliRunner().invoke(trace, [str(argument) for argument in arguments])


def test_the_command_writes_where_it_is_told_to_and_says_what_it_found(tmp_path: Path) -> None:
    run = FakeRun(workers=2, iterations=20).write(tmp_path / "run")
    done = command(run)
    assert (done.exit_code, done.stderr) == (0, "")
    written = json.loads((run / "trace.json").read_text())
    assert written == chrome_trace(RecordedRun.read(run))
    number = sum(event["ph"] == "X" for event in written["traceEvents"])
    message = f"{run / 'trace.json'}: {number:,} spans; open it at https://ui.perfetto.dev\n"
    assert done.stdout == message
    with (run / "trace" / "server.jsonl").open("a") as file:
        file.write('{"iteration": 21, "sta')
    before = set(run.iterdir())
    done = command(run, "-o", tmp_path / "here.json")
    assert done.exit_code == 0
    assert json.loads((tmp_path / "here.json").read_text())["traceEvents"]
    assert set(run.iterdir()) == before
    assert done.stderr == (
        f"mdgan: warning: {run / 'trace' / 'server.jsonl'}: ends in the middle of a line, "
        "which is left out\n"
    )
