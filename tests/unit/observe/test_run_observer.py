import errno
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mdgan.errors import NotSaved
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.run_observer import Launched, Rhythm, RunObserver
from mdgan.observe.snapshots import Sampled
from mdgan.records.run_directory import RunDirectory
from mdgan.spelling import spelled
from tests import processes
from tests.unit.observe.conftest import Clock


def make_observer(
    folder: Path,
    *,
    iterations: int = 20,
    sample_interval: int = 0,
    seconds: float = 0.0,
    may_write: Callable[[], None] = lambda: None,
    at_begin: Callable[[], None] | None = None,
) -> RunObserver:
    return RunObserver(
        RunDirectory.claim(folder),
        Sampled(nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 2, 2))), 3, 0),
        Rhythm(iterations, sample_interval, log_interval=5),
        Launched({"machine": "here"}, 1000.0, seconds=seconds),
        write=RecordWriter(folder, may_write, at_begin),
    )


def begun(tmp_path: Path, **options: Any) -> RunObserver:
    observer = make_observer(tmp_path / "run", **options)
    observer.begin({}, 0)
    return observer


def losses(*values: float) -> torch.Tensor:
    return torch.tensor([[value, 2 * value] for value in values])


def test_a_new_run_tells_who_holds_what(tmp_path: Path, clock: Clock) -> None:
    observer = make_observer(tmp_path / "run")
    observer.begin({"1": {"samples": 3}}, 0)
    (event,) = processes.read_records(tmp_path / "run")
    assert (event["event"], event["iteration"]) == ("holdings", 0)
    assert event["workers"] == {"1": {"samples": 3}}
    about = {"machine": "here", "state": "running", "iteration": 0, "seconds": 0.0}
    assert processes.read_status(tmp_path / "run") == about
    assert RunDirectory(tmp_path / "run").read_generator()[1] == 0


