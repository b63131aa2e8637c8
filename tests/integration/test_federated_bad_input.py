"""What FL-GAN and FeGAN cannot be asked for: one line, status 2, and nothing started."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import run_here

TRAIN = ["train", "--out", "run"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "run").exists()


def refusal(*arguments: str) -> str:
    """The one line with which a command is refused."""
    result = run_here(*arguments, cwd=Path())
    assert result.status == 2, result
    assert result.output == ""
    assert result.errors.startswith("mdgan: ")
    assert result.errors.count("\n") == 1, result
    return result.errors


ROUNDS = ["--round-iterations 3 and --round-epochs 1.0", "give one of them"]
CASES: list[tuple[str, list[str]]] = [
    ("--participation 0", ["--participation 0.0", "above 0 and at most 1"]),
    ("--participation 1.5", ["--participation 1.5", "above 0 and at most 1"]),
    ("--participation -1", ["--participation -1.0", "above 0 and at most 1"]),
    ("--participation nan", ["--participation nan", "above 0 and at most 1"]),
    ("--participation all", ["--participation", "'all'"]),
    ("--round-iterations 0", ["--round-iterations 0", "at least 1"]),
    ("--round-iterations x", ["--round-iterations", "'x'"]),
    ("--round-epochs 0", ["--round-epochs 0.0", "above 0"]),
    ("--round-epochs nan", ["--round-epochs nan", "above 0"]),
    ("--round-epochs inf", ["--round-epochs inf", "above 0"]),
    ("--round-iterations 3 --round-epochs 1", ROUNDS),
    ("--training-load heavy", ["--training-load heavy", "equal, samples, measured"]),
    ("--training-load weak:0.5", ["--training-load weak:0.5", "weak:FRACTION,memory"]),
    ("--training-load weak:0.5,looks", ["weak:0.5,looks", "weak:FRACTION,speed"]),
    ("--training-load weak:0,speed", ["FRACTION must be above 0 and at most 1"]),
    ("--training-load weak:1.1,speed", ["FRACTION must be above 0 and at most 1"]),
    ("--training-load weak:e,speed", ["FRACTION must be above 0 and at most 1"]),
    ("--clusters kmeans", ["--clusters kmeans", "kmeans:K, gmm:K"]),
    ("--clusters dbscan:3", ["--clusters dbscan:3", "kmeans:K, gmm:K"]),
    ("--clusters kmeans:1", ["--clusters kmeans:1", "from 2 to 1000"]),
    ("--clusters gmm:1001", ["--clusters gmm:1001", "from 2 to 1000"]),
    ("--wire-models zip", ["--wire-models zip", "fp32, bf16, int8, topk:F"]),
    ("--wire-models topk:0.9", ["--wire-models topk:0.9", "at most 0.5"]),
    ("--vectorize", ["--vectorize: clients that keep moments", "--client-state fresh"]),
    ("--vectorize --clients 9 --placement pull", ["--vectorize", "--placement pull"]),
    ("--vectorize --clients 9 --merge-halves", ["--vectorize", "leave out --merge-halves"]),
    ("--sampling fair", ["--sampling", "'fair'", "balanced"]),
    ("--weighting votes", ["--weighting", "'votes'", "samples"]),
    ("--on-deadline cry", ["--on-deadline", "'cry'", "abort"]),
    ("--swap-interval 3", ["--swap-interval 3: fegan has no use", "--algorithm mdgan"]),
    ("--swap-epochs 2", ["--swap-epochs 2.0: fegan has no use"]),
    ("--swap derangement", ["--swap derangement: fegan has no use"]),
    ("--aggregation median", ["--weighting kl", "add --weighting uniform"]),
    ("--stale 1", ["--stale 1: fegan has no use"]),
    ("--wire-images bf16", ["--wire-images bf16: fegan has no use"]),
    ("--wire-feedback int8", ["--wire-feedback int8: fegan has no use"]),
    # Three workers of one class each: some class is missing.
    ("--world-size 4 --partition classes:1", ["no worker holds a sample of class", "--sampling"]),
]


@pytest.mark.parametrize(("flags", "says"), CASES, ids=[flags for flags, _ in CASES])
def test_fegan_refuses(flags: str, says: list[str]) -> None:
    line = refusal(*TRAIN, "--algorithm", "fegan", *flags.split())
    for part in says:
        assert part in line


@pytest.mark.parametrize(
    "flags",
    [
        "--round-iterations 3",
        "--round-epochs 2",
        "--sampling random",
        "--weighting kl",
        "--training-load measured",
        "--clusters kmeans:3",
        "--wire-models int8",
    ],
)
def test_mdgan_has_no_use_for_rounds(flags: str) -> None:
    line = refusal(*TRAIN, *flags.split())
    assert f"{flags.replace(' 2', ' 2.0')}: mdgan has no use for it" in line
    assert "use --algorithm fl-gan or fegan" in line


def test_an_algorithm_that_is_none() -> None:
    line = refusal(*TRAIN, "--algorithm", "gan")
    assert "'gan'" in line
    assert "fegan" in line


def test_pictures_that_are_not_sorted(empty_folder: Path) -> None:
    for rank in (1, 2):
        folder = empty_folder / "photos" / str(rank)
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (64, 64), (number, 9, 9)).save(folder / f"{number}.png")
    flags = ["--dataset", "folder", "--data-dir", "photos/{rank}", "--world-size", "3"]
    line = refusal(*TRAIN, "--algorithm", "fegan", *flags, "--batch-size", "2")
    assert "--sampling balanced: the samples have no labels" in line
    assert "--clusters kmeans:10" in line
