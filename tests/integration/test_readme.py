"""What the README promises."""

import re
from pathlib import Path

import pytest

from mdgan.cli import main
from tests.processes import REPOSITORY, read_status, run_here

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_data_set_recipe(tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (command,) = re.findall(r"^mdgan (train --datasets-dir .*)$", README, re.MULTILINE)
    (tmp_path / "my-data").mkdir()
    (tmp_path / "my-data" / "stripes.py").write_text(recipe)
    few = ["--iterations", "3", "--transport", "memory", "--out", "run"]
    result = run_here(*command.split(), *few, cwd=tmp_path)
    assert result.status == 0, result
    assert read_status(tmp_path / "run")["iteration"] == 3


def test_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    helps = ""
    commands = (
        *("plan", "train", "standalone", "join", "standby", "token", "chaos"),
        *("compare", "sample", "evaluate", "report", "watch", "trace", "datasets"),
    )
    for command in (*([name] for name in commands), ["datasets", "show"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        helps += capsys.readouterr().out
    others = {"--nproc-per-node", "--help"}  # torchrun's, and everybody's
    for name in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - others:
        assert name in helps, name


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)`", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_exist() -> None:
    for path in set(re.findall(r"\]\(([^)#]+)\)|`((?:mdgan|datasets|scripts)/[\w./-]*)`", README)):
        assert (REPOSITORY / (path[0] or path[1])).exists(), path
