"""A server that is no longer the one that may write, or has nowhere to write to."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mdgan.errors import BadInput, NotSaved
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.fence import Fence, Fenced
from tests.toy_family import ASK
from tests.unit.engine.played import LONG, answer_all, answer_of
from tests.unit.engine.stage import Stage
from tests.unit.engine.test_server_checkpoints import order, save_alone, write

MakeStage = Callable[..., Stage]


def test_nothing_is_written_once_another_server_has_taken_over(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    one = made.play(1)
    order(made, 5, one)
    Fence.claim(made.folder)
    write(made, one, 5)
    made.saving.close(LONG)
    assert not made.checkpoints.committed()
    with pytest.raises(Fenced):
        order(made, 10, one)
    with pytest.raises(Fenced):
        save_alone(made, 10)


def test_a_fenced_server_stops_and_says_no_word_to_its_hosts(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=9, checkpoints=2)
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.take(ASK, 2)
    made.wait_for_checkpoint(0)
    Fence.claim(made.folder)
    files = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*")}
    one.send(answer_of(1, iteration=2))
    assert isinstance(made.over(), Fenced)
    assert one.lost() == "it said goodbye"
    assert "STOP" not in one.told()
    changed = {
        path.name for path in made.folder.rglob("*") if path.stat().st_mtime_ns != files.get(path)
    }
    assert changed <= {"metrics.jsonl", "server.jsonl"}, "iteration 2 was its own"
    assert made.status()["state"] == "running"


def test_a_worker_that_tells_of_a_later_server_makes_this_one_look(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=9)
    (one,) = made.begin_with((1,))
    one.take(ASK, 1)
    Fence.claim(made.folder)
    refusal = made.admission.admit({**one.hello, "generation": 2})
    assert refusal == "a server of generation 2 has taken over"
    with pytest.raises(BadInput, match="has taken over"):
        made.play(1, generation=2)
    assert isinstance(made.over(), Fenced)
    assert "STOP" not in one.told()


def test_a_host_cannot_end_a_server_that_has_its_folder(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=2)
    (one,) = made.begin_with((1,))
    one.take(ASK, 1)
    with pytest.raises(BadInput, match="has taken over"):
        made.play(2, generation=10**6)
    one.send(answer_of(1, iteration=1))
    one.answer(2)
    made.finished(one)


def test_a_run_whose_folder_vanishes_trains_on(
    stage: MakeStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    made = stage(num_workers=1, iterations=6, checkpoints=2)
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.take(ASK, 2)
    made.wait_for_checkpoint(0)
    shutil.rmtree(made.folder)
    one.send(answer_of(1, iteration=2))
    answer_all([one], 3, 4, 5, 6)
    assert isinstance(made.over(), NotSaved)
    (saved,) = (tmp_path / "elsewhere").iterdir()
    assert RunDirectory(saved).read_generator()[1] == 6
    assert not made.folder.exists()
