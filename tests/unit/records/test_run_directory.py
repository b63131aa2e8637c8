import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as safetensors_bytes
from torch import nn

from mdgan.errors import BadInput
from mdgan.records.run_directory import RunDirectory


def refusal(error: pytest.ExceptionInfo[BadInput]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) == 1, text
    return text


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.claim(tmp_path / "run")


def test_a_new_folder_is_made_with_its_parents_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path / "runs" / "one")
    assert run.path == tmp_path / "runs" / "one"
    assert (run.path / "samples").is_dir()
    (tmp_path / "empty").mkdir()
    assert (RunDirectory.claim(tmp_path / "empty").path / "samples").is_dir()


@pytest.mark.parametrize(
    ("name", "message"), [("run.json", "has another run in it"), ("thesis.tex", "has files in it")]
)
def test_a_folder_with_files_is_named_and_left_alone(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / name).write_text("all of it")
    with pytest.raises(BadInput) as caught:
        RunDirectory.claim(tmp_path)
    assert refusal(caught).startswith(f"--out {tmp_path}: {message}")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all of it"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    for wanted in (path, path / "deeper"):
        with pytest.raises(BadInput) as caught:
            RunDirectory.claim(wanted)
        assert refusal(caught).startswith(f"--out {wanted}: cannot write there (")


def test_a_run_is_opened_again_with_its_status(run: RunDirectory, tmp_path: Path) -> None:
    run.write_status({"state": "running", "iteration": 1})
    run.write_status({"state": "finished", "iteration": 2})
    again = RunDirectory.open(run.path)
    assert again.read_status() == {"state": "finished", "iteration": 2}
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(BadInput) as caught:
            RunDirectory.open(path)
        assert refusal(caught).startswith(f"{path}: not a run")
    with pytest.raises(BadInput, match=f"such as {run.path}$"):
        RunDirectory.open(run.path.parent)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'"running"'])
def test_a_damaged_status_is_named(run: RunDirectory, content: bytes) -> None:
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        run.read_status()
    assert refusal(caught).startswith(f"{run.path / 'run.json'}: damaged")


def test_a_file_that_is_missing_is_not_called_damaged(run: RunDirectory) -> None:
    for read, name in ((run.read_config, "config.json"), (run.read_status, "run.json")):
        with pytest.raises(BadInput) as caught:
            read()
        assert refusal(caught).startswith(f"{run.path / name}: is missing; ")


def test_settings_and_metrics_are_json(run: RunDirectory) -> None:
    settings = {"kappa": "auto", "seed": 3, "swap_epochs": None}
    run.write_config(settings)
    assert json.loads((run.path / "config.json").read_text()) == settings
    records = [{"iteration": n, "note": "first\nsecond"} for n in range(3)]
    for record in records:
        run.append_metrics(record)
    assert [json.loads(line) for line in lines_of(run, "metrics")] == records


def lines_of(run: RunDirectory, name: str) -> list[str]:
    return (run.path / f"{name}.jsonl").read_text().splitlines()


def test_what_will_be_done_again_is_forgotten(run: RunDirectory) -> None:
    run.cut_after(0)
    assert not (run.path / "metrics.jsonl").exists()
    for iteration in (0, 10, 20, 20, 21, 30):
        run.append_metrics({"iteration": iteration})
        run.append_trace("server", [{"iteration": iteration, "spans": []}])
        run.append_trace("host-1", [{"iteration": min(iteration, 20)}])
    run.cut_after(20)
    before = ['{"iteration": 0}', '{"iteration": 10}', '{"iteration": 20}', '{"iteration": 20}']
    assert lines_of(run, "metrics") == before
    assert len(lines_of(run, "trace/server")) == 4
    assert len(lines_of(run, "trace/host-1")) == 6
    run.append_metrics({"iteration": 21})
    assert lines_of(run, "metrics") == [*before, '{"iteration": 21}']


@pytest.mark.parametrize(
    "torn", ['{"iteration": 1', "", "[1]", "null", '{"a": 1}', '{"iteration": "x"}', "[" * 100_000]
)
def test_half_a_line_is_forgotten_too(run: RunDirectory, torn: str) -> None:
    """A server that was killed while it wrote leaves one; what follows must begin a line."""
    run.append_metrics({"iteration": 1})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(torn + ("\n" if not torn else ""))
    run.cut_after(5)
    assert lines_of(run, "metrics") == ['{"iteration": 1}']


