"""Bad input: one line that names the value and the way out, status 2, and nothing started."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from mdgan.cli import main
from tests.processes import run

TRAIN = ["train", "--out", "run"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    assert not (tmp_path / "run").exists()


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command is refused."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert ended.value.code == 2, captured
    assert captured.out == ""
    assert captured.err.startswith("mdgan: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--dataset", "digit"], ["digit", "cifar10", "mnist", "did you mean 'digits'?"]),
        (["--dataset", "MNIST"], ["did you mean 'mnist'?"]),
        (["--datasets-dir", "nowhere"], ["--datasets-dir nowhere"]),
        (["--dataset", "mnist"], ["data/mnist", "download=True"]),
        (["--dataset", "folder"], ["data/folder"]),
        (["--precision", "bf16", "--set", "exact_layers=*,fc"], ["exact_layers=fc: ", "G has 0, "]),
        (["--merge-halves", "--architecture", "acgan"], ["--merge-halves", "BatchNorm", "leave"]),
        (
            ["--set", "max_world_size=2"],
            ["--set max_world_size=2", "--world-size 5", "as many or more"],
        ),
        (["--kappa", "many"], ["--kappa", "'many'", "auto"]),
        (["--batch-size", "1439"], ["--batch-size 1439", "1,438 samples"]),
        (["--iterations", "x"], ["--iterations", "'x'"]),
        (["--world-size", "1440", "--kappa", "2"], ["1439 workers", "1,438 samples"]),
        (["--partition", "dirichlet:0.0001", "--world-size", "90"], ["would hold no sample"]),
        (["--cores", "0,9999"], ["core 9999 is none that this process may use"]),
        (["--ranks", "0..5"], ["rank 5 is outside 0..4"]),
        (["--master-addr", "192.0.2.77"], ["192.0.2.77", "127.0.0.1"]),
        (["--master-addr", "0.0.0.0"], ["others can reach 0.0.0.0", "--credentials FILE"]),
        (["--ranks", "0,1", "--master-port", "0"], ["--master-port 0", "name one"]),
        (["--set", "network_interface=eth99"], ["eth99", "there are", "lo"]),
        (["--precision", "fp8"], ["--precision", "'fp8'", "bf16"]),
        (["--credentials", "nowhere"], ["nowhere: does not exist", "mdgan credentials new FILE"]),
        (["--config", "none.json"], ["none.json", "cannot read"]),
        (["--extractor", "none.pt"], ["--extractor none.pt", "cannot be read"]),
        (
            ["--extractor", "inception", "--inception-weights", __file__],
            ["--inception-weights", "SHA-256 is", "must be 6726825d0af5"],
        ),
        (["--frobnicate"], ["--frobnicate"]),
        (
            ["--beta1=0.3"],
            ["write --generator-optimizer beta1=0.3 --discriminator-optimizer beta1"],
        ),
        (["--tune", "--seed", "1"], ["--tune: is no setting any more; add --vectorize"]),
        (["--quorum", "0.3"], ["--quorum: has no flag of its own; write --set quorum=0.3"]),
        (["--strict-data"], ["write --set strict_data=true"]),
        (["--set", "batch_size=3"], ["--set batch_size=3: write --batch-size 3"]),
        (["--set", "quorun=0.3"], ["unknown key 'quorun'; did you mean 'quorum'?"]),
        (["--set", "quorum=half"], ["--set quorum=half: must be a number"]),
        (["--set", "quorum=1.5"], ["--set quorum=1.5: must be", "at most 1"]),
        (
            ["--algorithm", "fegan", "--world-size", "4", "--partition", "classes:1"],
            ["no worker holds a sample of class", "--sampling"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_train_refuses(
    capsys: pytest.CaptureFixture[str], flags: list[str], says: list[str]
) -> None:
    line = refusal(capsys, *TRAIN, *flags)
    for part in says:
        assert part in line


@pytest.mark.parametrize(("device", "kind"), [("cuda", "CUDA"), ("mps", "Apple")])
def test_a_gpu_that_is_not_there(
    capsys: pytest.CaptureFixture[str], device: str, kind: str
) -> None:
    if torch.cuda.device_count() if device == "cuda" else torch.backends.mps.is_available():
        pytest.skip(f"this machine has a {kind} GPU")
    line = refusal(capsys, *TRAIN, "--device", device)
    assert f"--device {device}: no {kind} GPU found here; use --device cpu" in line


@pytest.mark.parametrize("standbys", ["127.0.0.1", "198.51.100.1,198.51.100.2"])
def test_a_standby_that_no_host_would_find(
    capsys: pytest.CaptureFixture[str], empty_folder: Path, standbys: str
) -> None:
    line = refusal(capsys, "standby", "nowhere", "--master-addr", standbys)
    assert "nowhere: not a run" in line
    (empty_folder / "given").mkdir()
    (empty_folder / "given" / "run.json").write_text("{}")
    (empty_folder / "given" / "config.json").write_text('{"transport": "memory"}')
    line = refusal(capsys, "standby", "given", "--master-addr", standbys)
    assert "given: runs in one process" in line
    (empty_folder / "given" / "config.json").write_text('{"world_size": 3}')
    line = refusal(capsys, "standby", "given", "--master-addr", standbys)
    assert f"--master-addr {standbys}: " in line
    assert "names no standby" in line or "none is an address of this machine" in line


@pytest.mark.slow
def test_joining_a_run_that_does_not_run(empty_folder: Path) -> None:
    (line,) = refused_guest(empty_folder, "nowhere")
    assert "nowhere: not a run" in line
    (empty_folder / "given").mkdir()
    (empty_folder / "given" / "run.json").write_text("{}")
    (line,) = refused_guest(empty_folder, "given")
    assert "given: no server runs there on this machine; give --master-addr" in line
    (empty_folder / "given" / "run.json").write_text('{"state": "finished", "iteration": 5}')
    (line,) = refused_guest(empty_folder, "given")
    assert "given: its training is over; once `mdgan train --resume given --iterations N`" in line
    gone = {"socket": f"unix:{empty_folder}/server"}
    (empty_folder / "given" / "run.json").write_text(json.dumps(gone))
    (line,) = refused_guest(empty_folder, "given")
    assert "given: no server runs there on this machine; give --master-addr" in line
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(f"{empty_folder}/server")
    _, line = refused_guest(empty_folder, "given", "--set", "connect_timeout=1")
    assert "no server answers" in line


def refused_guest(folder: Path, *arguments: str) -> list[str]:
    """What `mdgan join` says before it gives up; it asks in a fork, which gRPC here forbids."""
    result = run("join", *arguments, cwd=folder)
    assert result.status == 2, result
    assert result.output == ""
    lines = [line[20:] if line[:4].isdecimal() else line for line in result.errors.splitlines()]
    assert len(lines) <= 2, result
    assert lines[-1].startswith("mdgan: ")
    return lines


def test_extractor_that_gives_no_features(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "mine.py").write_text(
        "import torch\nclass Flat(torch.nn.Module):\n"
        "    def forward(self, images):\n        return images.mean((1, 2, 3))\n"
    )
    line = refusal(capsys, *TRAIN, "--extractor", "mine.py:Flat", "--dataset", "digits")
    assert "gives float32 [2] for 2 images, must give features [n, d]" in line


def test_config_file_with_unknown_key(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "settings.json").write_text('{"batchsize": 3}')
    line = refusal(capsys, *TRAIN, "--config", "settings.json")
    assert "'batchsize'" in line
    assert "'batch_size'" in line


def test_pictures_that_are_not_sorted(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    for rank in (1, 2):
        folder = empty_folder / "photos" / str(rank)
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (64, 64), (number, 9, 9)).save(folder / f"{number}.png")
    flags = ["--dataset", "folder", "--data-dir", "photos/{rank}", "--world-size", "3"]
    line = refusal(capsys, *TRAIN, "--algorithm", "fegan", *flags, "--batch-size", "2")
    assert "--sampling balanced: the samples have no labels" in line
    assert "--clusters kmeans:10" in line


def test_output_folder_with_another_run(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    other = empty_folder / "taken"
    other.mkdir()
    (other / "run.json").write_text("{}")
    line = refusal(capsys, "train", "--out", "taken")
    assert "taken" in line
    assert "another run" in line
    assert [path.name for path in other.iterdir()] == ["run.json"]


def test_output_folder_that_cannot_be_made(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "file").write_text("in the way")
    assert "file/run" in refusal(capsys, "train", "--transport", "memory", "--out", "file/run")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sample", "nowhere"], "nowhere: not a run"),
        (["sample", "nowhere", "-n", "0"], "'-n'"),
        (["sample", "nowhere", "-o", "grid.xyz"], "nowhere: not a run"),
        (
            [*TRAIN, "--data-dir", "x"],
            "--data-dir x: --dataset digits reads no files",
        ),
        (
            ["standalone", "--held-out", "x"],
            "--held-out x: --dataset digits reads no files",
        ),
        (
            ["datasets", "show", "digits", "--data-dir", "x"],
            "--data-dir x: --dataset digits reads no files",
        ),
        (["datasets", "show", "digits", "--partition", "none"], "--partition none"),
        (["datasets", "show", "digits", "-o", "x.gif"], ".png or .svg"),
        (["datasets", "show", "digits", "-o", "no/where.png"], "no/where.png"),
        (["trian"], "trian"),
    ],
)
def test_other_commands_refuse(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert says in refusal(capsys, *arguments)
