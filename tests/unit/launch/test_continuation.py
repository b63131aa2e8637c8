"""The models with which a run begins, and the checkpoint from which it is resumed."""

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.errors import BadInput
from mdgan.families.mdgan.build import make_server
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.beginning import continuation, read_beginning, seconds_since_boot
from mdgan.launch.settings import LaunchSettings
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import write_state
from tests.unit.gan import small

DIGITS = load("digits", None)
State = dict[str, Tensor]


def state_of(dataset: DatasetFile = DIGITS) -> State:
    return {
        name: tensor.clone() for name, tensor in dataset.models.generator().state_dict().items()
    }


def test_the_file_of_a_generator_is_taken_as_it_is(tmp_path: Path) -> None:
    given = state_of()
    save_file(given, tmp_path / "g.safetensors")
    result = read_beginning(str(tmp_path / "g.safetensors"), DIGITS.models)
    assert result.generator.keys() == given.keys()
    assert all(torch.equal(result.generator[name], tensor) for name, tensor in given.items())
    assert result.discriminators == {}


def cut(state: State, name: str) -> None:
    state[name] = state[name][1:].clone()


def spoil(state: State, name: str) -> None:
    state[name].view(-1)[3] = torch.nan


def halve(state: State, name: str) -> None:
    state[name] = state[name].half()


def test_the_first_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    name = next(iter(state_of()))
    for damage, says in (
        (cut, f"{name} is float32 ["),
        (spoil, f"{name} holds NaN or Inf"),
        (halve, f"{name} is float16 ["),
        (State.pop, f"{name} is missing"),
        (lambda state, _: state.update(more=torch.zeros(2)), "more is not a tensor of that model"),
    ):
        state = state_of()
        damage(state, name)
        save_file(state, tmp_path / "g.safetensors")
        with pytest.raises(BadInput, match=r"does not fit the generator of .*digits\.py: ") as why:
            read_beginning(str(tmp_path / "g.safetensors"), DIGITS.models)
        assert says in str(why.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "cannot be read (Error while deserializing header"),
        (b"hello, this is no tensor", "cannot be read (a header of "),
        (b"\xff" * 8 + b"{}", "cannot be read (a header of "),
        (bytes(1 << 24), "is larger than the generator"),
    ],
)
def test_what_is_no_file_of_tensors_is_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "g.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as why:
        read_beginning(str(path), DIGITS.models)
    assert says in str(why.value)
    assert str(why.value).startswith(f"--init-from {path}: ")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run"):
        read_beginning(str(tmp_path), DIGITS.models)


SETTINGS = {**MDGANSettings(iterations=100).as_json(), **LaunchSettings().as_json()}
STATE = {"generator.w": torch.arange(5.0), "noise": torch.arange(3, dtype=torch.uint8)}


def make_run(folder: Path, *iterations: int, **status: Any) -> RunDirectory:
    """A run that has made checkpoints and is over."""
    run = RunDirectory.claim(folder)
    run.write_status({"state": "failed", "iteration": 0, **status})
    checkpoints = Checkpoints(run.checkpoints, keep=10)
    for iteration in iterations:
        stored = write_state(checkpoints.folder_of(iteration), SERVER_FILE, STATE)
        manifest = Manifest(
            iteration=iteration,
            generation=1,
            progress={"num_swaps": iteration // 10, "swap_every": 10},
            seconds=0.5,
            workers=(),
            files={"server": stored},
            elsewhere=(),
            settings=SETTINGS,
            version="0.2.0",
        )
        checkpoints.commit(manifest)
    return run


def refusal(run: RunDirectory, settings: Mapping[str, Any] = SETTINGS, **how: Any) -> str:
    with pytest.raises(BadInput) as caught:
        continuation(run, settings, **how)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.startswith(f"--resume {run.path}: ")
    return text


def server_file(run: RunDirectory, iteration: int) -> Path:
    return run.checkpoints / f"{iteration:07d}" / SERVER_FILE


def test_it_goes_on_from_the_newest(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20, 40)
    beginning = continuation(run, SETTINGS)
    assert beginning.manifest.iteration == 40
    assert beginning.notes == ()
    loaded: list[dict[str, Tensor]] = []
    beginning.restore(loaded.append)
    (state,) = loaded
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in STATE.items())


def test_a_torn_checkpoint_is_passed_over_and_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20, 40, 60)
    path = server_file(run, 60)
    path.write_bytes(path.read_bytes()[:-1])
    (run.checkpoints / "0000040" / "manifest.json").unlink()
    beginning = continuation(run, SETTINGS)
    assert beginning.manifest.iteration == 20
    assert len(beginning.notes) == 2
    assert beginning.notes[0].startswith(
        "passed over checkpoint of iteration 60: server.safetensors"
    )
    assert beginning.notes[1].startswith("passed over checkpoint of iteration 40: has no manifest")


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert "has no whole checkpoint (none was made); start a new run" in refusal(run)
    run = make_run(tmp_path / "torn", 20)
    server_file(run, 20).unlink()
    assert "(checkpoint of iteration 20: server.safetensors: is not there)" in refusal(run)


