"""Runs with every architecture: resumed, spread, one worker beside none, in other arithmetic."""

from pathlib import Path

import numpy as np
import pytest

from mdgan.models.settings import ARCHITECTURES
from tests.integration.exactness import (
    FAMILIES,
    IN_MEMORY,
    mostly_slow,
    one_worker_and_a_single_process,
    spread_and_together,
    whole_and_resumed,
)
from tests.integration.test_little_data import AVERAGE
from tests.processes import QUICK, read_status, run_here

SMALL = ["--width", "4", "--batch-size", "4"]
SPREAD = ["train", *QUICK, "--world-size", "5", "--swap-interval", "3"]


def flags(name: str) -> list[str]:
    return ["--architecture", name, *SMALL]


PAIRS = [(family, name) for family in FAMILIES for name in ARCHITECTURES]


@pytest.mark.parametrize(("family", "name"), mostly_slow(PAIRS, [("mdgan", "acgan")]))
def test_resumed_equals_never_stopped(tmp_path: Path, family: str, name: str) -> None:
    """The run's folder alone says which models it has."""
    whole, resumed = whole_and_resumed(family, flags(name), tmp_path)
    assert resumed == whole


@pytest.mark.parametrize("name", mostly_slow(ARCHITECTURES, ["acgan"]))
def test_one_worker_equals_a_single_process(tmp_path: Path, name: str) -> None:
    worker, alone = one_worker_and_a_single_process(flags(name), tmp_path)
    assert worker == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_any_spread_gives_the_same_generator(tmp_path: Path, name: str) -> None:
    spread, together = spread_and_together(flags(name), tmp_path)
    assert spread == together


WAYS = {
    "bf16": ["--precision", "bf16"],
    "fp16": ["--precision", "fp16"],
    "channels last": ["--set", "channels_last=true"],
    "r1, ema": ["--r1", "1", "--ema", "5"],
    "diffaugment": ["--augment", "diffaugment"],
    "compile": ["--compile"],
    "vectorize": ["--vectorize"],
}


RESIDUAL = ("sngan", "biggan")
"""Minutes pass until these are compiled."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [(n, way) for n in ARCHITECTURES for way in WAYS if way != "compile" or n not in RESIDUAL],
)
def test_every_way_to_compute(tmp_path: Path, name: str, way: str) -> None:
    command = [*SPREAD, *IN_MEMORY, *flags(name), *WAYS[way], "--iterations", "4"]
    found = run_here(*command, "--out", "run", cwd=tmp_path)
    assert found.status == 0, found
    assert read_status(tmp_path / "run")["iteration"] == 4
    with np.load(samples_of(tmp_path)) as arrays:
        assert np.isfinite(arrays["images"]).all()
    assert (tmp_path / "run" / AVERAGE).exists() == ("--ema" in command)


def samples_of(folder: Path) -> Path:
    """Samples of the run there, as its folder alone says which models it has."""
    sampled = run_here("sample", "run", "-n", "4", "--npz", "-o", "found.npz", cwd=folder)
    assert sampled.status == 0, sampled
    return folder / "found.npz"
