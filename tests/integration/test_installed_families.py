"""Algorithms, kinds of samples and architectures from other installed packages."""

import json
import re
import sys
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from tests.processes import REPOSITORY, Finished, finish, generator_bytes, read_status, start_anew


def entry_points() -> str:
    """Those of the recipe, as an installed package has them."""
    page = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r'```toml title="pyproject.toml"\n(.*?)```', page, re.DOTALL)
    groups = tomllib.loads(recipe)["project"]["entry-points"]
    lines = [[f"[{group}]", *map(" = ".join, points.items())] for group, points in groups.items()]
    return "\n".join(chain.from_iterable(lines))


MORE = """
from torch import nn

from mdgan.models.registry import Architecture
from mdgan.samples.kinds import Tensors


class Spectra(Tensors):
    name = "spectra"


def tiny(shape, num_classes, width):
    size = shape[0] * shape[1] * shape[2]

    def generator():
        return nn.Sequential(nn.Linear(5, size), nn.Tanh(), nn.Unflatten(1, shape))

    def discriminator():
        return nn.Sequential(nn.Flatten(), nn.Linear(size, 1))

    return generator, discriminator, 5


SPECTRA, TINY = Spectra(), Architecture("tiny", tiny, 8)
"""
SPECTRA = """
import torch
from torch import nn
from mdgan.data import InMemoryPartitioner

SHAPE, Z_DIM, KIND = (6,), 4, "spectra"


class Partitioner(InMemoryPartitioner):
    def read(self, data_dir):
        return torch.rand(64, 6) * 2 - 1, torch.zeros(64, dtype=torch.int64)


def Generator():
    return nn.Linear(4, 6)


def Discriminator():
    return nn.Linear(6, 1)
"""
FEW = ["--iterations", "2", "--threads", "1", "--set", "eval_samples=64", "--eval-interval", "0"]
FEW += ["--transport", "memory", "--world-size", "3", "--batch-size", "4", "--dataset", "digits"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package, as pip leaves it."""
    package, about = tmp_path / "site" / "mdgan_toy", tmp_path / "site" / "mdgan_toy-1.2.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (package / "__init__.py").write_text("")
    toy = (REPOSITORY / "tests" / "toy_family.py").read_text(encoding="utf-8")
    own_name = toy.replace("tests.toy_family:BUILDER", "mdgan_toy.family:BUILDER")
    (package / "family.py").write_text(own_name, encoding="utf-8")
    (package / "more.py").write_text(MORE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mdgan-toy\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(entry_points())
    return tmp_path / "site"


def python(site: Path, *arguments: str) -> Finished:
    path = f"{site}:{REPOSITORY}"
    return finish(start_anew([sys.executable, *arguments], site.parent, PYTHONPATH=path))


def mdgan(site: Path, *arguments: str) -> Finished:
    return python(site, "-m", "mdgan", *arguments)


ONE_AFTER_ANOTHER = """
import contextlib, io, json, sys

from mdgan.cli import main

results = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                main(command)
            except SystemExit as ended:
                results.append([ended.code or 0, output.getvalue(), errors.getvalue()])
print(json.dumps(results))
"""


def one_after_another(site: Path, *commands: Sequence[str]) -> list[Finished]:
    """Runs commands in one new process, which imports torch and the package once."""
    ended = python(site, "-c", ONE_AFTER_ANOTHER, json.dumps(commands))
    assert ended.status == 0, ended
    return [Finished(*result) for result in json.loads(ended.output)]


def test_a_family_of_a_package_is_one_of_mdgans(site: Path) -> None:
    flags = ["--algorithm", "toy", "--toy-steps", "1", "--architecture", "tiny", *FEW]
    ended = one_after_another(
        site,
        ["train", *flags, "--out", "run"],
        ["sample", "run", "-n", "4", "-o", "four.png"],
        ["report", "run"],
        ["train", "--resume", "run", "--iterations", "3"],
    )
    assert [result.status for result in ended] == [0] * 4, ended
    assert generator_bytes(site.parent / "run")
    assert (site.parent / "four.png").exists()
    assert "var(--c7)" in (site.parent / "run" / "report.html").read_text(encoding="utf-8")
    assert read_status(site.parent / "run")["iteration"] == 3


@pytest.mark.slow
def test_compare_trains_it(site: Path) -> None:
    (site.parent / "own.json").write_text('{"algorithm": "toy", "toy_steps": 1}')
    compared = mdgan(site, "compare", "own.json", *FEW, "--seeds", "0", "--out", "out")
    assert compared.status == 0, compared
    assert "own & 1/1" in (site.parent / "out" / "comparison.tex").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_data_set_names_the_kind_of_a_package(site: Path) -> None:
    (site.parent / "own.py").write_text(SPECTRA)
    flags = [*FEW, "--datasets-dir", ".", "--dataset", "own"]
    trained = mdgan(site, "train", *flags, "--out", "run")
    assert trained.status == 0, trained
    (site.parent / "own.py").write_text(SPECTRA.replace('"spectra"', '"spectre"'))
    refused = mdgan(site, "train", *flags, "--out", "no")
    assert refused.status == 2
    assert "KIND = spectre: must be one of" in refused.errors
    assert "did you mean 'spectra'?" in refused.errors


def test_a_package_that_cannot_be_imported_is_named_in_one_line(site: Path) -> None:
    (site / "mdgan_toy" / "family.py").write_text("import no_such_module")
    why = "toy: the package mdgan-toy 1.2 cannot be imported: ModuleNotFoundError: "
    about = site / "mdgan_toy-1.2.dist-info" / "entry_points.txt"
    about.write_text(about.read_text().replace("more:TINY", "more:tiny"))
    train = ["train", "--algorithm", "toy", *FEW, "--out", "no"]
    tiny = ["train", "--architecture", "tiny", *FEW, "--out", "no"]
    helps, none, *both = one_after_another(
        site, ["--help"], tiny, train, [*train, "--toy-steps", "1"]
    )
    loading, refusal = none.errors.splitlines(keepends=True)
    assert loading.endswith("loading PyTorch …\n")
    assert refusal == (
        "mdgan: --architecture tiny: mdgan_toy.more:tiny of the package mdgan-toy 1.2 must be of "
        "the class Architecture, not function\n"
    )
    for refused in both:
        assert refused.status == 2, refused
        assert why in refused.errors
        assert refused.errors.count("\n") == 1, refused
    assert (helps.status, helps.errors) == (0, "")


@pytest.mark.slow
def test_two_packages_with_one_family_name_are_both_named_in_one_line(site: Path) -> None:
    about = site / "other_toy-0.3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-toy\nVersion: 0.3\n")
    (about / "entry_points.txt").write_text("[mdgan.families]\ntoy = other_toy:TOY\n")
    refused = mdgan(site, "train", "--algorithm", "toy", *FEW, "--out", "no")
    assert refused.status == 2, refused
    assert refused.errors.count("\n") == 1, refused
    why = "toy: the packages mdgan-toy 1.2 and other-toy 0.3 both bring one; uninstall one of them"
    assert why in refused.errors
    assert mdgan(site, "train", *FEW, "--out", "run").status == 0  # others can be used
