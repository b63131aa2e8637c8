"""In which order a run's processes are started, whatever faults were drawn."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mdgan.chaos import play as module
from mdgan.chaos.play import Commands, Rules, play
from mdgan.chaos.schedule import Event
from mdgan.launch.faults import Fault, read_planned
from mdgan.records.run_directory import RunDirectory

COMMANDS = Commands(["train"], ["join"], ["standby"], ["workers"])
KILLED = Event("kill", 5, Fault("host-1", "kill", "send", 5))
NO_SERVER = Event("server", 5, Fault("server", "kill", "wait", 5))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([KILLED], ["train", "workers"]),
        ([Event("join", 10**6)], ["train", "workers"]),
        ([KILLED, NO_SERVER], ["train", "standby", "workers"]),
    ],
    ids=["a worker", "a newcomer", "the server, too"],
)
@pytest.mark.timeout(30)
def test_workers_wait_for_a_standby_only_if_there_will_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Event], expected: list[str]
) -> None:
    run = RunDirectory.claim(tmp_path / "run")
    run.write_status({"state": "running"})

    class FakeActor:
        """A command that only says that it was started; the run ends when its workers are there."""

        session = began = 0

        def __init__(self, name: str, *_: Sequence[str] | Mapping[str, str]) -> None:
            self.name = name
            self.status: int | None = None
            if name == "workers":
                run.write_status({"state": "finished"})

        def said(self, text: str) -> bool:
            return self.name == "standby" and text.startswith("standing by")

        def ask_to_stop(self) -> None:
            self.status = 0

        def end(self, _seconds: float) -> list[int]:
            return []

    monkeypatch.setattr(module, "Actor", FakeActor)
    monkeypatch.setattr(module, "_ENDING_SECONDS", 0.0)
    monkeypatch.setattr(module, "_JOINING_SECONDS", 0.0)
    played = play(COMMANDS, events, Rules(1, 0.0, 5.0, 300.0), run.path)
    assert [actor.name for actor in played.actors] == expected
    assert not played.stalled


@pytest.mark.timeout(30)
def test_a_worker_that_was_shut_out_is_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.claim(tmp_path / "run")
    run.write_status({"state": "running"})
    run.append_metrics({"event": "holdings", "iteration": 0, "seconds": 0.0, "time": 1.0})
    for worker in (1, 20):  # 20 is of another machine, or was brought by a liar
        record = {"event": "shut out", "iteration": 7, "seconds": 1.0, "workers": [worker]}
        run.append_metrics(record)

    class FakeActor:
        """A command that only says that it was started; the first carries out a host."""

        session = began = 0

        def __init__(self, name: str, _: Sequence[str], variables: Mapping[str, str]) -> None:
            self.name = name
            self.status: int | None = None
            if name == "train":
                read_planned(variables).on_phase("host-1")
            elif name == "join":
                run.write_status({"state": "finished"})

        def said(self, _text: str) -> bool:
            return False

        def ask_to_stop(self) -> None:
            self.status = 0

        def end(self, _seconds: float) -> list[int]:
            return []

    monkeypatch.setattr(module, "Actor", FakeActor)
    monkeypatch.setattr(module, "_ENDING_SECONDS", 0.0)
    monkeypatch.setattr(module, "_JOINING_SECONDS", 0.0)
    lie = Event("hostile", 5, Fault("host-1", "again", "SPANS", 5, (1,)))
    played = play(Commands(["train"], ["join"]), [lie], Rules(1, 0.0, 0.0, 300.0), run.path)
    assert [actor.name for actor in played.actors] == ["train", "join"]
    assert list(played.hosts) == [1]


@pytest.mark.timeout(30)
def test_what_is_due_for_a_host_that_is_gone_strikes_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.claim(tmp_path / "run")
    run.write_status({"state": "running"})
    run.append_metrics({"event": "late", "iteration": 9, "seconds": 1.0, "workers": [2]})
    struck: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _process, number: struck.append(number))

    class FakeActor:
        """A command that carries out host 2 alone, and enters a phase whenever it is looked at."""

        session = began = 0
        name = "train"

        def __init__(self, _name: str, _: Sequence[str], variables: Mapping[str, str]) -> None:
            self.on_phase = read_planned(variables).on_phase("host-2")

        @property
        def status(self) -> int | None:
            if struck:
                run.write_status({"state": "finished"})
                return 0
            assert self.on_phase is not None
            self.on_phase("send", 9)
            return None

        def said(self, _text: str) -> bool:
            return False

        def ask_to_stop(self) -> None:
            pass

        def end(self, _seconds: float) -> list[int]:
            return []

    monkeypatch.setattr(module, "Actor", FakeActor)
    monkeypatch.setattr(module, "_ENDING_SECONDS", 0.0)
    monkeypatch.setattr(module, "_JOINING_SECONDS", 0.0)
    halt = Event("stop", 5, Fault("host-1", "stop", "send", 5), 0.1)
    play(Commands(["train"], ["join"]), [halt], Rules(1, 0.0, 60.0, 300.0), run.path)
    assert struck[0] == signal.SIGSTOP
