"""The version is the same wherever it is written, and says which machines train together."""

import re
import tomllib
from pathlib import Path

import pytest

import mdgan
from mdgan.cli import main
from mdgan.version import SERIES, __version__

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PLACES = {
    "CITATION.cff": r"^version: (\S+)$",
    "README.md": r"version = \{([\d.]+)\}",
    "CHANGELOG.md": r"\A# Changelog\n(?:\n[^#].*\n)*\n## (\S+) ",
    "docs/getting-started.md": r"mdgan-([\d.]+)-py3",
    "docs/faq.md": r"newer than this ([\d.]+\d)",
    "deploy/kubernetes/kustomization.yaml": r"newTag: (\S+)",
}
SERIES_PLACES = {
    "docs/faq.md": r"this machine ([\d.]+);",
    "docs/nvflare.md": r"and here is ([\d.]+)`",
}


@pytest.mark.parametrize("path", PLACES)
def test_files_name_this_version(path: str) -> None:
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert set(re.findall(PLACES[path], text, re.MULTILINE)) == {__version__}


@pytest.mark.parametrize("path", SERIES_PLACES)
def test_files_name_this_series(path: str) -> None:
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert set(re.findall(SERIES_PLACES[path], text)) == {SERIES}


def test_the_package_and_the_command_name_this_version(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["version"] == mdgan.__version__ == __version__
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"mdgan, version {__version__}\n"


def test_the_citation_has_the_date_of_the_changelog() -> None:
    dates = [
        re.search(pattern, (REPOSITORY / path).read_text(encoding="utf-8"))
        for path, pattern in (
            ("CITATION.cff", r'date-released: "([\d-]+)"'),
            ("CHANGELOG.md", rf"## {re.escape(__version__)} – ([\d-]+)"),
        )
    ]
    assert len({match and match[1] for match in dates}) == 1


def test_a_series_is_the_first_two_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+", SERIES)
    assert __version__.startswith(f"{SERIES}.")
