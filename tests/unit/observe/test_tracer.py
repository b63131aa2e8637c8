import resource
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.observe import tracer as module
from mdgan.observe.tracer import WINDOW, Tracer, memory_bytes, traced_every
from mdgan.records.recorded_run import RecordedSpan, Trace
from tests.unit.observe.conftest import Clock

ROUNDING_SECONDS = 1.6e-6


def do(
    tracer: Tracer, clock: Clock, name: str, seconds: float, worker: int = 0, num_bytes: int = 0
) -> None:
    with tracer.span(name, worker) as span:
        clock.now += seconds
        span.num_bytes = num_bytes


def read_back(rows: Iterable[dict[str, Any]]) -> Trace:
    trace = Trace("host-1")
    for row in rows:
        trace.add(row)
    return trace


def test_one_row_an_iteration_with_times_after_its_start_told_once(clock: Clock) -> None:
    tracer = Tracer()
    assert tracer.take() == []
    tracer.iteration = 1
    do(tracer, clock, "receive", 0.25, num_bytes=640)
    clock.now += 0.5
    do(tracer, clock, "feedback", 0.125, worker=3)
    tracer.iteration = 2
    do(tracer, clock, "receive", 0.0)
    spans = [["receive", 0, 0, 250_000, 640], ["feedback", 3, 750_000, 125_000, 0]]
    assert tracer.take() == [
        {"iteration": 1, "start": 1000.0, "spans": spans},
        {"iteration": 2, "start": 1000.875, "spans": [["receive", 0, 0, 0, 0]]},
    ]
    assert tracer.take() == []


def test_a_bounded_number_of_spans_is_kept_until_they_are_taken(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SPANS", 3)
    tracer = Tracer()
    for _ in range(2):
        for _ in range(5):
            do(tracer, clock, "receive", 0.1)
        assert sum(len(row["spans"]) for row in tracer.take()) == 3


def test_a_span_inside_another_is_kept_with_its_own_time(clock: Clock) -> None:
    tracer = Tracer()
    with tracer.span("swap"):
        clock.now += 1.0
        do(tracer, clock, "send", 2.0)
        clock.now += 3.0
    spans = {span.name: span for span in read_back(tracer.take()).spans[0]}
    assert (spans["swap"].start, spans["swap"].seconds) == pytest.approx((1000.0, 6.0))
    assert (spans["send"].start, spans["send"].seconds) == pytest.approx((1001.0, 2.0))


def test_a_span_that_fails_is_kept_in_the_iteration_in_which_it_ends(clock: Clock) -> None:
    tracer = Tracer()

    def fail() -> None:
        with tracer.span("receive"):
            clock.now += 1.5
            tracer.iteration = 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_back(tracer.take()).spans == {2: [RecordedSpan("receive", 0, 1000.0, 1.5, 0)]}


def test_the_callback_is_called_before_every_phase(clock: Clock) -> None:
    told: list[tuple[str, int, float]] = []
    tracer = Tracer(on_phase=lambda phase, iteration: told.append((phase, iteration, clock.now)))
    tracer.iteration = 3
    do(tracer, clock, "local step", 1.0, worker=2)
    tracer.of_worker(1)("feedback")  # not entered
    tracer.reach("write")
    tracer.reach("manifest", 2)
    with tracer.of_worker(5)("receive"):
        clock.now += 1.0
    assert told == [
        *(("local step", 3, 1000.0), ("write", 3, 1001.0)),
        *(("manifest", 2, 1001.0), ("receive", 3, 1001.0)),
    ]
    (spans,) = read_back(tracer.take()).spans.values()
    assert [(span.name, span.worker) for span in spans] == [("local step", 2), ("receive", 5)]


def test_it_is_due_about_once_a_second(clock: Clock) -> None:
    tracer = Tracer()
    assert not tracer.due()
    clock.now += 0.99
    assert not tracer.due()
    clock.now += 0.02
    assert tracer.due()
    tracer.take()
    assert not tracer.due()


@given(st.integers(1, 10**7), st.integers(1, 2000))
def test_small_runs_are_recorded_whole_and_large_ones_kept_small(
    iterations: int, num_workers: int
) -> None:
    every = traced_every(iterations, num_workers)
    assert every == 1 or iterations * num_workers > 200_000
    windows = -(-iterations // (WINDOW * every))
    recorded = min(iterations, windows * WINDOW) * num_workers
    assert recorded <= 200_000 + WINDOW * num_workers


class Did(NamedTuple):
    name: str
    worker: int
    pause: float
    seconds: float
    num_bytes: int
    next_iteration: bool
    taken: bool


SECONDS = st.floats(0, 5, allow_subnormal=False)
NAMES = st.sampled_from(["receive", "fake half", "send"])
DEEDS = st.builds(
    Did, NAMES, st.integers(0, 3), SECONDS, SECONDS, st.integers(0, 2**40), st.booleans(),
    st.booleans(),
)  # fmt: skip


@given(st.lists(DEEDS, max_size=60), st.integers(1, 3), st.floats(-1e6, 1e6))
def test_nothing_is_lost_or_told_twice(deeds: list[Did], every: int, offset: float) -> None:
    clock = Clock(5e5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        tracer = Tracer(every)
        tracer.clock_offset_seconds = offset
        expected: dict[int, list[RecordedSpan]] = {}
        rows = []
        for deed in deeds:
            tracer.iteration += deed.next_iteration * 4
            clock.now += deed.pause
            if tracer.iteration == 0 or (tracer.iteration - 1) // WINDOW % every == 0:
                span = RecordedSpan(
                    deed.name, deed.worker, clock.now + offset, deed.seconds, deed.num_bytes
                )
                expected.setdefault(tracer.iteration, []).append(span)
            do(tracer, clock, deed.name, deed.seconds, deed.worker, deed.num_bytes)
            if deed.taken:
                rows += tracer.take()
        found = read_back(rows + tracer.take()).spans
    assert found.keys() == expected.keys()
    for iteration, spans in expected.items():
        assert [span[:2] for span in found[iteration]] == [span[:2] for span in spans]
        for told, span in zip(found[iteration], spans, strict=True):
            assert told.num_bytes == span.num_bytes
            assert told.start == pytest.approx(span.start, rel=0, abs=ROUNDING_SECONDS)
            assert told.seconds == pytest.approx(span.seconds, rel=0, abs=ROUNDING_SECONDS)
        for before, after in pairwise(found[iteration]):
            assert before.end <= after.start + ROUNDING_SECONDS


def test_where_no_file_can_be_opened_nothing_is_known_of_memory() -> None:
    assert memory_bytes() > 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        assert memory_bytes() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
