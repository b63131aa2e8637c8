"""The recipes of docs/extending.md, followed."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import (
    REPOSITORY,
    finish,
    generator_bytes,
    read_status,
    run_here,
    start_anew,
)
from tests.registered import forget_registered  # noqa: F401 - a fixture for every test here

PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
FEW = ["--iterations", "3", "--transport", "memory", "--out", "run"]


def blocks(recipe: str, language: str) -> list[tuple[str, str]]:
    """The code of a recipe: (title, text) of every block of a language."""
    (section,) = re.findall(rf"^## {recipe}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    found = re.findall(rf'```{language}(?: title="(.*?)")?\n(.*?)```', section, re.DOTALL)
    assert found, f"{recipe}: no block of {language}"
    return found


def command(recipe: str) -> list[str]:
    """The arguments of the `mdgan` command that a recipe ends with."""
    ((_, line),) = blocks(recipe, "bash")
    assert line.startswith("mdgan ")
    return line.split()[1:]


@pytest.mark.parametrize("recipe", ["A data set", "An architecture", "A loss", "An optimizer"])
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


def trained(folder: Path, *flags: str) -> bytes:
    """The generator of a run with the mdgan in a folder."""
    begun = [sys.executable, "-m", "mdgan", "train", *flags, *FEW]
    result = finish(start_anew(begun, folder, PYTHONPATH=str(folder)))
    assert result.status == 0, result
    assert read_status(folder / "run")["iteration"] == 3
    return generator_bytes(folder / "run")


@pytest.mark.slow
def test_a_partition_and_a_tracker(copied: Path) -> None:
    for recipe in ("A partition", "A tracker"):
        for path, diff in blocks(recipe, "diff"):
            patch(copied, path, diff)
    partition = command("A partition")
    flags = partition[partition.index("--partition") :][:2]
    trained(copied, *flags, *command("A tracker")[-2:])
    table = (copied / "run" / "numbers.csv").read_text(encoding="utf-8")
    assert re.search(r"^3,loss/generator,[0-9.]+$", table, re.MULTILINE)


@pytest.mark.slow
def test_a_regulariser(copied: Path) -> None:
    ((path, code),) = blocks("A regulariser", "python")
    (copied / path).write_text(code, encoding="utf-8")
    for path, diff in blocks("A regulariser", "diff"):
        patch(copied, path, diff)
    program, *flags = command("A regulariser")
    assert program == "train"
    regularised = trained(copied, *flags)
    plain = run_here("train", "--vectorize", *FEW[:-1], "plain", cwd=copied)
    assert plain.status == 0, plain
    assert generator_bytes(copied / "plain") != regularised
    merged = ["train", "--r2", "1", "--merge-halves", *FEW]
    begun = start_anew([sys.executable, "-m", "mdgan", *merged], copied, PYTHONPATH=str(copied))
    assert "--r2 1 needs a pass over generated samples alone" in finish(begun).errors


def recipes(folder: Path) -> list[str]:
    """Follows all recipes for mdgan's own files in a folder; the files that are new or changed."""
    changed: dict[str, None] = {}
    for recipe in ("A regulariser", "A partition", "A tracker"):
        if recipe == "A regulariser":
            ((path, code),) = blocks(recipe, "python")
            (folder / path).write_text(code, encoding="utf-8")
            changed[path] = None
        for path, diff in blocks(recipe, "diff"):
            patch(folder, path, diff)
            changed[path] = None
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return [*changed]


def passes(folder: Path, *command: str) -> None:
    result = finish(start_anew([sys.executable, "-m", *command], folder, PYTHONPATH=str(folder)))
    assert result.status == 0, result


def test_what_recipes_change_is_formatted_and_clean(copied: Path) -> None:
    changed, own = recipes(copied), []
    for recipe in ("A data set", "An architecture", "A loss", "An optimizer"):
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
