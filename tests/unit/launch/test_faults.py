"""Planned faults: how they are read, and whom they strike, when and how often."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch import faults as module
from mdgan.launch import given as stages
from mdgan.launch.faults import (
    FAULTS,
    SIGNALS,
    Fault,
    FaultFolder,
    Planned,
    RoleProcess,
    as_variables,
    read_planned,
)
from mdgan.observe.tracer import OnPhase, Tracer
from tests.marks import examples
from tests.processes import run_here

ALL_SERVER_PHASES, ALL_HOST_PHASES = registry.all_phases()
Struck = list[signal.Signals]


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> Struck:
    """What has struck this process, which goes on all the same."""
    signals: Struck = []

    def strike(process: int, number: signal.Signals) -> None:
        assert process == os.getpid()
        signals.append(number)

    monkeypatch.setattr(os, "kill", strike)
    return signals


def planned(text: str, role: str, folder: Path | None = None) -> OnPhase | None:
    variables = {FAULTS: text}
    return read_planned(variables | ({module.FOLDER: str(folder)} if folder else {})).on_phase(role)


roles = st.just("server") | st.integers(1, 10**6).map("host-{}".format)


@st.composite
def some_fault(draw: st.DrawFn) -> Fault:
    role = draw(roles)
    phases = ALL_SERVER_PHASES if role == "server" else ALL_HOST_PHASES
    action = draw(st.sampled_from(sorted(SIGNALS)))
    return Fault(role, action, draw(st.sampled_from(phases)), draw(st.integers(0, 10**6)))


@settings(max_examples=examples(8))
@given(st.lists(some_fault(), max_size=5))
def test_variables_say_what_they_were_given(faults: list[Fault]) -> None:
    read = read_planned(as_variables(faults, Path("/somewhere")))
    assert read.faults == tuple(faults)
    assert read.folder is not None
    assert read.folder.path == Path("/somewhere")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host-2", "ROLE:ACTION@PHASE:ITERATION"),
        ("host-0:kill@swap:1", "ROLE:ACTION@PHASE:ITERATION"),
        ("server:kill@wait:-1", "ROLE:ACTION@PHASE:ITERATION"),
        ("server:kill@wait:1;nonsense", "'nonsense'"),
        ("server:hug@wait:1", "hug is none of kill, stop, leave"),
        ("server:kill@feedback:1", "feedback is none of generate, send"),
        ("host-1:kill@wait:1", "wait is none of receive"),
    ],
)
def test_malformed_faults(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_planned({FAULTS: text})
    assert FAULTS in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_malformed_faults_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS, "host-1:kill")
    result = run_here("train", "--out", "run", cwd=tmp_path)
    assert result.status == 2
    assert result.errors.count("\n") == 1, result
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "host-2:kill@swap:1", ";"])
def test_a_role_that_no_fault_is_meant_for_is_not_watched(text: str) -> None:
    assert planned(text, "host-1") is None
    assert planned(text, "server") is None


def test_a_span_strikes_at_its_beginning_once_and_not_before_its_iteration(struck: Struck) -> None:
    tracer = Tracer(on_phase=planned("host-1:kill@local-step:7;host-1:stop@swap:7", "host-1"))
    for iteration, wanted in ((6, 0), (8, 1), (9, 1)):
        tracer.iteration = iteration
        with tracer.span("feedback"):
            assert len(struck) == (iteration > 8)
        with tracer.span("local step"):
            assert len(struck) == wanted
    assert struck == [signal.SIGKILL]
    tracer.reach("swap", 6)
    assert struck == [signal.SIGKILL]
    tracer.reach("swap")
    assert struck == [signal.SIGKILL, signal.SIGSTOP]


def test_the_owner_of_the_folder_says_when(struck: Struck, tmp_path: Path) -> None:
    text = "host-1:leave@send:3;host-2:kill@send:3"
    first, second = (planned(text, role, tmp_path) for role in ("host-1", "host-2"))
    assert first is not None
    assert second is not None
    folder, me = FaultFolder(tmp_path), os.getpid()
    assert sorted(each.role for each in folder.processes()) == ["host-1", "host-2"]
    assert folder.processes()[0] == RoleProcess(me, os.getsid(0), folder.processes()[0].role)
    first("send", 3)
    assert struck == []
    assert folder.struck() == {}
    folder.allow(0)
    second("send", 4)
    assert struck == [], "what was allowed is meant for another process"
    first("send", 5)
    first("send", 6)
    assert struck == [signal.SIGTERM]
    (strike,) = folder.struck().values()
    assert (strike.number, strike.process, strike.iteration) == (0, me, 5)


def test_a_fault_strikes_only_one_process_of_a_role(struck: Struck, tmp_path: Path) -> None:
    """As when a worker was killed and another has come in its place."""
    both = [planned("host-1:kill@send:3", "host-1", tmp_path) for _ in range(2)]
    FaultFolder(tmp_path).allow(0)
    for on_phase in both:
        assert on_phase is not None
        on_phase("send", 3)
    assert struck == [signal.SIGKILL]


IN_MEMORY = ["--transport", "memory", "--workers-per-host", "1"]


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (["train", *IN_MEMORY], {"algorithm": "mdgan", "swap_interval": 2}),
        (["train", *IN_MEMORY], {"algorithm": "fl-gan", "round_iterations": 2}),
        (["standalone"], {"algorithm": "standalone"}),
    ],
    ids=["mdgan", "fl-gan", "standalone"],
)
def test_every_phase_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], given: dict[str, Any]
) -> None:
    """A fault can be planned for each phase of every role, and for no other."""
    entered: dict[str, set[str]] = {}

    class Watching(Planned):
        def on_phase(self, role: str) -> Callable[[str, int], None]:
            return lambda phase, _: entered.setdefault(role, set()).add(phase.replace(" ", "-"))

    monkeypatch.setattr(stages, "read_planned", Watching)
    lengths = {"world_size": 3, "iterations": 8, "batch_size": 4, "checkpoint_interval": 4}
    chosen = registry.read_settings([{**given, **lengths}])
    (tmp_path / "given.json").write_text(json.dumps({**given, **lengths}))
    result = run_here(*command, "--config", "given.json", "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    entry = registry.algorithm(chosen.algorithm)
    server, host = entry.phases(chosen)
    hosts = ["host-1", "host-2"] if entry.has_hosts else []
    assert entered == {"server": {*server}, **{name: {*host} for name in hosts}}
