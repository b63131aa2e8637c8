"""The output of commands, on the screen and in files."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mdgan.cli import main
from tests.gallery import Gallery
from tests.processes import QUICK, finish, read_metrics, run, run_here, training, wait_until


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command in this process; returns what it prints."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert ended.value.code == 0, captured
    return captured.out


@pytest.fixture(scope="session")
def finished_run(gallery: Gallery) -> Path:
    return gallery.show("finished", train_in_processes) / "run"


def train_in_processes(folder: Path) -> None:
    flags = ["--world-size", "3", "--sample-interval", "5", "--log-interval", "4", "--out", "run"]
    result = run("train", *QUICK[:-2], *flags, cwd=folder)
    assert result.status == 0, result
    assert "done: 12 of 12 iterations" in result.output
    assert "mdgan report" in result.output
    assert re.search(r"iteration 12/12 \| .* it/s \| loss G \S+ D \S+ \| 0 s left", result.errors)


def test_run_folder(finished_run: Path) -> None:
    pictures = sorted(path.name for path in (finished_run / "samples").iterdir())
    assert pictures == ["0000000.png", "0000005.png", "0000010.png", "0000012.png"]
    assert [record["iteration"] for record in read_metrics(finished_run)] == [1, 4, 8, 12]
    for record in read_metrics(finished_run):
        assert 0 < record["generator_loss"] < 10
        assert record["workers"] == 2


def test_config_of_a_run_starts_the_same_run(
    capsys: pytest.CaptureFixture[str], finished_run: Path, tmp_path: Path
) -> None:
    flags = ["--config", str(finished_run / "config.json"), "--transport", "memory"]
    again = run_here("train", *flags, "--out", "again", cwd=tmp_path)
    assert again.status == 0, again
    ours, theirs = (
        folder / "generator.safetensors" for folder in (finished_run, tmp_path / "again")
    )
    assert ours.read_bytes() == theirs.read_bytes()


def test_sample_pictures(
    capsys: pytest.CaptureFixture[str], finished_run: Path, tmp_path: Path
) -> None:
    def draw(name: str, *flags: str) -> bytes:
        call(capsys, "sample", str(finished_run), "-o", str(tmp_path / name), *flags)
        return (tmp_path / name).read_bytes()

    assert draw("a.png", "-n", "9") == draw("b.png", "-n", "9", "--seed", "0")
    assert draw("c.png", "-n", "9", "--seed", "1") != draw("a.png", "-n", "9")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width == picture.height


def test_sample_arrays(
    capsys: pytest.CaptureFixture[str], finished_run: Path, tmp_path: Path
) -> None:
    def draw(num_samples: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        output = tmp_path / f"{num_samples}.npz"
        flags = ["-n", str(num_samples), "-o", str(output)]
        call(capsys, "sample", str(finished_run), *flags)
        with np.load(output) as arrays:
            assert arrays.files == ["images"]
            images: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = arrays["images"]
            return images

    images = draw(20)
    assert images.shape == (20, 1, 8, 8)
    assert images.dtype == np.float32
    assert np.abs(images).max() <= 1
    assert images.std() > 0.05
    np.testing.assert_allclose(draw(5), images[:5], atol=1e-6)


def test_sample_of_a_running_run(tmp_path: Path) -> None:
    flags = ["--iterations", "100000", "--sample-interval", "3", "--log-interval", "1"]
    running = training(tmp_path, "train", "--threads", "1", *flags)
    wait_until(lambda: running.has_reached(7), "the second grid")
    result = run_here("sample", "run", "-n", "4", "-o", "now.png", cwd=tmp_path)
    assert result.status == 0, result
    iteration = re.search(r"after iteration (\d+)", result.output)
    assert iteration is not None
    assert int(iteration[1]) >= 3
    running.process.terminate()
    finish(running.process)


def test_dry_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--world-size", "4", "--partition", "sorted", "--workers-per-host", "2"]
    text = call(capsys, "train", "--dry-run", *flags, "--batch-size", "700")
    first, second, *_ = text.splitlines()
    assert first.startswith("can run: mdgan trains 3,500 iterations on digits with 3 worker(s)")
    assert second == "holds"
    assert re.search(r"κ +2\n", text)
    assert re.search(r"trains +MD-GAN .*, pairs swap in every iteration", text)
    assert "every 1 iterations" not in text
    assert re.search(r"processes here +rank 0, rank 1-2, rank 3", text)
    held = re.findall(r"rank (\d) +(\d+) samples   (.*)", text)
    assert [(rank, size) for rank, size, _ in held] == [("1", "480"), ("2", "479"), ("3", "479")]
    assert re.fullmatch(r"0:\d+ 1:\d+ 2:\d+ 3:\d+", held[0][2])
    assert list(tmp_path.iterdir()) == []


def test_small_shards_are_warned_about(tmp_path: Path) -> None:
    flags = ["--transport", "memory", "--world-size", "4", "--batch-size", "700", "--out", "run"]
    result = run_here("train", "--iterations", "2", *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert "warning: 3 worker(s) hold fewer samples than a batch of 700" in result.errors
    why = "scores     none in so few iterations (--eval-interval 500; mdgan evaluate run)"
    assert why in result.output


def test_clients_with_few_samples_are_warned_about(tmp_path: Path) -> None:
    flags = ["--algorithm", "fl-gan", "--dry-run", "--participation", "0.1", "--clients"]
    result = run_here("train", *flags, "1000", cwd=tmp_path)
    says = "--clients 1000: 1,000 of them hold fewer samples than a batch of 64, so"
    assert says in result.errors
    assert "--clients" not in run_here("train", *flags, "20", cwd=tmp_path).errors


def test_datasets_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    lines = call(capsys, "datasets").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        *("breast-cancer", "celeba", "cifar10", "digits", "folder", "mnist", "table", "volumes")
    ]
    assert "1×8×8" in next(line for line in lines if line.startswith("digits"))


@pytest.mark.parametrize("suffix", ["png", pytest.param("svg", marks=pytest.mark.slow)])
def test_datasets_show(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"picture.{suffix}"
    flags = ["--partition", "dirichlet:0.5", "--workers", "6", "-o", str(output)]
    assert str(output) in call(capsys, "datasets", "show", "digits", *flags)
    if suffix == "svg":
        assert "samples as the networks see them, 1×8×8" in output.read_text()
    if suffix == "png":
        with Image.open(output) as picture:
            colours = picture.convert("RGB").getcolors(1 << 24)
            assert picture.width > 400
            assert colours is not None
            assert len(colours) > 20
    else:
        assert "<svg" in output.read_text()