def test_a_run_that_goes_on_says_so_and_its_time_goes_on(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    observer = make_observer(tmp_path / "run", seconds=50.0)
    clock.now += 7  # until all workers have come
    observer.begin({"1": {}}, 10)
    assert processes.read_events(tmp_path / "run", "resumed")[0]["iteration"] == 10
    assert observer.seconds() == 50.0
    clock.now += 4
    observer.iteration(20, losses(0.5))
    assert processes.read_metrics(tmp_path / "run")[0]["seconds"] == 54.0
    observer.end("finished", 20, 20)
    output = capsys.readouterr().out
    assert "done: 20 of 20 iterations in 4 s (2.5 it/s), 11 s with start-up" in output
    status = processes.read_status(tmp_path / "run")
    assert (status["state"], status["iteration"], status["seconds"]) == ("finished", 20, 54.0)
    observer.end("stopped", 1234, 1234)
    assert "stopped when asked to: 1,234 of 20 iterations" in capsys.readouterr().out


def test_the_losses_are_means_over_who_answered(tmp_path: Path, clock: Clock) -> None:
    observer = begun(tmp_path)
    observer.iteration(1, losses(1.0, 3.0), [2, 7], {"riding": {2: 0.5}, "staleness": {}})
    observer.iteration(2, losses(9.0))
    observer.iteration(5, losses(float("nan"), 3.0))
    first, fifth = processes.read_metrics(tmp_path / "run")
    assert (first["discriminator_loss"], first["generator_loss"], first["workers"]) == (2, 4, 2)
    assert first["by_worker"] == {"2": [1.0, 2.0], "7": [3.0, 6.0]}
    assert first["riding"] == {"2": 0.5}
    assert "staleness" not in first
    assert (fifth["iteration"], fifth["generator_loss"], fifth["workers"]) == (5, 6.0, 2)


def test_memory_is_recorded_beside_bytes_and_without_them(tmp_path: Path, clock: Clock) -> None:
    observer = begun(tmp_path)
    observer.spans("server", 5, [], {"BATCHES": 9}, {}, 1000)
    observer.spans("server", 6, [], memory_bytes=2000)
    observer.spans("server", 7, [])
    lines = (tmp_path / "run" / "trace" / "server.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["iteration"], row["memory_bytes"]) for row in rows] == [(5, 1000), (6, 2000)]
    assert "sent_bytes" not in rows[1]


def test_a_hosts_words_forge_no_line_and_move_no_terminal(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_observer(tmp_path / "run").note("rank 1: \x1b[2Jbad\ndone: 100 of 100\x9b1m")
    assert caplog.messages[-1] == "rank 1: ?[2Jbad done: 100 of 100?1m"


def test_a_run_that_did_not_begin_has_failed_where_it_was(tmp_path: Path, clock: Clock) -> None:
    make_observer(tmp_path / "run").write_status("failed", 30)
    status = processes.read_status(tmp_path / "run")
    assert (status["state"], status["iteration"]) == ("failed", 30)


SCORES = {
    "iteration": 10,
    "scores": {"fid": 12.0},
    "warnings": [],
    "left_out": {},
    "row": {"iteration": 10, "start": 0.0, "spans": []},
}
TELLING: dict[str, Callable[[RunObserver], object]] = {
    "begin": lambda observer: observer.begin({}, 5),
    "iteration": lambda observer: observer.iteration(5, losses(1.0)),
    "event": lambda observer: observer.event("lost", 5, workers=[1]),
    "scores": lambda observer: observer.scores(10, SCORES),
    "spans": lambda observer: observer.spans("server", 5, [], {}, {}),
    "gave up": lambda observer: observer.write_status("failed", 0),
    "end": lambda observer: observer.end("stopped", 5, None),
}


@pytest.mark.parametrize("name", TELLING)
def test_a_full_disk_costs_records_and_nothing_else(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    observer = begun(tmp_path, sample_interval=5)
    capsys.readouterr()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a-file")

    with monkeypatch.context() as patch:
        for write in ("append_metrics", "append_trace", "write_tensors", "write_samples"):
            patch.setattr(RunDirectory, write, full)
        patch.setattr(RunDirectory, "write_status", full)
        TELLING[name](observer)
        TELLING[name](observer)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [
        "warning: cannot write a-file: No space left on device; training goes on"
    ], "once is enough"
    observer.event("there is room again", 6)
    assert processes.read_events(tmp_path / "run", "there is room again")


class Folder:
    """Whether the run's folder is there, to be asked before each write."""

    is_there = True

    def look(self) -> None:
        if not self.is_there:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "run")


def test_a_generator_that_cannot_be_saved_is_saved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    folder = Folder()
    observer = begun(tmp_path, may_write=folder.look)
    capsys.readouterr()
    folder.is_there = False
    with pytest.raises(NotSaved, match=r"run: cannot write there \(No such file") as told:
        observer.end("finished", 20, 15)
    (saved,) = (tmp_path / "tmp").iterdir()
    assert str(told.value).endswith(f"The generator of iteration 20 is in {saved}")
    assert RunDirectory(saved).read_generator()[1] == 20
    assert saved.stat().st_mode & 0o777 == 0o700
    output = capsys.readouterr().out
    assert "done: 20 of 20 iterations" in output
    assert "generator" not in output, "it is not in the run's folder"


def test_a_new_run_that_cannot_write_ends_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder()
    folder.is_there = False
    observer = make_observer(tmp_path / "run", may_write=folder.look)
    with pytest.raises(NotSaved, match=r"run: cannot write there \(No such file"):
        observer.begin({}, 0)
    assert "training goes on" not in capsys.readouterr().err


def test_a_disk_that_comes_back_is_told_and_so_is_its_next_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder()
    observer = begun(tmp_path, sample_interval=5, may_write=folder.look)
    capsys.readouterr()
    for number in range(1, 21):
        folder.is_there = number in range(6, 11) or number > 15
        observer.iteration(number, losses(1.0))
    output = [line for line in capsys.readouterr().err.splitlines() if "writ" in line]
    warning = "warning: cannot write run: No such file or directory; training goes on"
    back = f"{tmp_path / 'run'} can be written again"
    assert output == [warning, back, warning, back]


def test_what_was_told_before_training_began_is_written_then(tmp_path: Path) -> None:
    taken_digests: list[str] = []
    observer = make_observer(tmp_path / "run", at_begin=lambda: taken_digests.append("taken"))
    before = sorted((tmp_path / "run").rglob("*"))
    observer.event("joined", 5, workers=[1])
    observer.spans("server", 5, [{"iteration": 5, "start": 0.0, "spans": []}])
    assert sorted((tmp_path / "run").rglob("*")) == before
    assert not taken_digests
    observer.begin({}, 5)
    names = [record.get("event") for record in processes.read_records(tmp_path / "run")]
    assert (names, taken_digests) == (["joined", "resumed"], ["taken"])
    assert (tmp_path / "run" / "trace" / "server.jsonl").exists()


def test_what_the_end_says_is_where_things_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observer = begun(tmp_path)
    observer.end("stopped", 7, 5)
    output = capsys.readouterr().out
    assert "stopped when asked to: 7 of 20 iterations" in output
    assert str(tmp_path / "run" / "samples") in output
    assert "(last: 0000007.png)" in output
    assert (tmp_path / "run" / "samples" / "0000007.png").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "stopped"


def test_a_run_that_went_wrong_says_so_in_its_log_and_at_its_end(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mdgan")
    observer = begun(tmp_path, iterations=40)
    for number in range(1, 41):
        clock.now += 100
        observer.iteration(number, torch.tensor([[0.001 if number > 9 else 1.2, 11.0]]))
    observer.end("finished", 40, None)
    lines = [spelled(record.getMessage()) for record in caplog.records]
    (warning,) = [line for line in lines if "it looks as if the discriminator has won" in line]
    assert warning.startswith("iteration 20: ")
    assert "D 0.001 | D has won | " in lines[-2]
    assert "\n  looks as if the discriminator has won: " in lines[-1]
    assert "; people then lower the lr of --discriminator-optimizer" in lines[-1]


def test_one_worker_whose_loss_is_no_number_does_not_hide_those_of_the_others(
    tmp_path: Path,
) -> None:
    observer = begun(tmp_path)
    nan, inf = float("nan"), float("inf")
    for number, odd in ((5, nan), (10, inf), (15, -inf)):
        observer.iteration(number, losses(1.0, odd, 3.0), (1, 2, 3))
    observer.iteration(20, losses(nan, inf), (1, 2))
    *some, none = processes.read_metrics(tmp_path / "run")
    for row in some:
        assert (row["discriminator_loss"], row["generator_loss"]) == (2.0, 4.0)
        assert row["by_worker"]["2"] == [None, None]
    assert (none["discriminator_loss"], none["generator_loss"]) == (None, None)
