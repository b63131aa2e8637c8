"""What must be exact on a GPU, too; these tests are skipped without one."""

from pathlib import Path

import pytest

from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS
from tests.processes import QUICK, generator_bytes, run

pytestmark = pytest.mark.gpu

TRAIN = [
    *("train", *QUICK, "--device", "cuda", "--world-size", "3", "--eval-interval", "0"),
    *("--swap-interval", "3", "--checkpoint-interval", "6"),
]


def _train(folder: Path, out: str, *flags: str) -> bytes:
    result = run(*TRAIN, *flags, "--out", out, cwd=folder)
    assert result.status == 0, result
    return generator_bytes(folder / out)


def test_one_process_and_several_give_the_same_bits(tmp_path: Path) -> None:
    assert _train(tmp_path, "one", "--transport", "memory") == _train(tmp_path, "several")


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, LOOKAHEAD + "adam"])
def test_a_run_that_stopped_and_went_on(tmp_path: Path, optimizer: str) -> None:
    both = ["--generator-optimizer", optimizer, "--discriminator-optimizer", optimizer]
    flags = [*both, "--transport", "memory"]
    whole = _train(tmp_path, "whole", *flags)
    _train(tmp_path, "part", *flags, "--iterations", "6")
    resumed = run("train", "--resume", "part", "--iterations", "12", cwd=tmp_path)
    assert resumed.status == 0, resumed
    assert generator_bytes(tmp_path / "part") == whole


@pytest.mark.parametrize("algorithm", ["fl-gan", "fegan", "paragan"])
def test_every_algorithm_trains(tmp_path: Path, algorithm: str) -> None:
    flags = ["train", *QUICK, "--device", "cuda", "--world-size", "3", "--eval-interval", "0"]
    result = run(*flags, "--algorithm", algorithm, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result


@pytest.mark.parametrize("architecture", ["md-gan-mlp", "md-gan-cnn"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_architectures_in_every_precision(
    tmp_path: Path, architecture: str, precision: str
) -> None:
    flags = ["--architecture", architecture, "--width", "4", "--precision", precision]
    _train(tmp_path, "run", *flags, "--transport", "memory", "--spectral-norm")
