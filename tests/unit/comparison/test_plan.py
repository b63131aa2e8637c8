"""What `mdgan compare` refuses before it starts, and which runs remain to be done."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mdgan.comparison.plan import (
    AGAIN,
    DONE,
    NEW,
    Configuration,
    check_configurations,
    jobs_at_once,
    list_trainings,
    read_files,
)
from mdgan.errors import BadInput
from mdgan.settings.machine import num_cores
from tests.processes import Finished, run_here
from tests.unit.dataset_formats import write_mnist

FLAGS = {"iterations": 12, "threads": 1}


def config(folder: Path, name: str = "small", **settings: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"transport": "memory", "world_size": 3, **settings}))
    return path


def refused(cwd: Path, *arguments: str) -> str:
    """What the command says; it has written nothing."""
    before = sorted(cwd.rglob("*"))
    result: Finished = run_here("compare", *arguments, "--out", "out", cwd=cwd)
    assert (result.status, result.output) == (2, ""), result
    assert len(result.errors.splitlines()) == 1, result
    assert sorted(cwd.rglob("*")) == before
    return result.errors


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batchsize": 3}, "--config small.json: unknown key 'batchsize'; did you mean"),
        ({"batch_size": 0}, "small.json: --batch-size 0: must be at least 1"),
        ({"batch_size": 5000}, "small.json: --batch-size 5000: larger than the whole data set"),
        ({"algorithm": "gan"}, "small.json: --algorithm gan: must be one of"),
        ({"dataset": "nothing"}, "small.json: --dataset nothing"),
        ({"transport": "tcp", "ranks": "1"}, "small.json: --ranks 1: every rank runs here"),
        ({"transport": "tcp", "master_port": 29500}, "small.json: --master-port 29500: several"),
        ({"kappa": 9}, "small.json: --kappa 9: more batches than 2 worker(s) at a time can judge"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    config(tmp_path, **settings)
    config(tmp_path, "other")
    assert said in refused(tmp_path, "other.json", "small.json")


def test_files_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    config(tmp_path)
    (tmp_path / "deep").mkdir()
    config(tmp_path / "deep")
    write_mnist(tmp_path / "data" / "mnist", 100)
    config(tmp_path, "other", dataset="mnist")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text('{"seed": ')
    assert "both are called small; rename one" in refused(tmp_path, "small.json", "deep/small.json")
    assert "both are called small" in refused(tmp_path, "small.json", "small.json")
    assert "not a JSON file" in refused(tmp_path, "small.json", "broken.json")
    assert "missing.json: cannot read it" in refused(tmp_path, "missing.json")
    data = refused(tmp_path, "small.json", "other.json")
    assert "small.json and other.json: --dataset differs (digits, mnist)" in data
    assert "empty: no configuration (*.json) in this folder" in refused(tmp_path, "empty")
    assert "Missing argument" in refused(tmp_path)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds", "0,x"], "'0,x' is not whole numbers with commas between them"),
        (["--seeds", ""], "is not whole numbers"),
        (["--seeds", "-1"], "is not whole numbers"),
        (["--jobs", "0"], "0 must be at least 1, or auto"),
        (["--jobs", "many"], "'many' is neither a whole number nor auto"),
        (["--iterations", "0"], "small.json: --iterations 0: must be at least 1"),
        (["--algorithm", "mdgan"], "No such option '--algorithm'"),
    ],
)
def test_flags_that_cannot_be_used_are_one_line(
    tmp_path: Path, flags: list[str], said: str
) -> None:
    config(tmp_path)
    assert said in refused(tmp_path, "small.json", *flags)


def test_flags_win_over_every_file(tmp_path: Path) -> None:
    files = [
        config(tmp_path, "a", iterations=99, swap_interval=7, seed=5, out="x"),
        config(tmp_path, "b", algorithm="standalone"),
    ]
    plan = check_configurations(read_files(files), {**FLAGS, "swap_epochs": 2.0, "seed": None}, 0)
    assert [each.name for each in plan] == ["a", "b"]
    first = plan[0].resolved
    assert (first["iterations"], first["swap_interval"], first["swap_epochs"]) == (12, None, 2.0)
    assert plan[0].settings.keys().isdisjoint({"seed", "out", "swap_interval"})
    assert [each.resolved["algorithm"] for each in plan] == ["mdgan", "standalone"]
    assert "is not scored" in plan[0].warnings[-1]


def test_as_many_at_once_as_cores_allow(tmp_path: Path) -> None:
    def at_once(**settings: Any) -> int:
        return jobs_at_once(check_configurations(read_files([config(tmp_path, **settings)]), {}, 0))

    assert at_once(threads=1) == num_cores()
    assert at_once(threads="auto") == 1
    assert at_once(threads=1, cores=str(min(os.sched_getaffinity(0)))) == 1
    assert at_once(threads=10_000 // 16) == 1
    assert at_once(threads=1, transport="tcp") == max(1, num_cores() // 2)


def planned(tmp_path: Path, **settings: Any) -> list[Configuration]:
    return check_configurations(read_files([config(tmp_path, **settings)]), FLAGS, 0)


def leave(folder: Path, settings: Any, **status: Any) -> Path:
    """What a run leaves behind."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "run.json").write_text(json.dumps({"machine": socket.gethostname(), **status}))
    return folder


