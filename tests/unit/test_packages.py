"""What a package may hold, and how a command may end where an extra is missing."""

import io
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.installs import TRIES, fault
from scripts.packages import REPOSITORY, differences, files_of_git

KEPT = {"LICENSE", "mdgan/py.typed", "datasets/digits.py"}
ONE_LINE = "mdgan: reports need matplotlib: pip install 'mdgan[plots]'"
NEEDS = "pip install 'mdgan[plots]'"


def test_a_wheel_holds_the_package_the_data_sets_and_nothing_else(tmp_path: Path) -> None:
    wheel = tmp_path / "mdgan-1.0-py3-none-any.whl"
    metadata = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    names = ["mdgan/py.typed", "mdgan/shipped_datasets/digits.py"]
    names += [f"mdgan-1.0.dist-info/{name}" for name in metadata]
    with zipfile.ZipFile(wheel, "w") as file:
        for name in names:
            file.writestr(name, "")
    assert differences(wheel, KEPT) == []
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("mdgan/run.token", "")
    assert differences(wheel, KEPT | {"mdgan/report/page.css"}) == [
        f"{wheel.name} lacks mdgan/report/page.css",
        f"{wheel.name} holds mdgan/run.token, which is no file of git",
    ]


def test_a_source_archive_holds_all_files_of_git(tmp_path: Path) -> None:
    archive = tmp_path / "mdgan-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name in ("PKG-INFO", "LICENSE", "mdgan/py.typed", ".env"):
            file.addfile(tarfile.TarInfo(f"mdgan-1.0/{name}"), io.BytesIO())
    assert differences(archive, KEPT) == [
        f"{archive.name} lacks datasets/digits.py",
        f"{archive.name} holds .env, which is no file of git",
    ]


@pytest.mark.parametrize(
    ("status", "errors", "refusal", "wrong"),
    [
        (0, "2026-11-30 a line of the log\n", "", ""),
        (2, f"writing the report\n{ONE_LINE}\n", NEEDS, ""),
        (0, "", NEEDS, "status 0"),
        (2, "mdgan: another reason\n", "", "status 2"),
        (2, "mdgan: another reason\n", NEEDS, "it says"),
        (2, f"{ONE_LINE}\n{ONE_LINE}\n", NEEDS, "it says"),
        (2, f"Traceback (most recent call last):\n{ONE_LINE}\n", NEEDS, "a traceback"),
    ],
)
def test_how_a_command_must_end(status: int, errors: str, refusal: str, wrong: str) -> None:
    told = fault(status, errors, refusal)
    assert told.startswith(wrong)
    assert bool(told) == bool(wrong)


def test_a_command_is_tried_for_each_extra_that_mdgan_itself_asks_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for_developers = {"dev", "docs", "fuzz"}
    asks_for_none = {"notebooks", "nvflare", "nvidia"}
    tried = {case.extra for case in TRIES if case.extra}
    assert tried == project["optional-dependencies"].keys() - for_developers - asks_for_none


@pytest.mark.parametrize("is_good", [True, False])
def test_the_check_of_packages_ends_with_its_result(tmp_path: Path, is_good: bool) -> None:
    archive = tmp_path / "mdgan-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name in () if not is_good else (*files_of_git(), "PKG-INFO"):
            file.addfile(tarfile.TarInfo(f"mdgan-1.0/{name}"))
    command = [sys.executable, "-m", "scripts.packages", str(archive)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert (ended.returncode == 0) == is_good, ended.stderr
    assert ("lacks mdgan/__init__.py" in ended.stderr) != is_good
