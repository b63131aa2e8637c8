"""Records tell what each fault did, and which runs did not survive."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.chaos.play import ChaosRun, History
from mdgan.chaos.run import consequences, troubles
from mdgan.chaos.schedule import ChaosEvent
from mdgan.launch.faults import Fault, Strike
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import write_state

BEGAN = 1_700_000_000.0
LAST = 40


class FakeActor:
    """A command that has printed something."""

    def __init__(self, *lines: tuple[float, str], status: int = 0) -> None:
        self.lines = [(BEGAN + seconds, line) for seconds, line in lines]
        self.status = status
        self.began = BEGAN + 1


class Stage:
    """A run that is over, as its processes would have left it; 40 iterations, 10 a second."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDirectory.claim(folder)
        self.record("holdings", 0, time=BEGAN, workers={})
        self.run.append_metrics({"iteration": LAST, "seconds": 4.0})
        self.run.write_generator({"weight": torch.ones(2)}, LAST)
        self.run.write_status({"state": "finished", "iteration": LAST})
        checkpoints = Checkpoints(self.run.checkpoints, keep=1)
        file = write_state(checkpoints.folder_of(LAST), SERVER_FILE, {"x": torch.ones(1)})
        nothing: Any = {"settings": {}, "version": "0", "workers": (), "elsewhere": ()}
        numbers: Any = {"generation": 1, "progress": {}, "seconds": 4.0}
        checkpoints.commit(Manifest(iteration=LAST, files={"server": file}, **nothing, **numbers))

    def record(self, name: str, iteration: int, *workers: int, **details: Any) -> None:
        if workers:
            details["workers"] = list(workers)
        event = {"event": name, "iteration": iteration, "seconds": iteration / 10}
        self.run.append_metrics({**event, **details})

    def played(self, *events: ChaosEvent, **changes: Any) -> ChaosRun:
        """Every fault has struck when its iteration began."""
        history = History(self.run.path)
        history.read()
        strikes = {
            n: Strike(*(n, 1000 + n, event.iteration, BEGAN + event.iteration / 10, 0.0))
            for n, event in enumerate(events)
            if event.fault is not None
        }
        settings: dict[str, Any] = {"strikes": strikes, "comers": {}, "actors": [FakeActor()]}
        settings |= {"killed": [], "stalled": False, "hosts": {1, 2, 3}} | changes
        return ChaosRun(events, history=history, **settings)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "run")


def kill(host: int, iteration: int) -> ChaosEvent:
    return ChaosEvent("kill", iteration, Fault(f"host-{host}", "kill", "swap", iteration))


def kill_server(iteration: int) -> ChaosEvent:
    return ChaosEvent("server", iteration, Fault("server", "kill", "wait", iteration))


def test_workers_that_are_taken_for_liars(stage: Stage) -> None:
    stage.record("refused", 20, worker=3, reason="NaN", strikes=0)  # no strike
    stage.record("shut out", 20, 30, reason="NaN", strikes=3)  # of another machine
    stage.record("refused", 25, worker=2, reason="NaN", strikes=1)
    stage.record("shut out", 30, 3, reason="NaN", strikes=3)
    assert troubles(stage.played(kill(3, 25)), stage.run.path, LAST, serves=True) == [
        "honest rank 2: refused at iteration 25 (NaN)",
        "honest rank 3: shut out at iteration 30 (NaN)",
    ]


@pytest.mark.parametrize(
    ("records", "noticed", "over", "happened"),
    [
        (
            [("lost", 11, 2, "its connection closed"), ("joined", 25, 2, "")],
            *(0.1, 1.5, "rank 2 lost (its connection closed); back 14 iteration(s) later"),
        ),
        (
            [("lost", 5, 2, "is of the fault before"), ("lost", 11, 2, "silent for 3 s")],
            *(0.1, None, "rank 2 lost (silent for 3 s); the others went on"),
        ),
        ([("late", 11, 2, ""), ("back", 16, 2, "")], 0.1, 0.6, "rank 2 late; back 5 iteration(s)"),
        ([("lost", 31, 2, "is of the fault after")], None, None, "unnoticed; the iteration took"),
    ],
)
def test_a_worker_that_was_struck(
    stage: Stage,
    records: list[tuple[str, int, int, str]],
    noticed: float | None,
    over: float | None,
    happened: str,
) -> None:
    stage.record("lost", 12, 3, reason="not this one")
    stage.record("joined", 20, 3)
    for name, iteration, worker, reason in records:
        stage.record(name, iteration, worker, **({"reason": reason} if reason else {}))
    halt = ChaosEvent("stop", 10, Fault("host-2", "stop", "send", 10), 0.5)
    row, _ = consequences(stage.played(halt, kill(2, 30)))
    assert row.noticed_seconds == (None if noticed is None else pytest.approx(noticed))
    assert row.over_seconds == (None if over is None else pytest.approx(over))
    assert (row.iteration, row.lost) == (10, 0)
    assert row.happened.startswith(happened)