def test_what_is_left_to_be_done(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    settings, out = plan[0].resolved, tmp_path / "out"
    assert [t.standing for t in list_trainings(plan, [0, 1], out, resume=False)] == [NEW, NEW]
    leave(out / "small-seed0", {**settings, "seed": 0}, state="finished")
    leave(out / "small-seed1", {**settings, "seed": 1}, state="stopped")
    trainings = list_trainings(plan, [0, 1, 2], out, resume=True)
    assert [training.standing for training in trainings] == [DONE, AGAIN, NEW]
    assert [training.folder.name for training in trainings] == [f"small-seed{n}" for n in range(3)]
    with pytest.raises(BadInput, match="has files in it; add --resume to go on"):
        list_trainings(plan, [3], out, resume=False)


def test_a_run_of_other_settings_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = planned(tmp_path, batch_size=8)
    leave(out / "small-seed0", {**plan[0].resolved, "seed": 0}, state="finished")
    other = planned(tmp_path, batch_size=16)
    with pytest.raises(BadInput) as caught:
        list_trainings(other, [0], out, resume=True)
    folder = out / "small-seed0"
    assert str(caught.value) == (
        f"{folder}: was trained with batch_size 8, now it is 16; name another --out"
    )
    (folder / "config.json").write_text(json.dumps({**plan[0].resolved, "seed": 4}))
    with pytest.raises(BadInput, match="was trained with --seed 4"):
        list_trainings(plan, [0], out, resume=True)


def test_a_run_that_is_under_way_is_refused(tmp_path: Path) -> None:
    out, found = tmp_path / "out", planned(tmp_path)
    settings = {**found[0].resolved, "seed": 0}
    folder = leave(out / "small-seed0", settings, state="running", process=os.getpid())
    with pytest.raises(BadInput, match=rf"still running \(process {os.getpid()}\)"):
        list_trainings(found, [0], out, resume=True)
    os.utime(folder / "run.json", (1e9, 1e9))  # this process is younger: it has the number only
    assert list_trainings(found, [0], out, resume=True)[0].standing == AGAIN


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out" / "small-seed0").mkdir(parents=True)
    (tmp_path / "out" / "small-seed0" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="not a run"):
        list_trainings(planned(tmp_path), [0], tmp_path / "out", resume=True)


def test_a_folder_stands_for_the_configurations_in_it(tmp_path: Path) -> None:
    for name in ("b", "a"):
        config(tmp_path, name)
    (tmp_path / "notes.txt").write_text("no configuration")
    (tmp_path / "deep").mkdir()
    one = config(tmp_path / "deep", "one")
    plan = check_configurations(read_files([one, tmp_path]), FLAGS, seed=0)
    assert [configuration.name for configuration in plan] == ["one", "a", "b"]
