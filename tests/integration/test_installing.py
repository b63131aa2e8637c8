"""What the Makefile installs, what the wheel holds, and what git ignores in a checkout."""

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from scripts.packages import differences, files_of_git
from tests.processes import REPOSITORY


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )


def test_users_get_neither_tests_nor_fuzzing(tmp_path: Path) -> None:
    commands = make("--dry-run", "install", f"VENV={tmp_path}").stdout
    assert "--require-hashes" in commands
    assert "--index-url" not in commands
    lock = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    brought = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    assert brought >= {"torch", "matplotlib", "torch-fidelity", "tensorboard"}
    assert not brought & {"pytest", "hypothesis", "atheris", "mypy"}


def test_torch_without_cuda_comes_from_one_index_before_all_else(tmp_path: Path) -> None:
    commands = make("--dry-run", "install", "TORCH=cpu", f"VENV={tmp_path}").stdout.splitlines()
    pip = [line for line in commands if "pip install" in line]
    assert "--no-deps --index-url https://download.pytorch.org/whl/cpu torch torchvision" in pip[0]
    assert "--index-url" not in pip[1]


def test_another_torch_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = make("install", "TORCH=gpu", f"VENV={tmp_path / 'venv'}")
    assert refused.returncode != 0
    assert refused.stderr.startswith("TORCH=gpu: choose cpu or cuda\n")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("name", ["run.token", "deep/er/run.cred", "server.key", "runs/a/run.json"])
def test_git_ignores_secrets_and_runs(name: str) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "check-ignore", "--quiet", name]
    assert subprocess.run(command, cwd=REPOSITORY, timeout=300, check=False).returncode == 0


@pytest.mark.slow
def test_the_wheel_brings_the_data_sets_to_a_machine_without_a_checkout(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip, str(REPOSITORY)], check=True, timeout=300, capture_output=True)
    (wheel,) = tmp_path.glob("mdgan-*.whl")
    assert differences(wheel, files_of_git()) == []
    venv.create(tmp_path / "env", system_site_packages=True, with_pip=False)
    python = str(tmp_path / "env" / "bin" / "python")
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, timeout=300, capture_output=True)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    assert (packages / "mdgan" / "shipped_datasets" / "digits.py").is_file()
    assert (packages / "mdgan" / "py.typed").is_file()


def test_every_extra_is_in_the_table_with_what_brings_it() -> None:
    page = (REPOSITORY / "docs" / "getting-started.md").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (`.*`) \| .* \| (?:`(make [a-z-]+)`|pip alone) \|$", page, re.MULTILINE)
    told = {extra: target for names, target in rows for extra in re.findall("`(.*?)`", names)}
    assert told.keys() == project["optional-dependencies"].keys()
    locked = set(re.findall(r"--extra ([a-z]+)", make("--dry-run", "-B", "lock").stdout))
    assert locked == {extra for extra, of in told.items() if of == "make install"}
    line = next(x for x in make("--dry-run", "-B", "install-dev").stdout.splitlines() if "'.[" in x)
    brought = set(line.partition("'.[")[2].partition("]")[0].split(","))
    assert brought == {extra for extra, of in told.items() if of}
    wheel = f"./mdgan-{project['version']}-py3-none-any.whl["
    assert wheel in page
    for notebook in (REPOSITORY / "examples" / "notebooks").glob("*.ipynb"):
        cell = json.loads(notebook.read_text(encoding="utf-8"))["cells"][1]
        assert "".join(cell["source"]) == f"# %pip install '{wheel}plots]'"
