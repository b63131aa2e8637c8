"""Runs with every architecture in other precisions, and with options for little data."""

from pathlib import Path

import numpy as np
import pytest

from mdgan.models.settings import ARCHITECTURES
from tests.integration.exactness import AVERAGE, IN_MEMORY, SMALL
from tests.processes import QUICK, read_status, run_here

SPREAD = ["train", *QUICK, "--world-size", "5", "--swap-interval", "3"]


WAYS = {
    "bf16": ["--precision", "bf16"],
    "fp16": ["--precision", "fp16"],
    "channels last": ["--set", "channels_last=true"],
    "r1, no average": ["--r1", "1", "--ema", "0"],
    "diffaugment": ["--augment", "diffaugment"],
    "compile": ["--set", "compile=true"],
    "vectorize": ["--vectorize"],
}


OF_PICTURES = [name for name in ARCHITECTURES if name not in ("dcgan3d", "table")]
RESIDUAL = ("sngan", "biggan")
"""Minutes pass until these are compiled."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [(n, way) for n in OF_PICTURES for way in WAYS if way != "compile" or n not in RESIDUAL],
)
def test_every_way_to_compute(tmp_path: Path, name: str, way: str) -> None:
    command = [*SPREAD, *IN_MEMORY, "--architecture", name, *SMALL, *WAYS[way], "--iterations", "4"]
    result = run_here(*command, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    assert read_status(tmp_path / "run")["iteration"] == 4
    with np.load(samples_of(tmp_path)) as arrays:
        assert np.isfinite(arrays["images"]).all()
    assert (tmp_path / "run" / AVERAGE).exists() == ("--ema" not in command)


def samples_of(folder: Path) -> Path:
    """Samples of the run there, as its folder alone says which models it has."""
    sampled = run_here("sample", "run", "-n", "4", "-o", "found.npz", cwd=folder)
    assert sampled.status == 0, sampled
    return folder / "found.npz"
