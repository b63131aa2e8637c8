"""The order in which a run's processes start, and the processes that faults strike."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mdgan.chaos import play as module
from mdgan.chaos.play import ChaosCommands, ChaosLimits, play
from mdgan.chaos.schedule import ChaosEvent
from mdgan.launch.faults import Fault, read_planned
from mdgan.records.run_directory import RunDirectory

COMMANDS = ChaosCommands(["train"], ["join"], ["standby"], ["workers"])
LIMITS = ChaosLimits(1, 0.0, 60.0, 300.0)
KILLED = ChaosEvent("kill", 5, Fault("host-1", "kill", "send", 5))
NO_SERVER = ChaosEvent("server", 5, Fault("server", "kill", "wait", 5))


class FakeActor:
    """A command that only says that it was started."""

    session = began = 0

    def __init__(self, name: str, _: Sequence[str], variables: Mapping[str, str]) -> None:
        self.name = name
        self.variables = variables
        self.is_over = False

    @property
    def status(self) -> int | None:
        return 0 if self.is_over else None

    def said(self, text: str) -> bool:
        return self.name == "standby" and text.startswith("standing by")

    def ask_to_stop(self) -> None:
        self.is_over = True

    def end(self, _seconds: float) -> list[int]:
        return []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setattr(module, "_ENDING_SECONDS", 0.0)
    monkeypatch.setattr(module, "_JOINING_SECONDS", 0.0)
    directory = RunDirectory.claim(tmp_path / "run")
    directory.write_status({"state": "running"})
    return directory


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([KILLED], ["train", "workers"]),
        ([ChaosEvent("join", 10**6)], ["train", "workers"]),
        ([KILLED, NO_SERVER], ["train", "standby", "workers"]),
    ],
    ids=["a worker", "a newcomer", "the server, too"],
)
def test_workers_wait_for_a_standby_only_if_there_will_be_one(
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    events: list[ChaosEvent],
    expected: list[str],
) -> None:
    class Ending(FakeActor):
        """The run ends when its workers are there."""

        def __init__(self, name: str, _: Sequence[str], variables: Mapping[str, str]) -> None:
            super().__init__(name, _, variables)
            if name == "workers":
                run.write_status({"state": "finished"})

    monkeypatch.setattr(module, "Actor", Ending)
    played = play(COMMANDS, events, LIMITS, run.path)
    assert [actor.name for actor in played.actors] == expected
    assert not played.stalled


def test_a_fault_may_strike_as_soon_as_the_run_can_spare_its_target(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _process, number: struck.append(number))

    class Host(FakeActor):
        """Carries out host 2 alone, and enters a phase whenever it is looked at."""

        @property
        def status(self) -> int | None:
            on_phase = read_planned(self.variables).on_phase("host-2")
            if struck:
                run.write_status({"state": "finished"})
                return 0
            assert on_phase is not None
            on_phase("send", 9)
            return None

    monkeypatch.setattr(module, "Actor", Host)
    killed = ChaosEvent("kill", 5, Fault("host-2", "kill", "send", 5))
    halted = ChaosEvent("stop", 5, Fault("host-2", "stop", "send", 5), 0.1)
    played = play(ChaosCommands(["train"], ["join"]), [killed, halted], LIMITS, run.path)
    assert struck[0] == signal.SIGSTOP, "the last host is not killed"
    assert list(played.strikes) == [1]
