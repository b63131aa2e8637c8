"""Other users read the folders in which hosts and servers keep what workers have learnt."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mdgan.launch.claim import host_folder, run_key
from mdgan.storage import whole_file
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.state_file import write_state
from tests.claims.registry import claim
from tests.processes import QUICK, ended_well, run_here
from tests.unit.storage.small import make_state, save_checkpoint

NOBODY = 65534


def open_ones(folder: Path) -> list[str]:
    """The folder, and what is in it, that other users can look into."""
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@claim(
    "private-states",
    "Checkpoints, canaries and what an audit reconstructs are files of mode 0600 in "
    "folders of mode 0700, whatever your umask",
)
def test_no_other_user_reads_the_states_of_a_run(tmp_path: Path) -> None:
    flags = ["train", "--world-size", "3", *QUICK, "--transport", "memory", "--out", "run"]
    flags += ["--workers-per-host", "1", "--checkpoint-interval", "6"]
    ended_well(run_here(*flags, cwd=tmp_path), tmp_path / "run")
    states = tmp_path / "run" / "checkpoints"
    assert len([*states.rglob("*.safetensors")]) >= 3
    assert open_ones(states) == []
    assert open_ones(tmp_path / "run") != [], "the rest has what the umask gives"


@pytest.mark.usefixtures("_umask")
def test_a_folder_of_an_older_version_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the first byte is written it is closed already; no moment is left to look."""
    folder = tmp_path / "run" / "checkpoints"
    for each in (folder, folder / "0000010"):
        each.mkdir(parents=True)
        each.chmod(0o777)
    notes = list[list[str]]()
    created = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        number = created(path, flags, mode, **more)
        if flags & os.O_CREAT:
            notes.append(open_ones(folder))
        return number

    monkeypatch.setattr(whole_file.os, "open", watched)  # type: ignore[attr-defined] # its own import
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.make_folder_of(10)
    save_checkpoint(checkpoints, 10)
    assert notes == [[]] * 4  # three states and the manifest


@pytest.mark.usefixtures("_umask")
def test_a_checkpoint_that_borrows_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file system has no links, and files are copied."""
    monkeypatch.setattr(Path, "hardlink_to", lambda *_: (_ for _ in ()).throw(OSError()))
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    manifest = save_checkpoint(checkpoints, 10)
    checkpoints.make_folder_of(20)
    checkpoints.lend(10, 20, manifest.files.values())
    assert (tmp_path / "checkpoints" / "0000020" / worker_file(1)).exists()
    assert open_ones(tmp_path / "checkpoints") == []


def as_nobody(act: Any) -> str:
    """What comes of it when another user does it."""
    os.seteuid(NOBODY)
    try:
        act()
    except OSError as error:
        return str(error)
    finally:
        os.seteuid(0)
    return "done"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_nothing_is_written_to_an_open_folder_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "0000010"
    folder.mkdir()
    folder.chmod(0o777)
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o111)
    told = as_nobody(lambda: write_state(folder, SERVER_FILE, make_state()))
    assert "other users can look into it, and it is not this user's to close" in told
    assert str(folder) in told
    assert not [*folder.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_host_of_another_user_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, run_id = Path("runs", "victim"), "5" * 32
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"run_id": run_id, "run_key": run_key(run_id, None)}))
    welcome = {"run": "victim", "run_id": run_id, "generation": 1, "iteration": 0}
    assert host_folder(welcome, (1,), None, None) == run
    os.chown(run, NOBODY, NOBODY)
    assert host_folder(welcome, (1,), None, None) == run.with_name(
        f"victim-{run_key(run_id, None)}"
    )
