"""Another user of the machine knows the folder in which torch looks for compiled code."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mdgan.launch.checked import prepare
from mdgan.launch.given import Given
from mdgan.launch.guests import of_the_run
from tests.claims.registry import claim
from tests.processes import QUICK, check_refused, ended_well, run

TELLS = """
import json, os, pathlib, torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir
from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM = (1, 4, 4), 2

def tell():
    told = [cache_dir(), triton_cache_dir(0)]
    pathlib.Path(f"told-{os.getpid()}.json").write_text(json.dumps(told))

class Partitioner(InMemoryPartitioner):
    reads_files = False

    def read(self, data_dir):
        return torch.zeros(64, *SHAPE), torch.zeros(64, dtype=torch.long)

class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 16), nn.Tanh(), nn.Unflatten(1, SHAPE))
        tell()

class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 1))
        tell()
"""
FLAGS = ["--dataset", "tells", "--datasets-dir", ".", "--iterations", "2", "--threads", "1"]
NOBODY = 65534


def folders_of_torch(folder: Path, *flags: str, **variables: Any) -> set[str]:
    """Where the processes of a run look for what torch has compiled."""
    (folder / "tells.py").write_text(TELLS)
    (folder / "tmp").mkdir(exist_ok=True)
    changes: dict[str, Any] = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        **variables,
    }
    command = ["train", *FLAGS, "--world-size", "3", *flags, "--out", "run"]
    ended_well(run(*command, cwd=folder, **changes), folder / "run", 2)
    record = [json.loads(path.read_text()) for path in folder.glob("told-*.json")]
    assert flags or len(record) > 1, "the server and its hosts are processes of their own"
    return {place for places in record for place in places}


def test_torch_looks_into_a_folder_of_this_user_alone(tmp_path: Path) -> None:
    own_file = tmp_path / "cache" / "mdgan" / "compiled"
    assert folders_of_torch(tmp_path) == {str(own_file / "torch"), str(own_file / "triton")}
    assert stat.S_IMODE(own_file.stat().st_mode) == 0o700
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("how", ["open to all", "of another user", "a link", "below an open one"])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, how: str) -> None:
    own_file = tmp_path / "cache" / "mdgan" / "compiled"
    own_file.parent.mkdir(parents=True)
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own_file.symlink_to(tmp_path / "elsewhere")
    else:
        own_file.mkdir(mode=0o700)
    if how == "open to all":
        own_file.chmod(0o777)
    elif how == "below an open one":
        own_file.parent.chmod(0o777)
    elif how == "of another user":
        if os.geteuid() != 0:
            pytest.skip("needs root to give a folder to another user")
        os.chown(own_file, NOBODY, NOBODY)
    alone = [] if how == "open to all" else ["--transport", "memory"]
    told = {Path(place).parent for place in folders_of_torch(tmp_path, *alone)}
    assert len(told) == 1
    (new,) = told
    assert new.parent == tmp_path / "tmp"
    assert new.name.startswith("mdgan-")
    assert not new.exists(), "it goes with the command"
    assert not list(own_file.resolve().iterdir())


def test_what_the_user_says_stays(tmp_path: Path) -> None:
    mine = {name: str(tmp_path / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    assert folders_of_torch(tmp_path, "--transport", "memory", **mine) == set(mine.values())
    assert not (tmp_path / "cache" / "mdgan" / "compiled").exists()


def test_without_any_private_folder_nothing_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o777)
    changes: dict[str, Any] = {"XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(tmp_path / "tmp")}
    flags = ["--transport", "memory", "--world-size", "2", *QUICK, "--out"]
    refused = run("train", *flags, "one", "--set", "compile=true", cwd=tmp_path, **changes)
    check_refused(refused, f"TMPDIR {tmp_path / 'tmp'}", "chmod +t", lines=1)
    assert run("train", *flags, "other", cwd=tmp_path, **changes).status == 0, (
        "without, all is well"
    )


@claim("host-settings", "A server sets no setting of a host's machine")
def test_no_server_makes_a_host_compile() -> None:
    said: dict[str, Any] = {"world_size": 3, "iterations": 10}
    identity = prepare(Given([{**said, "compile": True}])).identity
    assert identity == prepare(Given([said])).identity, "each machine decides for itself"
    assert "compile" not in of_the_run({**identity, "compile": True})
