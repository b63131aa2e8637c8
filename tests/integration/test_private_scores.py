"""With differential privacy no network of a run's folder has learnt from workers' samples."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mdgan.storage.state_file import read_tensors
from tests.claims.registry import claim
from tests.processes import Finished, read_events, run_here

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

DATA = """
import torch
from torch import nn

from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM = (1, 8, 8), 4


def bars(number, num_classes, seed):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % num_classes
    images = 0.1 * torch.randn(number, *SHAPE, generator=random) - 0.5
    images[torch.arange(number), 0, 2 * labels] += 1
    return images.clamp(-1, 1), labels


class Partitioner(InMemoryPartitioner):
    reads_files = False

    def read(self, _folder):
        return bars(400, 3, 1)


class HeldOut(InMemoryPartitioner):
    reads_files = False

    def read(self, _folder):
        return bars(OTHERS, 2, 2)


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 64), nn.Tanh(), nn.Unflatten(1, SHAPE))


class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 1))
"""
"""Workers have a class that held-out samples have not: a network that knows it has seen theirs."""

FLAGS = [
    *("train", "--dataset", "bars", "--datasets-dir", ".", "--transport", "memory"),
    *("--threads", "1", "--batch-size", "8", "--sample-interval", "0"),
    *("--iterations", "4", "--eval-interval", "4", "--set", "eval_samples=100", "--out", "run"),
]
UNITS = {
    "sample": ["--world-size", "3", "--dp-noise", "2", "--dp-delta", "0.001"],
    "client": [
        *("--algorithm", "fl-gan", "--world-size", "5", "--round-iterations", "2"),
        *("--dp-unit", "client", "--dp-noise", "2", "--dp-delta", "0.1"),
    ],
}


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own classifiers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def trained(folder: Path, *flags: str, others: int = 202) -> Finished:
    (folder / "bars.py").write_text(DATA.replace("OTHERS", str(others)))
    result = run_here(*FLAGS, *flags, cwd=folder)
    assert result.status == 0, result
    return result


def answered(folder: Path, command: str, *flags: str) -> dict[str, Any]:
    result = run_here(command, "run", "--json", "-n", "100", *flags, cwd=folder)
    assert result.status == 0, result
    output: dict[str, Any] = json.loads(result.output)
    return output


def cached(folder: Path) -> list[Path]:
    return list((folder / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize("unit", [pytest.param("sample", marks=pytest.mark.slow), "client"])
@claim("scores-network", "The network that scores look through has seen no worker's sample.")
@claim("no-features", "not told: scores compare with held-out samples")
def test_the_network_learns_from_one_half_of_held_out_samples_and_judges_by_the_other(
    tmp_path: Path, unit: str
) -> None:
    trained(tmp_path, *UNITS[unit])
    kept, real = tmp_path / "run" / "extractor.safetensors", tmp_path / "run" / "real.safetensors"
    name = "classifier of half of the held-out samples of bars"
    _, fields = read_tensors(kept)
    assert (fields["name"], fields["classes"]) == (name, 2)
    assert not cached(tmp_path)
    (scored,) = read_events(tmp_path / "run", "scores")
    assert scored["n_real"] == scored["n_held_out"] == 100
    assert "fid" in scored["scores"]
    evaluated = answered(tmp_path, "evaluate")
    assert evaluated["extractor"] == scored["extractor"]
    assert evaluated["scores"] == scored["scores"]
    for file in (kept, real):
        file.unlink()
    anew = answered(tmp_path, "evaluate")
    assert (anew["n_real"], anew["extractor"]["classes"]) == (100, 2)
    audit = answered(tmp_path, "audit", "--steps", "0")
    assert audit["extractor"] == name
    assert audit["generator"][0]["membership"]["others"] == 100
    assert not cached(tmp_path)


@pytest.mark.slow
@claim("scores-network", "The network that scores look through has seen no worker's sample.")
def test_a_network_of_workers_samples_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    trained(tmp_path, "--world-size", "3")
    (known,) = cached(tmp_path)
    _, before = read_tensors(known)
    assert before["classes"] == 3
    shutil.move(tmp_path / "run", tmp_path / "open")
    trained(tmp_path, *UNITS["sample"])
    kept = tmp_path / "run" / "extractor.safetensors"
    assert read_tensors(kept)[1]["classes"] == 2
    assert cached(tmp_path) == [known]


@pytest.mark.parametrize("others", [pytest.param(0, marks=pytest.mark.slow), 60])
@claim("scores-network", "The network that scores look through has seen no worker's sample.")
def test_with_too_few_held_out_samples_the_network_has_learnt_nothing(
    tmp_path: Path, others: int
) -> None:
    trained(tmp_path, *UNITS["sample"], "--dp-disclose", "features", others=others)
    kept, _ = read_tensors(tmp_path / "run" / "extractor.safetensors")
    assert not kept
    (scored,) = read_events(tmp_path / "run", "scores")
    assert (scored["n_real"], scored["n_held_out"]) == (400, others)
    assert answered(tmp_path, "evaluate")["scores"] == scored["scores"]
    if others:
        audit = answered(tmp_path, "audit", "--steps", "0")
        assert audit["extractor"] == "network of random weights"
        assert audit["generator"][0]["membership"]["others"] == others
    assert not cached(tmp_path)


def test_where_nobody_tells_and_nothing_is_held_out_one_line_says_so(tmp_path: Path) -> None:
    result = trained(tmp_path, *UNITS["sample"], others=0)
    assert result.errors.count("scores are left out") == 1
    assert "workers tell nothing of their samples, and the server holds none" in result.errors
    assert read_events(tmp_path / "run", "scores") == []
