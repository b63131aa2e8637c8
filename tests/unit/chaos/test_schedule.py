"""The seed decides which faults are drawn, and they are of the kinds that the user named."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.chaos.schedule import KINDS, ChaosSetting, draw_schedule
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.faults import as_variables, read_planned
from tests.marks import examples

SERVER_PHASES, HOST_PHASES = registry.algorithm("mdgan").phases(MDGANSettings())
some_kinds = st.lists(st.sampled_from(KINDS), min_size=1, unique=True)
some_phases = registry.all_phases()
chaos_settings = st.builds(
    ChaosSetting,
    iterations=st.integers(100, 5000),
    hosts=st.lists(st.integers(1, 50), min_size=1, unique=True),
    liveness_seconds=st.floats(1, 60),
    server_phases=st.lists(st.sampled_from(some_phases[0]), min_size=1, unique=True),
    host_phases=st.lists(st.sampled_from(some_phases[1]), min_size=1, unique=True),
)


def setting_of(algorithm: str, hosts: Sequence[int] = (1,), **values: Any) -> ChaosSetting:
    entry = registry.algorithm(algorithm)
    phases = entry.phases(entry.settings.read({"world_size": len(hosts) + 1, **values}))
    return ChaosSetting(2000, hosts, 5.0, *phases)


@settings(max_examples=examples(6))
@given(st.integers(0, 10**6), st.integers(1, 40), some_kinds, chaos_settings)
def test_events_are_as_asked_for(
    seed: int, num_faults: int, kinds: list[str], setting: ChaosSetting
) -> None:
    events = draw_schedule(seed, num_faults, kinds, setting)
    assert events == draw_schedule(seed, num_faults, kinds, setting)
    assert len(events) == num_faults
    at = [event.iteration for event in events]
    assert at == sorted(set(at))
    assert min(at) >= 2
    assert max(at) < 0.9 * setting.iterations + 1
    counts = Counter(event.kind for event in events)
    assert {*counts} <= {*kinds}
    assert max(counts.values()) - min(counts[kind] for kind in kinds) <= 1
    for event in events:
        assert (event.fault is None) == (event.kind == "join")
        if event.fault is None:
            continue
        assert event.fault.iteration == event.iteration
        assert (event.fault.role == "server") == (event.kind == "server")
        hosts = {f"host-{number}" for number in setting.hosts}
        assert event.fault.role in hosts | {"server"}
        assert (event.halt_seconds > 0) == (event.fault.action == "stop")
    faults = [event.fault for event in events if event.fault is not None]
    assert read_planned(as_variables(faults, Path("/somewhere"))).faults == tuple(faults)


def test_seeds_differ_and_every_phase_comes() -> None:
    setting = setting_of("mdgan", range(1, 7))
    drawn = [draw_schedule(seed, 20, KINDS, setting) for seed in range(80)]
    assert len({tuple(events) for events in drawn}) == 80
    faults = {event.fault for events in drawn for event in events if event.fault is not None}
    assert {fault.phase for fault in faults if fault.role == "server"} == {*SERVER_PHASES}
    assert {fault.phase for fault in faults if fault.role != "server"} == {*HOST_PHASES}
    halts = [e.halt_seconds for events in drawn for e in events if e.kind == "stop"]
    # On both sides of the liveness timeout, and of a deadline of a second.
    assert min(halts) < 0.5 < 1 < 5 < max(halts) <= 7.5


@pytest.mark.parametrize(
    ("hosts", "values", "swaps", "checkpoints"),
    [
        ([1, 2], {}, True, True),
        ([1, 2], {"swap_interval": 0}, False, True),
        ([1], {}, False, True),
        ([1, 2], {"checkpoint_interval": 0}, True, False),
        ([1, 2], {"checkpoint_interval": 5000}, True, False),
    ],
)
def test_no_fault_waits_for_a_phase_that_never_comes(
    hosts: list[int], values: dict[str, int], swaps: bool, checkpoints: bool
) -> None:
    events = draw_schedule(1, 1000, ["kill", "server"], setting_of("mdgan", hosts, **values))
    phases = {event.fault.phase for event in events if event.fault is not None}
    assert ("swap" in phases) == ("swapped" in phases) == swaps
    assert ("checkpoint" in phases) == ("write" in phases) == ("report" in phases) == checkpoints


def test_a_seed_strikes_where_it_always_did() -> None:
    assert (
        *("generate", "send", "wait", "aggregate", "step", "swap", "checkpoint"),
        *("write", "manifest"),
    ) == SERVER_PHASES
    assert (
        *("receive", "real-half", "fake-half", "local-step", "feedback", "send", "swap"),
        *("swapped", "checkpoint", "write", "report"),
    ) == HOST_PHASES
    drawn = draw_schedule(3, 5, KINDS, setting_of("mdgan", range(1, 7)))
    assert [(event.iteration, str(event)) for event in drawn] == [
        (224, "one more worker comes"),
        (242, "host 3 is asked to leave at fake-half"),
        (523, "host 4 is killed at report"),
        (645, "the server is killed at checkpoint"),
        (1387, "host 2 halts for 0.6 s at fake-half"),
    ]


def test_more_faults_than_iterations() -> None:
    setting = ChaosSetting(20, [1], 5.0, ["send"], ["receive"])
    assert len(draw_schedule(0, 16, ["kill"], setting)) == 16
    with pytest.raises(BadInput, match="--faults 17: too many for 20 iterations; give at most 16"):
        draw_schedule(0, 17, ["kill"], setting)