def test_a_run_that_is_done_needs_more_iterations(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 100)
    assert "all 100 iterations are done; to go on, give more, such as --iterations 200" in refusal(
        run
    )
    with pytest.raises(BadInput, match=r"all 100 iterations are done; .* --iterations 200"):
        continuation(run, {**SETTINGS, "iterations": 60})
    beginning = continuation(run, {**SETTINGS, "iterations": 150})
    assert beginning.notes == ("iterations was 100, is 150",)
    assert "all 1,000 iterations are done" in refusal(make_run(tmp_path / "long", 1000))


def test_changed_settings_are_told_if_they_matter(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20)
    now = {**SETTINGS, "world_size": 9, "device": "cuda", "master_port": 1, "ranks": "0", "new": 3}
    assert continuation(run, now).notes == ("world_size was 5, is 9", "device was cpu, is cuda")


def test_another_algorithm_is_another_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20)
    text = refusal(run, {**SETTINGS, "algorithm": "standalone"})
    assert "was trained with mdgan; use `mdgan train --algorithm mdgan`" in text


@pytest.mark.parametrize(
    ("change", "swap_every"),
    [
        ({}, 10),
        ({"seed": 7, "device": "cuda", "iterations": 500}, 10),
        ({"swap_interval": 3}, 0),
        ({"swap_epochs": 2.0}, 0),
        ({"swap": "means"}, 0),
        ({"world_size": 9}, 0),
        ({"batch_size": 20}, 0),
        ({"partition": "sorted"}, 0),
        ({"dataset": "cifar10"}, 0),
        ({"data_dir": "elsewhere"}, 0),
    ],
)
def test_the_rhythm_of_swaps_stays_unless_something_moves_it(
    tmp_path: Path, change: dict[str, Any], swap_every: int
) -> None:
    """Where it is 0, the server works it out anew when training begins."""
    run = make_run(tmp_path / "run", 20)
    settings = MDGANSettings.read({**SETTINGS, **change})
    beginning = continuation(run, {**SETTINGS, **settings.as_json()})
    part = make_server(small.make_learner(), settings, small.SHAPE)
    part.go_on(beginning.manifest.progress, beginning.changed, ended=False)
    assert part.progress() == {"num_swaps": 2, "swap_every": swap_every}


def test_a_state_that_changed_meanwhile_or_is_of_other_models_is_refused(tmp_path: Path) -> None:
    def load(_state: dict[str, Tensor]) -> None:
        raise KeyError("generator.w")

    run = make_run(tmp_path / "run", 20)
    beginning = continuation(run, SETTINGS)
    with pytest.raises(BadInput, match="use the dataset file of that run"):
        beginning.restore(load)
    server_file(run, 20).write_bytes(b"something else")
    with pytest.raises(BadInput, match="does not fit the models of digits"):
        beginning.restore(lambda _state: None)


# Whether the run is still going.

HERE = {"machine": socket.gethostname(), "process": os.getpid()}


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_run_that_is_going_is_left_alone(tmp_path: Path, state: str) -> None:
    run = make_run(tmp_path / "run", 20, state=state, **HERE)
    assert f"still running (process {os.getpid()}); stop it first" in refusal(run)
    assert continuation(run, SETTINGS, taking_over=True).manifest.iteration == 20
    os.utime(run.path / "run.json", (1e9, 1e9))  # its number was given to another process later
    assert continuation(run, SETTINGS).manifest.iteration == 20


def test_a_run_whose_process_is_dead_goes_on(tmp_path: Path) -> None:
    """Also before its parent has reaped it, as in a container whose first process does not."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    dead = {**HERE, "process": process.pid}
    run = make_run(tmp_path / "run", 20, state="running", **dead)
    assert continuation(run, SETTINGS).manifest.iteration == 20
    process.wait()
    assert continuation(run, SETTINGS).manifest.iteration == 20


@pytest.mark.parametrize(
    "status",
    [
        *({**HERE, "state": state} for state in ("finished", "stopped", "failed")),
        {**HERE, "state": "running", "machine": "another"},
        {"state": "running", "machine": socket.gethostname()},
    ],
)
def test_a_run_that_is_over_or_of_which_nothing_is_known_goes_on(
    tmp_path: Path, status: dict[str, Any]
) -> None:
    run = make_run(tmp_path / "run", 20, **status)
    assert continuation(run, SETTINGS).manifest.iteration == 20


def test_the_clock_may_be_set_while_a_run_is_going(tmp_path: Path) -> None:
    """As if by an hour, to and fro: when files were written then says nothing."""
    began = seconds_since_boot(psutil.Process())
    run = make_run(tmp_path / "run", 20, state="running", **HERE, process_began=began)
    for seconds in (-3600, 3600):
        moment = psutil.Process().create_time() + seconds
        os.utime(run.path / "run.json", (moment, moment))
        assert "still running" in refusal(run)
    run.write_status({"state": "running", **HERE, "process_began": began - 60})
    assert continuation(run, SETTINGS).manifest.iteration == 20, "another process has the number"


def test_a_damaged_status_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20)
    (run.path / "run.json").write_text(json.dumps([1]))
    with pytest.raises(BadInput, match="damaged"):
        continuation(run, SETTINGS)
