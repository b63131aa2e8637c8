"""Follows the recipes of docs/extending.md."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from mdgan.engine.parts import HostPart, ServerPart
from mdgan.transport.host_end import HostTransport
from mdgan.transport.server_end import Line, ServerTransport
from tests.processes import REPOSITORY, finish, read_status, run_here, start_anew
from tests.registered import forget_registered  # noqa: F401 - a fixture for every test here

PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
DATASET_FILES = ["A data set", "An architecture", "A loss"]
FEW = ["--iterations", "3", "--transport", "memory", "--out", "run"]


def blocks(recipe: str, language: str) -> list[tuple[str, str]]:
    """The code of a recipe: (title, text) of every block of a language."""
    (section,) = re.findall(rf"^## {recipe}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    match = re.findall(rf'```{language}(?: title="(.*?)")?\n(.*?)```', section, re.DOTALL)
    assert match, f"{recipe}: no block of {language}"
    return match


def command(recipe: str) -> list[str]:
    """The arguments of the `mdgan` command that a recipe ends with."""
    ((_, line),) = blocks(recipe, "bash")
    assert line.startswith("mdgan ")
    return line.split()[1:]


@pytest.mark.parametrize("recipe", DATASET_FILES)
def test_a_dataset_file(recipe: str, tmp_path: Path) -> None:
    ((path, code),) = blocks(recipe, "python")
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).write_text(code, encoding="utf-8")
    result = run_here(*command(recipe), *FEW, cwd=tmp_path)
    assert result.status == 0, result
    assert read_status(tmp_path / "run")["iteration"] == 3


def patch(folder: Path, path: str, diff: str) -> None:
    """Replaces the lines of a file that a block shows by those that it wants."""
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    text = (folder / path).read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path} does not have once:\n{before}"
    (folder / path).write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """mdgan and its data sets, to be changed."""
    unchanged = shutil.ignore_patterns("__pycache__")
    for folder in ("mdgan", "datasets"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=unchanged)
    return tmp_path


def recipes(folder: Path) -> list[str]:
    """Follows the recipe for mdgan's own files in a folder; the files that are changed."""
    changed = blocks("A partition", "diff")
    for path, diff in changed:
        patch(folder, path, diff)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return [*dict(changed)]


def passes(folder: Path, *command: str) -> None:
    result = finish(start_anew([sys.executable, "-m", *command], folder, PYTHONPATH=str(folder)))
    assert result.status == 0, result


@pytest.mark.slow
def test_a_partition(copied: Path) -> None:
    recipes(copied)
    arguments = command("A partition")
    scheme = arguments[arguments.index("--partition") :][:2]
    passes(copied, "mdgan", "train", *scheme, *FEW)
    assert read_status(copied / "run")["iteration"] == 3


def test_what_recipes_change_is_formatted_and_clean(copied: Path) -> None:
    changed, own = recipes(copied), []
    for recipe in DATASET_FILES:
        ((path, code),) = blocks(recipe, "python")
        own.append(str(copied / recipe / path))
        Path(own[-1]).parent.mkdir(parents=True)
        Path(own[-1]).write_text(code, encoding="utf-8")
    passes(copied, "ruff", "check", "--isolated", "--no-cache", *own)
    passes(copied, "ruff", "check", "--no-cache", *changed)
    passes(copied, "ruff", "format", "--check", "--no-cache", *changed, *own)


@pytest.mark.slow
def test_what_recipes_change_has_types(copied: Path) -> None:
    changed = recipes(copied)
    cache = REPOSITORY / ".mypy_cache"
    if cache.is_dir():  # of `make check`: the rest of mdgan is not checked anew
        shutil.copytree(cache, copied / ".mypy_cache")
    passes(copied, "mypy", *changed)


def test_the_parts_of_a_family_are_those_of_the_toy() -> None:
    toy = (REPOSITORY / "tests" / "toy_family.py").read_text(encoding="utf-8")
    for _, code in blocks("A family", "python"):
        assert code in toy


def test_files_that_the_page_names_exist() -> None:
    paths = re.findall(r"`((?:mdgan|tests|datasets)/[\w/]+(?:\.py|/))`", PAGE)
    assert len(paths) > 10
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


NAMES: dict[type, str] = {
    HostTransport: "_put _lay_out _fetch close take_in lose_server",
    ServerTransport: "decide let_in take_in lose",
    Line: "put end cut",
    ServerPart: "advance on_lost progress go_on",
    HostPart: "handlers rules learners",
}


def test_names_of_transports_and_families_exist() -> None:
    tables = "".join(PAGE.split("## A transport")[1:])
    for owner, names in NAMES.items():
        for name in names.split():
            assert hasattr(owner, name) or name in owner.__annotations__
            assert re.search(rf"[`.]{name}`", tables), name
