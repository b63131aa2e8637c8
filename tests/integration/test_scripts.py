"""The launch scripts, in the report's convention (Darmanger and Gombas, section 6.5)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import QUICK, REPOSITORY, Finished, finish, start

SCRIPTS = REPOSITORY / "scripts"


def script(name: str, *arguments: str, cwd: Path, **environment: str) -> Finished:
    command = [str(SCRIPTS / name), *arguments]
    return finish(start(command, cwd, python=sys.executable, **environment))


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def test_distributed_from_any_folder(tmp_path: Path) -> None:
    result = script(
        "run-distributed.sh",
        *["0..3", *QUICK, "--master-port", "0", "--generator-optimizer", "beta1=0.4"],
        cwd=tmp_path,
        world_size="4",
        swap_interval="2",
        generator_optimizer="beta1=0.3",
        out="here",
    )
    assert result.status == 0, result
    config = config_of(tmp_path / "here")
    assert (config["world_size"], config["swap_interval"]) == (4, 2)  # from the environment
    assert "beta1=0.4" in config["generator_optimizer"]  # flags after the ranks win
    assert config["seed"] == 0  # as with `mdgan train`


@pytest.mark.slow
def test_standalone_from_any_folder(tmp_path: Path) -> None:
    result = script(
        "run-standalone.sh", *QUICK, cwd=tmp_path, out="alone", generator_optimizer="lr=0.001"
    )
    assert result.status == 0, result
    assert "lr=0.001" in config_of(tmp_path / "alone")["generator_optimizer"]


def test_ranks_are_asked_for(tmp_path: Path) -> None:
    result = script("run-distributed.sh", cwd=tmp_path)
    assert result.status == 2
    assert result.errors.startswith("usage: run-distributed.sh RANKS")