def test_samples_sort_by_iteration(run: RunDirectory) -> None:
    paths = [run.write_samples(iteration, bytes([iteration % 256])) for iteration in (9, 10, 2000)]
    assert sorted(paths) == paths
    assert [path.read_bytes() for path in paths] == [b"\x09", b"\x0a", b"\xd0"]
    assert all(path.parent == run.path / "samples" for path in paths)


def test_a_generator_comes_back_bit_for_bit(run: RunDirectory) -> None:
    with pytest.raises(BadInput) as caught:
        run.read_generator()
    assert refusal(caught).startswith(f"{run.path}: has no generator yet")
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2).double())
    tied = torch.arange(6.0, requires_grad=True)
    turned = {"turned": tied.view(2, 3).T, "tied": tied, "part": tied[:3]}
    run.write_generator({"0.weight": torch.zeros(1)}, 3)
    run.write_generator({**model.state_dict(), **turned}, 1234)
    state, iteration = RunDirectory(run.path).read_generator()
    assert iteration == 1234
    for name, tensor in {**model.state_dict(), **turned}.items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor)


def damaged_files() -> dict[str, bytes]:
    whole = safetensors_bytes({"w": torch.arange(100.0)}, metadata={"iteration": "7"})
    other = {"w": torch.arange(3.0)}
    return {
        "empty": b"",
        "too short": whole[:5],
        "half a header": whole[:20],
        "half the data": whole[: len(whole) // 2],
        "one byte short": whole[:-1],
        "one byte too long": whole + b"\x00",
        "zeros": bytes(len(whole)),
        "a text": b"<html>404 Not Found</html>",
        "huge header": b"\xff" * 8 + whole[8:],
        "broken header": whole.replace(b'"dtype"', b'"btype"'),
        "no metadata": safetensors_bytes(other),
        "no iteration": safetensors_bytes(other, metadata={"a": "b"}),
        "no number": safetensors_bytes(other, metadata={"iteration": "last"}),
    }


@pytest.mark.parametrize("damage", [*damaged_files(), "a folder"])
def test_a_damaged_generator_is_named(run: RunDirectory, damage: str) -> None:
    path = run.path / "generator.safetensors"
    if damage == "a folder":
        path.mkdir()
    else:
        path.write_bytes(damaged_files()[damage])
    with pytest.raises(BadInput) as caught:
        run.read_generator()
    assert refusal(caught).startswith(f"{path}: damaged (")


def test_what_a_killed_writer_left_is_swept_up_and_nothing_else(run: RunDirectory) -> None:
    run.write_status({"state": "running"})
    run.write_samples(7, b"png")
    half = (
        "import os, signal\nfrom pathlib import Path\n"
        "from mdgan.storage.whole_file import whole_file\n"
        "with whole_file(Path({!r})) as file:\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    before = {path for path in run.path.rglob("*") if path.is_file()}
    for path in (run.path / "generator.safetensors", run.path / "samples" / "0000008.png"):
        killed = subprocess.run([sys.executable, "-c", half.format(str(path))], check=False)
        assert killed.returncode == -signal.SIGKILL
    claiming = run.path / ".generation-2.json.0123456789abcdef.tmp"
    claiming.touch()
    assert len([path for path in run.path.rglob("*") if path.is_file()]) == len(before) + 3
    run.sweep()
    assert {path for path in run.path.rglob("*") if path.is_file()} == before | {claiming}


def test_a_line_that_does_not_fit_on_the_disk_spoils_no_other_line(run: RunDirectory) -> None:
    """A limit on the sizes of files cuts a write in two, as a disk does that becomes full."""
    paths = run.path / "metrics.jsonl", run.path / "trace" / "server.jsonl"
    appends: list[Callable[[dict[str, Any]], object]] = [
        run.append_metrics,
        lambda row: run.append_trace("server", [row]),
    ]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for path, append in zip(paths, appends, strict=True):
        append({"iteration": 1})
        whole = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 5, hard))
        try:
            with pytest.raises(OSError, match="No space left") as caught:
                append({"iteration": 2})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.filename == str(path)
        assert path.read_bytes() == whole
        append({"iteration": 3})
        assert [json.loads(line)["iteration"] for line in path.read_bytes().splitlines()] == [1, 3]