def test_a_server_that_was_replaced(stage: Stage) -> None:
    stage.record("resumed", 20, time=BEGAN + 5.5, workers={})
    printed = FakeActor((1.0, "the server is gone"), (2.75, "mdgan: rank 1 lost the server (…)"))
    (row,) = consequences(stage.played(kill_server(25), actors=[printed]))
    assert row.noticed_seconds == pytest.approx(0.25)
    assert row.over_seconds == pytest.approx(3.0)
    assert row.lost == 5
    assert row.happened == "a standby went on from iteration 20"


def test_a_server_that_was_not_replaced(stage: Stage) -> None:
    (row,) = consequences(stage.played(kill_server(25)))
    assert (row.noticed_seconds, row.over_seconds) == (None, None)
    assert row.happened == "no standby took its place"


def test_newcomers(stage: Stage) -> None:
    stage.record("joined", 25, 4)
    stage.record("joined", 26, 5)
    refused = FakeActor((3.0, "mdgan: the server refused this host: rank 2 has joined already"))
    comers = {0: (FakeActor(), 5), 1: (FakeActor(), None), 2: (refused, 2)}
    events = [ChaosEvent("join", iteration) for iteration in (10, 11, 12, 39)]
    first, second, third, fourth = consequences(stage.played(*events, comers=comers))
    assert (first.iteration, first.happened) == (26, "rank 5 joined 1.6 s after it was started")
    assert second.happened == "the run was over before it could join"
    assert third.happened.endswith("rank 2 has joined already")
    assert fourth.happened == "the run did not get there"


def test_a_fault_whose_victim_was_not_there(stage: Stage) -> None:
    (row,) = consequences(stage.played(kill(2, 10), strikes={}))
    assert row.cells()[1:5] == ["–", "–", "–", "0"]
    assert "did not strike" in row.happened


def test_a_run_that_survived(stage: Stage) -> None:
    moves = {"moves": [[1, 2], [2, 1]], "given": {"1": "a", "2": "b"}}
    stage.record("swap", 10, taken={"2": "a", "1": "b"}, **moves)
    stage.record("swap", 11, taken={"2": "a"}, **moves)
    assert troubles(stage.played(kill(2, 10)), stage.run.path, LAST, serves=True) == []


def unfinished(stage: Stage) -> None:
    stage.run.write_status({"state": "running", "iteration": 30})


def torn(stage: Stage) -> None:
    moves = {"moves": [[1, 2], [2, 1]], "given": {"1": "a", "2": "b"}}
    stage.record("swap", 10, taken={"2": "c", "1": "b"}, **moves)


def write_generator(stage: Stage, number: float, iteration: int) -> None:
    stage.run.write_generator({"weight": torch.tensor([1.0, number])}, iteration)


def missing_checkpoint(stage: Stage) -> None:
    (stage.run.checkpoints / f"{LAST:07d}" / "manifest.json").unlink()


def damaged(name: str) -> Callable[[Stage], None]:
    def damage(stage: Stage) -> None:
        (stage.run.path / name).write_bytes(b"x" * 100)

    return damage


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (unfinished, "training is running at iteration 30 of 40"),
        (torn, "swap at iteration 10: rank 2 holds something else than 1 gave"),
        (damaged("samples/.0000010.png.123.tmp"), ".0000010.png.123.tmp"),
        (lambda stage: write_generator(stage, torch.nan, LAST), "not finite"),
        (lambda stage: write_generator(stage, 1.0, LAST - 1), "iteration 39"),
        (damaged("generator.safetensors"), "damaged"),
        (damaged(f"checkpoints/{LAST:07d}/{SERVER_FILE}"), SERVER_FILE),
        (missing_checkpoint, "the last checkpoint is missing"),
    ],
)
def test_a_run_that_did_not_survive(stage: Stage, harm: Callable[[Stage], None], says: str) -> None:
    harm(stage)
    result = troubles(stage.played(), stage.run.path, LAST, serves=True)
    assert any(says in line for line in result), result


def test_processes_that_were_left_and_a_run_that_hung(stage: Stage) -> None:
    played = stage.played(killed=[4711], stalled=True)
    result = troubles(played, stage.run.path, LAST, serves=True)
    assert result[0] == "process 4711 did not end by itself"
    assert "no iteration was done for too long after 40" in result[1]


@pytest.mark.parametrize(
    ("status", "num_strikes", "survived"),
    [(0, 0, True), (137, 1, True), (137, 0, False), (1, 1, False)],
)
def test_where_the_server_is_elsewhere_the_exit_status_tells(
    stage: Stage, status: int, num_strikes: int, survived: bool
) -> None:
    events = [kill(n + 1, 10) for n in range(num_strikes)]
    played = stage.played(*events, actors=[FakeActor(status=status)])
    result = troubles(played, stage.run.path / "nowhere", LAST, serves=False)
    assert (result == []) == survived, result
