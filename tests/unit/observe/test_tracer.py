"""What a process did at which time, and what it computed by kind of operator."""

import resource
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mdgan.observe import tracer as module
from mdgan.observe.profiler import Profiler, kind_of, seconds_by_kind
from mdgan.observe.settings import Iterations
from mdgan.observe.tracer import WINDOW, Tracer, memory_bytes, traced_every
from mdgan.records.recorded_run import RecordedSpan, Trace
from mdgan.records.rows import Profile
from mdgan.records.run_state import typed_row
from tests.unit.observe.conftest import Clock

ROUNDING_SECONDS = 1.6e-6


def do(
    tracer: Tracer, clock: Clock, name: str, seconds: float, worker: int = 0, num_bytes: int = 0
) -> None:
    with tracer.of_worker(worker)(name) as span:
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
        result = read_back(rows + tracer.take()).spans
    assert result.keys() == expected.keys()
    for iteration, spans in expected.items():
        assert [span[:2] for span in result[iteration]] == [span[:2] for span in spans]
        for told, span in zip(result[iteration], spans, strict=True):
            assert told.num_bytes == span.num_bytes
            assert told.start == pytest.approx(span.start, rel=0, abs=ROUNDING_SECONDS)
            assert told.seconds == pytest.approx(span.seconds, rel=0, abs=ROUNDING_SECONDS)
        for before, after in pairwise(result[iteration]):
            assert before.end <= after.start + ROUNDING_SECONDS


def test_where_no_file_can_be_opened_nothing_is_known_of_memory() -> None:
    assert memory_bytes() > 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        assert memory_bytes() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class Ran:
    """An operator that ran for some seconds, on the CPU and on a GPU."""

    def __init__(
        self, name: str, cpu: float = 0.0, gpu: float = 0.0, within: "Ran | None" = None
    ) -> None:
        self.name, self.cpu_parent = name, within
        self.self_cpu_time_total, self.self_device_time_total = 1e6 * cpu, 1e6 * gpu


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::addmm", "multiplication"),
        ("aten::native_batch_norm_backward", "normalisation"),
        ("aten::normal_", "elementwise and others"),
        ("aten::copy_", "copies"),
        ("aten::mul", "elementwise and others"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("mdgan:send", "sending"),
        ("mdgan:swap", "sending"),
        ("mdgan:receive", "waiting"),
    ],
)
def test_operators_are_told_apart_by_their_names(name: str, kind: str) -> None:
    assert kind_of(Ran(name)) == kind


def test_what_an_operator_runs_in_comes_before_its_name() -> None:
    step = Ran("Optimizer.step#AdaBelief.step", 1.0)
    sent = Ran("mdgan:send", 4.0, gpu=9.0)
    ran = [step, sent, Ran("aten::mm", 2.0, 0.5, within=step), Ran("aten::copy_", 8.0, 1.0, sent)]
    assert seconds_by_kind(ran, on_gpu=False) == {"optimizer": 3.0, "sending": 12.0}
    assert seconds_by_kind(ran, on_gpu=True) == {"optimizer": 0.5, "sending": 5.0}


def _train(tracer: Tracer, iterations: range) -> None:
    layer = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(layer.parameters())
    for tracer.iteration in iterations:
        with tracer.span("wait"):
            torch.zeros(8)
        with tracer.span("step"):
            layer(torch.ones(8, 64)).sum().backward()
            optimizer.step()


@pytest.mark.parametrize("last", [4, 9])
def test_the_iterations_asked_for_are_profiled_once(last: int) -> None:
    tracer = Tracer(profiler=Profiler(Iterations(3, last), torch.device("cpu")))
    _train(tracer, range(1, 3))
    assert tracer.profile() is None
    _train(tracer, range(3, 7))
    told = tracer.profile(at_end=True)
    assert told is not None
    assert tracer.profile(at_end=True) is None
    row = typed_row({**told, "event": "profile", "role": "server", "iteration": 6})
    assert isinstance(row, Profile)
    assert (row.first, row.last) == (3, min(last, 6))
    assert row.operators.keys() >= {"multiplication", "optimizer", "waiting", "between operators"}
    assert sum(row.operators.values()) == pytest.approx(row.profiled_seconds, rel=0.01)
    assert row.gpu is None


def test_a_profiler_that_does_not_start_lets_training_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracer = Tracer(profiler=Profiler(Iterations(1, 2), torch.device("cpu")))
    with patch("mdgan.observe.profiler.profile.start", side_effect=RuntimeError("busy")):
        _train(tracer, range(1, 4))
    assert "busy" in caplog.text
    assert tracer.profile(at_end=True) is None


def test_a_gpu_tells_how_busy_it_is() -> None:
    profiler = Profiler(Iterations(1, 1), torch.device("cuda"))
    with patch("torch.cuda.utilization", side_effect=[50, 100, RuntimeError("no driver")]):
        for _ in range(3):
            profiler.enter("step", 1)
            profiler.leave("step")
    told = profiler.tell(at_end=True)
    assert told is not None
    assert told["gpu"] == 0.75


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("7", "two iterations"),
        ("0..3", "at least 1"),
        ("5..4", "at most TO"),
        ("1..101", "at most 100 iterations, such as 1..10"),
        ("1..2..3", "two iterations"),
        ("-1..3", "two iterations"),
    ],
)
def test_iterations_that_make_no_sense(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Iterations.parse(text)
