"""The average of the generator, and options for little data."""

from pathlib import Path

import pytest

from tests.integration.exactness import (
    AVERAGE,
    FAMILIES,
    IN_MEMORY,
    one_worker_and_a_single_process,
    whole_and_resumed,
)
from tests.marks import mostly_slow
from tests.processes import QUICK, ended_well, generator_bytes, read_events, run_here

AVERAGED = ["standalone", *QUICK, "--ema", "4"]


def average_bytes(folder: Path) -> bytes:
    return (folder / AVERAGE).read_bytes()


def test_spectral_norm_cannot_be_stacked(tmp_path: Path) -> None:
    flags = ["train", *QUICK, *IN_MEMORY, "--world-size", "3", "--spectral-norm", "--vectorize"]
    result = run_here(*flags, "--out", "asked", cwd=tmp_path)
    assert "computes one by one: " in result.errors
    ended_well(result, tmp_path / "asked")


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, ["mdgan"]))
def test_an_average_changes_no_training_and_survives_a_stop(tmp_path: Path, family: str) -> None:
    whole, resumed = whole_and_resumed(family, ["--ema", "4"], tmp_path)
    assert resumed == whole
    plain = run_here(*FAMILIES[family], "--ema", "0", "--out", "plain", cwd=tmp_path)
    assert average_bytes(tmp_path / "cut") == average_bytes(tmp_path / "whole")
    assert ended_well(plain, tmp_path / "plain") == generator_bytes(tmp_path / "whole")
    assert not (tmp_path / "plain" / AVERAGE).exists()
    assert average_bytes(tmp_path / "whole") != generator_bytes(tmp_path / "whole")


def test_one_worker_has_the_average_of_a_single_process(tmp_path: Path) -> None:
    worker, alone = one_worker_and_a_single_process(["--ema", "3"], tmp_path)
    assert worker == alone
    assert average_bytes(tmp_path / "worker") == average_bytes(tmp_path / "alone")


def test_the_average_is_what_is_sampled(tmp_path: Path) -> None:
    ended_well(run_here(*AVERAGED, "--out", "run", cwd=tmp_path), tmp_path / "run")

    def drawn(*flags: str) -> bytes:
        result = run_here("sample", "run", *flags, "-o", "drawn.png", cwd=tmp_path)
        assert result.status == 0, result
        return (tmp_path / "drawn.png").read_bytes()

    assert drawn() == (tmp_path / "run" / "samples" / "0000012.png").read_bytes()
    assert drawn("--raw") != drawn()
    # Going on without an average leaves no old one behind.
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"ema": 4.0', '"ema": 0'))
    more = run_here("standalone", "--resume", "run", "--iterations", "13", cwd=tmp_path)
    assert more.status == 0, more
    assert not (tmp_path / "run" / AVERAGE).exists()


@pytest.mark.slow
def test_the_average_is_what_is_scored(tmp_path: Path) -> None:
    flags = ["--eval-interval", "12", "--set", "eval_samples=80", "--out", "run"]
    ended_well(run_here(*AVERAGED, *flags, cwd=tmp_path), tmp_path / "run")
    told = [run_here("evaluate", "run", "-n", "80", *raw, cwd=tmp_path) for raw in ([], ["--raw"])]
    assert all(result.status == 0 for result in told), told
    assert "other generator" not in told[0].output
    assert "other generator (the average, not itself)" in told[1].output
    results = [row["scores"]["fid"] for row in read_events(tmp_path / "run", "scores")]
    assert results[0] == pytest.approx(results[1])
    assert results[0] != pytest.approx(results[2])


TINY = """
import torch
from torch import nn
from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM = (1, 3, 5), 4


class Partitioner(InMemoryPartitioner):
    reads_files = False

    def read(self, data_dir):
        return torch.zeros(64, *SHAPE), torch.zeros(64, dtype=torch.int64)


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 15), nn.Tanh(), nn.Unflatten(1, SHAPE))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(15))

    def forward(self, images):
        return images.flatten(1) @ self.weight
"""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--augment", "ada"], "--augment ada: pictures of tiny have 3×5 pixels, which cannot"),
        (["--spectral-norm"], "none of its layers has a matrix of weights"),
        (["--loss", "wasserstein"], "Did you mean --generator-loss or --discriminator-loss?"),
    ],
)
def test_what_the_data_sets_models_cannot_do_is_one_line(
    tmp_path: Path, flags: list[str], told: str
) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    command = ["train", "--dataset", "tiny", "--datasets-dir", ".", *QUICK, *flags]
    refused = run_here(*command, "--out", "run", cwd=tmp_path)
    assert refused.status == 2
    assert told in refused.errors.strip().splitlines()[-1]
    assert "Traceback" not in refused.errors
    assert not (tmp_path / "run").exists()
