"""Training on files in the data sets' real formats."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mdgan.data.fetching import Fetcher
from tests.processes import QUICK, generator_bytes, read_events, read_status, run, run_here
from tests.unit import dataset_formats

FEW = ["--iterations", "2", *QUICK[2:]]


@pytest.mark.parametrize(
    "num_workers", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 10))]
)
def test_cifar10(tmp_path: Path, num_workers: int) -> None:
    dataset_formats.write_cifar10(tmp_path / "data", 100)
    flags = ["--dataset", "cifar10", "--data-dir", "data", "--world-size", str(num_workers + 1)]
    result = run("train", *FEW, *flags, "--swap-interval", "1", "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    assert read_status(tmp_path / "run")["iteration"] == 2


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        ("mnist", lambda folder: dataset_formats.write_mnist(folder, 60)),
        pytest.param(
            *("celeba", lambda folder: dataset_formats.write_celeba(folder, 24)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_memory(tmp_path: Path, dataset: str, write: Callable[[Path], object]) -> None:
    write(tmp_path / "data" / dataset)
    flags = ["--dataset", dataset, "--transport", "memory", "--world-size", "3", "--out", "run"]
    result = run_here("train", *FEW, *flags, cwd=tmp_path)
    assert result.status == 0, result


@pytest.mark.slow
def test_one_process_alone_reads_ahead(tmp_path: Path) -> None:
    dataset_formats.write_celeba(tmp_path / "data" / "celeba", 24)
    flags = ["--dataset", "celeba", "--algorithm", "standalone", "--set", "data_threads=3"]
    result = run_here("train", *FEW, *flags, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    (events, *_) = read_events(tmp_path / "run", "fetching")
    assert (events["role"], events["threads"]) == ("standalone", 3)


def test_small_files_that_claim_to_be_huge_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, side in (("a", 12_000), ("b", 9_000), ("c", 50_000)):
        (folder / f"{name}.png").write_bytes(dataset_formats.black_png(side))
    flags = ["--dataset", "folder", "--data-dir", "data", "--world-size", "3", "--out", "run"]
    ended = run("train", *FEW, *flags, "--dry-run", cwd=tmp_path)
    assert ended.status == 2, ended
    (line,) = ended.errors.splitlines()
    assert "first a.png (32 pictures of 12000 × 12000 pixels in" in line
    assert "--set file_memory=GIB" in line


@pytest.mark.slow
def test_every_rank_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (1, 2):
        folder = tmp_path / f"hospital-{rank}"
        dataset_formats.write_image_folder(folder, ["scan"], 9 + rank, seed=rank)
    bad = tmp_path / "hospital-1" / "scan" / "0004.png"
    bad.write_bytes(bad.read_bytes()[:2000])
    flags = ["--dataset", "folder", "--data-dir", "hospital-{rank}", "--world-size", "3"]
    named = "1 of 10 pictures in hospital-1 cannot be read and will be left out: scan/0004.png ("
    looked = run_here("train", *FEW, *flags, "--dry-run", cwd=tmp_path)
    assert named in looked.errors
    assert "rank 1           9 samples" in looked.output
    together = run("train", *FEW, *flags, "--out", "a", cwd=tmp_path)
    assert together.status == 0, together
    assert together.errors.count(named) == 1
    assert not any(
        b"0004.png" in file.read_bytes() for file in Path(tmp_path / "a").rglob("*.json*")
    )
    monkeypatch.setattr(Fetcher, "buffer", 0)  # nothing is read ahead
    memory = ["--transport", "memory", "--out", "b"]
    again = run_here("train", *FEW, *flags, *memory, cwd=tmp_path)
    assert again.status == 0, again
    assert generator_bytes(tmp_path / "a") == generator_bytes(tmp_path / "b")
    events = read_events(tmp_path / "a", "fetching")
    assert {row["role"] for row in events} == {"host-1", "host-2"}
    assert sum(row["batches"] for row in events) >= 2 * 2
    assert not read_events(tmp_path / "b", "fetching"), "nothing was read ahead"
    strict = run_here("train", *flags, "--set", "strict_data=true", cwd=tmp_path)
    assert (strict.status, strict.output) == (2, "")
    assert "mdgan: --set strict_data=true: 1 of 10 pictures" in strict.errors


@pytest.mark.parametrize(
    ("flags", "says", "holds"),
    [
        (["--data-dir", "data"], "data: one folder, so its samples are divided among", 2),
        (["--data-dir", "data", "--ranks", "0..2"], "data: one folder, so its samples are", 2),
        (["--data-dir", "data", "--partition", "none"], "data: 2 workers here read all of it", 4),
        (["--data-dir", "data", "--ranks", "1..2"], "data: 2 workers here read all of it", 4),
        (["--data-dir", "data", "--partition", "iid"], None, 2),
        (["--data-dir", "data-{rank}"], None, 4),
        (["--config", "of-before.json"], "data: 2 workers here read all of it", 4),
    ],
    ids=str,
)
def test_one_folder_is_divided_where_all_workers_are_here(
    tmp_path: Path, flags: list[str], says: str | None, holds: int
) -> None:
    (tmp_path / "of-before.json").write_text('{"data_dir": "data", "partition": "none"}')
    for name in ("data", "data-1", "data-2"):
        (tmp_path / name).mkdir()
        for n in range(4):
            (tmp_path / name / f"{n}.png").write_bytes(dataset_formats.black_png(64))
    size = ["--world-size", "3", "--dry-run", "--batch-size", "1"]
    result = run_here("train", "--dataset", "folder", *size, *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert f"{holds} samples" in result.output
    output = [line for line in result.errors.splitlines() if "--data-dir" in line]
    assert len(output) == (says is not None)
    assert says is None or f"--data-dir {says}" in output[0]


@pytest.mark.parametrize(
    ("flags", "says", "side"),
    [
        ([], "pictures are trained on as 32×32; --set image_size=N takes another size", 32),
        (["--set", "image_size=16"], "", 16),
        (["--ranks", "1"], "could be trained on as 32×32; --set image_size=32 on every", 64),
        (["--data-dir", "{rank}"], "pictures are trained on as 32×32", 32),
    ],
    ids=str,
)
def test_pictures_are_trained_on_in_the_size_of_their_files(
    tmp_path: Path, flags: list[str], says: str, side: int
) -> None:
    for name in ("data", "1", "2"):
        (tmp_path / name).mkdir()
        for n in range(4):
            (tmp_path / name / f"{n}.png").write_bytes(dataset_formats.black_png(28))
    size = ["--world-size", "3", "--dry-run", "--batch-size", "1", "--data-dir", "data"]
    result = run_here("train", "--dataset", "folder", *size, *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert f"3 × {side} × {side}" in result.output
    assert says in result.errors
    assert bool(says) == ("image_size" in result.errors)


@pytest.mark.parametrize("dataset", ["digits", "volumes"])
def test_a_size_of_pictures_that_has_no_use_is_refused(tmp_path: Path, dataset: str) -> None:
    result = run_here("train", "--dataset", dataset, "--set", "image_size=32", cwd=tmp_path)
    assert result.status == 2
    (line,) = result.errors.splitlines()
    assert f"--set image_size=32: the samples of --dataset {dataset} have a size of their" in line


def test_a_run_made_before_there_was_a_size_goes_on_in_its_own(tmp_path: Path) -> None:
    """Its pictures are 64×64, and its workers hold all of them."""
    (tmp_path / "data").mkdir()
    for n in range(8):
        (tmp_path / "data" / f"{n}.png").write_bytes(dataset_formats.black_png(16))
    begin = ["--dataset", "folder", "--data-dir", "data", "--world-size", "3", "--out", "run"]
    begin += ["--architecture", "dcgan", "--width", "8"]
    more = ["--partition", "none", "--set", "image_size=64", "--transport", "memory"]
    assert run_here("train", *FEW, *begin, *more, cwd=tmp_path).status == 0
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"image_size": 64,', ""))
    result = run_here("train", "--resume", "run", "--iterations", "4", cwd=tmp_path)
    assert result.status == 0, result
    assert read_status(tmp_path / "run")["iteration"] == 4
