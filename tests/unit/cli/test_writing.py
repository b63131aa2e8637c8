"""Commands that write secrets, and commands that meet a full disk."""

import errno
import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from mdgan.cli.credentials import new
from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings, read_identity
from tests.processes import run_here


def test_credentials_are_written_for_their_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = set()
    for name in ("one", "two"):
        path = tmp_path / name
        result = CliRunner().invoke(new, [str(path)], catch_exceptions=False)
        assert result.exit_code == 0
        assert str(path) in result.output
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        identity = read_identity(LaunchSettings(credentials=str(path)).links)
        assert identity is not None
        assert identity().key.decode() not in result.output
        keys.add(identity().key)
    assert len(keys) == 2
    assert capsys.readouterr().err == ""


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        CliRunner().invoke(new, [str(path)], catch_exceptions=False)
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write there"):
        CliRunner().invoke(new, [str(tmp_path / "no" / "file")], catch_exceptions=False)


def test_a_full_disk_leaves_no_half_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    result = run_here("credentials", "new", "run.cred", cwd=tmp_path)
    message = "cannot write there (No space left on device); free some space there"
    assert (result.status, result.errors.count("\n")) == (2, 1)
    assert f"mdgan: run.cred: {message}" in result.errors
    assert list(tmp_path.iterdir()) == []


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_command_meets_a_full_disk_with_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.inspect.datasets.list_datasets", full_disk)
    result = run_here("datasets", cwd=tmp_path)
    assert (result.status, result.errors.count("\n")) == (1, 1)
    assert "a temporary file: cannot write there (No space left on device)" in result.errors


@pytest.mark.parametrize("file", ["generation-1.json", "config.json", "run.json"])
def test_a_training_that_finds_a_full_disk_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if file in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            full_disk()
        fsync(descriptor)

    command = ["train", "--transport", "memory", "--iterations", "1", "--out", "run"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        result = run_here(*command, cwd=tmp_path)
    message = (
        "mdgan: --out run: cannot write there (No space left on device); free some space there"
    )
    assert result.status == 2, result
    assert message in result.errors
    assert list(tmp_path.iterdir()) == []
    assert run_here(*command, cwd=tmp_path).status == 0
