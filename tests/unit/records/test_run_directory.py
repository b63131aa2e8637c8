import json
import signal
import subprocess
import sys
from pathlib import Path

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


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path / "runs" / "one")
    assert run.path == tmp_path / "runs" / "one"
    assert (run.path / "samples").is_dir()


def test_an_empty_folder_can_be_claimed(tmp_path: Path) -> None:
    RunDirectory.claim(tmp_path)
    assert (tmp_path / "samples").is_dir()


def test_a_folder_with_another_run_is_named_and_left_alone(tmp_path: Path) -> None:
    RunDirectory.claim(tmp_path).write_status({"state": "finished"})
    before = everything_in(tmp_path)
    with pytest.raises(BadInput) as caught:
        RunDirectory.claim(tmp_path)
    assert refusal(caught).startswith(f"--out {tmp_path}: has another run in it")
    assert everything_in(tmp_path) == before


def test_a_folder_with_other_files_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(BadInput) as caught:
        RunDirectory.claim(tmp_path)
    assert refusal(caught).startswith(f"--out {tmp_path}: has files in it")
    assert everything_in(tmp_path) == {"thesis.tex": b"all of it"}
    assert not (tmp_path / "samples").exists()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("")
    for wanted in (path, path / "deeper"):
        with pytest.raises(BadInput) as caught:
            RunDirectory.claim(wanted)
        assert refusal(caught).startswith(f"--out {wanted}: cannot write there (")


def test_what_is_no_run_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(BadInput) as caught:
            RunDirectory.open(path)
        assert refusal(caught).startswith(f"{path}: not a run")


def test_a_run_is_opened_again_with_its_status(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path / "run")
    run.write_status({"state": "running", "iteration": 1})
    run.write_status({"state": "finished", "iteration": 2})
    again = RunDirectory.open(tmp_path / "run")
    assert again.read_status() == {"state": "finished", "iteration": 2}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'"running"'])
def test_a_damaged_status_is_named(tmp_path: Path, content: bytes) -> None:
    run = RunDirectory.claim(tmp_path)
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        run.read_status()
    assert refusal(caught).startswith(f"{tmp_path / 'run.json'}: damaged")


def test_a_file_that_is_missing_is_not_called_damaged(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    for read, name in ((run.read_config, "config.json"), (run.read_status, "run.json")):
        with pytest.raises(BadInput) as caught:
            read()
        assert refusal(caught).startswith(f"{tmp_path / name}: is missing; ")


def test_settings_are_written_as_json(tmp_path: Path) -> None:
    RunDirectory.claim(tmp_path).write_config({"kappa": "auto", "seed": 3, "swap_epochs": None})
    found = json.loads((tmp_path / "config.json").read_text())
    assert found == {"kappa": "auto", "seed": 3, "swap_epochs": None}


def test_metrics_are_one_line_each(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    records = [{"iteration": n, "note": "first\nsecond"} for n in range(3)]
    for record in records:
        run.append_metrics(record)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_what_will_be_done_again_is_forgotten(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    for iteration in (0, 10, 20, 20, 21, 30):
        run.append_metrics({"iteration": iteration})
        run.append_trace("server", [{"iteration": iteration, "spans": []}])
        run.append_trace("host-1", [{"iteration": min(iteration, 20)}])
    run.cut_after(20)
    kept = ['{"iteration": 0}', '{"iteration": 10}', '{"iteration": 20}', '{"iteration": 20}']
    assert lines_of(tmp_path / "metrics.jsonl") == kept
    assert len(lines_of(tmp_path / "trace" / "server.jsonl")) == 4
    assert len(lines_of(tmp_path / "trace" / "host-1.jsonl")) == 6
    run.append_metrics({"iteration": 21})
    assert lines_of(tmp_path / "metrics.jsonl") == [*kept, '{"iteration": 21}']


@pytest.mark.parametrize(
    "torn", ['{"iteration": 1', "", "[1]", "null", '{"a": 1}', '{"iteration": "x"}', "[" * 100_000]
)
def test_half_a_line_is_forgotten_too(tmp_path: Path, torn: str) -> None:
    """A server that was killed while it wrote leaves one; what follows must begin a line."""
    run = RunDirectory.claim(tmp_path)
    run.append_metrics({"iteration": 1})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn + ("\n" if not torn else ""))
    run.cut_after(5)
    assert lines_of(tmp_path / "metrics.jsonl") == ['{"iteration": 1}']


def test_where_nothing_was_recorded_there_is_nothing_to_forget(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    run.cut_after(0)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_samples_sort_by_iteration(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    paths = [run.write_samples(iteration, bytes([iteration % 256])) for iteration in (9, 10, 2000)]
    assert sorted(paths) == paths
    assert [path.read_bytes() for path in paths] == [b"\x09", b"\x0a", b"\xd0"]
    assert all(path.parent == tmp_path / "samples" for path in paths)


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2).double())


def test_a_generator_comes_back_bit_for_bit(tmp_path: Path) -> None:
    run, model = RunDirectory.claim(tmp_path), generator()
    run.write_generator({"0.weight": torch.zeros(1)}, 3)
    run.write_generator(model.state_dict(), 1234)
    state, iteration = RunDirectory(tmp_path).read_generator()
    assert iteration == 1234
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor)
    generator().load_state_dict(state)


def test_tensors_with_strides_and_gradients_are_written_too(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    weight = torch.arange(6.0, requires_grad=True).view(2, 3).T
    run.write_generator({"w": weight}, 1)
    assert torch.equal(run.read_generator()[0]["w"], weight)


def test_tensors_that_share_memory_are_written_too(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    tied = torch.arange(6.0)
    run.write_generator({"embedding": tied, "output": tied, "part": tied[:3]}, 1)
    state, _ = run.read_generator()
    assert torch.equal(state["embedding"], tied)
    assert torch.equal(state["output"], tied)
    assert torch.equal(state["part"], tied[:3])


def test_a_generator_that_is_not_there_yet_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        RunDirectory.claim(tmp_path).read_generator()
    assert refusal(caught).startswith(f"{tmp_path}: has no generator yet")


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


@pytest.mark.parametrize("damage", damaged_files())
def test_a_damaged_generator_is_named(tmp_path: Path, damage: str) -> None:
    run = RunDirectory.claim(tmp_path)
    path = tmp_path / "generator.safetensors"
    path.write_bytes(damaged_files()[damage])
    with pytest.raises(BadInput) as caught:
        run.read_generator()
    assert refusal(caught).startswith(f"{path}: damaged (")


def test_a_folder_in_the_place_of_the_generator_is_named(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path)
    (tmp_path / "generator.safetensors").mkdir()
    with pytest.raises(BadInput) as caught:
        run.read_generator()
    assert refusal(caught).startswith(f"{tmp_path / 'generator.safetensors'}: damaged (")


def test_what_a_killed_writer_left_is_swept_up_and_nothing_else(tmp_path: Path) -> None:
    run = RunDirectory.claim(tmp_path / "run")
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
