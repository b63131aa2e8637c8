"""What a process computes, by kind of operator."""

from unittest.mock import patch

import pytest
import torch
from torch import nn

from mdgan.observe.profiler import Profiler, kind_of, seconds_by_kind
from mdgan.observe.settings import Iterations
from mdgan.observe.tracer import Tracer
from mdgan.records.rows import Profile
from mdgan.records.run_state import typed_row


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
