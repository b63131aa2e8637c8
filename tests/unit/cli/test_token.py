import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdgan.cli.token import token
from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings, read_token


def test_a_secret_of_its_own_is_written_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = set()
    for name in ("one", "two"):
        path = tmp_path / name
        result = CliRunner().invoke(token, [str(path)], catch_exceptions=False)
        assert result.exit_code == 0
        assert f"--join-token {path}" in result.output
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert len(text.strip()) == 64
        assert int(text, 16) > 0
        secrets.add(read_token(LaunchSettings(join_token=str(path))))
    assert len(secrets) == 2
    assert text.strip() not in result.output
    assert capsys.readouterr().err == ""


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        CliRunner().invoke(token, [str(path)], catch_exceptions=False)
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        CliRunner().invoke(token, [str(tmp_path / "no" / "file")], catch_exceptions=False)
