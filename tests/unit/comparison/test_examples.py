"""Every configuration in `examples/` can be trained, at both scales."""

import json
import re
from pathlib import Path

import pytest

from mdgan.comparison.plan import read_configurations
from tests.unit.dataset_formats import write_mnist

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = sorted({path.parent for path in EXAMPLES.glob("*/*.json")})


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_can_be_compared_here(folder: Path) -> None:
    found = read_configurations(files(folder), {}, 0)
    assert [each.name for each in found] == [path.stem for path in files(folder)]
    assert all(each.resolved["dataset"] == "digits" for each in found)
    assert not any(each.warnings for each in found), "every run is scored"


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_can_be_compared_at_the_scale_of_its_paper(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mnist", "fashion-mnist"):
        write_mnist(tmp_path / "data" / name, 1200)
    here = {each.name: each for each in read_configurations(files(folder), {}, 0)}
    scaled = read_configurations(files(folder), {}, 0, paper_scale=True)
    for each in scaled:
        assert each.resolved["dataset"] == "mnist"
        assert each.resolved["iterations"] >= 20_000
        assert each.resolved["algorithm"] == here[each.name].resolved["algorithm"]
        assert bool(each.faults) == bool(here[each.name].faults)


def test_the_list_of_examples_names_every_folder_and_only_those() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"examples/([a-z-]+)/", text))
    assert named == {folder.name for folder in FOLDERS}


def test_examples_compute_as_many_real_samples_each() -> None:
    """The competitors see 448,000 real samples each, so that their scores compare."""
    for path in files(EXAMPLES / "competitors"):
        settings = json.loads(path.read_text())
        workers = settings.get("world_size", 2) - 1
        busy = round(workers * settings.get("participation", 1))
        assert busy * settings["iterations"] * settings["batch_size"] == 448_000, path
