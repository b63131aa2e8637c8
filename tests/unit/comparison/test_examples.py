"""Every configuration in `examples/` can be trained, at both scales."""

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mdgan.cli.options import read_layers
from mdgan.comparison.plan import Configuration, check_configurations, read_files
from mdgan.gan.optimizer_settings import OptimizerForm
from mdgan.launch import checked as launch
from mdgan.launch.faults import FAULTS
from mdgan.launch.given import Given
from mdgan.launch.models import models_of
from tests.unit.dataset_formats import black_png, write_celeba, write_cifar10, write_mnist

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = sorted({path.parent for path in EXAMPLES.glob("*/*.json")})


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_can_be_compared_here(folder: Path) -> None:
    plan = check_configurations(read_files(files(folder)), {}, 0)
    assert [each.name for each in plan] == [path.stem for path in files(folder)]
    assert all(each.resolved["dataset"] == "digits" for each in plan)
    assert not any("is not scored" in line for each in plan for line in each.warnings)
    are_those_of_train(plan, files(folder))


def are_those_of_train(compared: list[Configuration], paths: list[Path], **flags: Any) -> None:
    """`mdgan train --config` settles every setting of a file as `mdgan compare` does.

    That has tried the models, which takes long at the scale of a paper.
    """
    for each, path in zip(compared, paths, strict=True):
        with patch.dict(os.environ), patch.object(launch, "tried_models", models_of):
            layers = read_layers(path, {**flags})
            assert launch.prepare(Given(layers)).config == {**each.resolved}, path


def test_optimizers_are_compared_with_the_same_decay_of_first_moments() -> None:
    """AdaBelief cannot have the 0 of BigGAN; if others had it, β1 would be compared, too."""
    for each in check_configurations(read_files(files(EXAMPLES / "asymmetric-optimizers")), {}, 0):
        for network in ("generator", "discriminator"):
            form = OptimizerForm.parse(each.resolved[f"{network}_optimizer"])
            assert form.policy(1).betas[0] == 0.5, each.name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_can_be_trained_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in files(folder):
        content = json.loads(path.read_text())
        for flags, expected in (
            ({}, content),
            ({"paper_scale": True}, {**content, **content["paper_scale"]}),
        ):
            with monkeypatch.context() as patched:
                patched.setenv(FAULTS, "")
                patched.delenv(FAULTS)
                layers = read_layers(path, dict(flags))
                assert os.environ.get(FAULTS) == expected.get("faults"), "they strike as planned"
            assert Given(layers).named().draft.training.iterations == expected["iterations"]
            assert "paper_scale" not in layers[0] | layers[1]


def test_planned_faults_strike_no_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume-or-start` is the same command each time, and a fault would strike each time."""
    path, run = tmp_path / "settings.json", tmp_path / "run"
    path.write_text(json.dumps({"faults": "server:kill@wait:2"}))
    monkeypatch.setenv(FAULTS, "")
    for begun in (False, True):
        if begun:
            run.mkdir()
            (run / "run.json").touch()
        monkeypatch.delenv(FAULTS)
        read_layers(path, {"out": str(run)})
        assert (FAULTS in os.environ) is not begun
    monkeypatch.setenv(FAULTS, "")


SCALE = {"world_size", "clients", "participation", "iterations", "eval_interval", "faults"}
COUNTS_ITERATIONS = {"swap_interval", "sync_after"}
DATA = {"dataset", "datasets_dir", "data_dir", "partition"}
MODELS = {"architecture", "width"}
WITH_OTHER_MODELS = {"asymmetric-optimizers", "asynchronous-updates", "biggan", "md-gan-celeba"}
"""Folders of which `examples/README.md` says that two cores train smaller models."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_scale_of_a_paper_differs_in_numbers_and_data_alone(folder: Path) -> None:
    for path in files(folder):
        settings = json.loads(path.read_text())
        scaled = settings["paper_scale"]
        allowed = SCALE | COUNTS_ITERATIONS | DATA
        assert scaled.keys() <= allowed | (MODELS if folder.name in WITH_OTHER_MODELS else set())
        assert scaled["iterations"] >= settings["iterations"]
        assert settings["ema"] == 0, "no paper has an average"
        if "partition" in scaled:
            here, there = (each["partition"].split(",")[0] for each in (settings, scaled))
            assert here == there, "digits are fewer, not of fewer classes"


def write_all_data(folder: Path) -> None:
    for name in ("mnist", "fashion-mnist"):
        write_mnist(folder / "data" / name, 1200)
    write_cifar10(folder / "data" / "cifar10", 1200)
    write_celeba(folder / "data" / "celeba", 1600)
    for part in ("train", "val"):
        for number in range(2):
            pictures = folder / "data" / "imagenet" / part / f"n{number}"
            pictures.mkdir(parents=True)
            for each in range(300):
                (pictures / f"{each}.JPEG").write_bytes(black_png(8))


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_can_be_compared_at_the_scale_of_its_paper(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    write_all_data(tmp_path)
    here = {each.name: each for each in check_configurations(read_files(files(folder)), {}, 0)}
    scaled = check_configurations(read_files(files(folder), paper_scale=True), {}, 0)
    for each in scaled:
        assert each.resolved["dataset"] != "digits"
        if folder.name != "asymmetric-optimizers":
            of_models = {"generator_loss", "discriminator_loss"} | each.settings.keys()
            for name in of_models - SCALE - COUNTS_ITERATIONS - DATA - MODELS:
                assert each.resolved[name] == here[each.name].resolved[name], name
        assert bool(each.faults) == bool(here[each.name].faults)
    are_those_of_train(scaled, files(folder), paper_scale=True)


def test_the_list_of_examples_names_every_folder_and_only_those() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"examples/([a-z-]+)/", text))
    assert named == {folder.name for folder in FOLDERS}


def test_examples_compute_as_many_real_samples_each() -> None:
    """The competitors see 120,000 real samples each, so that their scores compare."""
    for path in files(EXAMPLES / "competitors"):
        settings = json.loads(path.read_text())
        workers = settings.get("world_size", 2) - 1
        busy = round(workers * settings.get("participation", 1))
        assert busy * settings["iterations"] * settings["batch_size"] == 120_000, path
