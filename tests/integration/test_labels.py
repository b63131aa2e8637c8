"""Conditional runs: samples by class, printed classes, and refusals."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mdgan
from tests.claims.registry import claim
from tests.integration.exactness import FAMILIES, IN_MEMORY, SETS
from tests.processes import QUICK, REPOSITORY, ended_well, read_events, run, run_here

CLUSTERED = ["--algorithm", "fegan", "--clusters", "kmeans:3"]
PRIVATE = ["--dp-epsilon", "5", "--dp-delta", "1e-4"]


@pytest.mark.slow
def test_samples_of_a_run(conditional_sets: Path, tmp_path: Path) -> None:
    flags = ["standalone", *QUICK, *SETS, "auxiliary", "--eval-interval", "0"]
    flags += ["--set", "class_weight=0.5", "--out", str(tmp_path / "run")]
    ended_well(run_here(*flags, cwd=conditional_sets), tmp_path / "run")

    def drawn(*more: str, name: str = "grid.png") -> Path:
        file = tmp_path / name
        done = run_here(
            "sample", str(tmp_path / "run"), *more, "-o", str(file), cwd=conditional_sets
        )
        assert done.status == 0, done
        return file

    usual = (tmp_path / "run" / "samples" / "0000012.png").read_bytes()
    assert drawn().read_bytes() == usual
    assert drawn("-n", "100").read_bytes() == usual  # ten of each class, a row each
    with Image.open(drawn("-n", "20")) as picture:
        assert picture.height > 4 * picture.width
    three = np.load(drawn("--class", "3", "-n", "5", name="three.npz"))
    assert three["labels"].tolist() == [3] * 5
    found = mdgan.Run.open(tmp_path / "run").sample(5, label=3)
    assert np.array_equal(found.numpy(), three["images"])
    assert mdgan.Run.open(tmp_path / "run").sample(4).shape == (4, 1, 8, 8)

    beyond = run_here("sample", str(tmp_path / "run"), "--class", "10", cwd=conditional_sets)
    assert (beyond.status, beyond.errors.count("\n")) == (2, 1)
    assert "--class 10: must be one of 0-9" in beyond.errors
    with pytest.raises(mdgan.BadInput, match="label -1: must be one of 0-9"):
        mdgan.Run.open(tmp_path / "run").sample(4, label=-1)


@pytest.mark.slow
def test_what_is_told_of_a_run(conditional_sets: Path, tmp_path: Path) -> None:
    flags = ["standalone", *QUICK, *SETS, "auxiliary", "--set", "label_prior=data"]
    ended_well(
        run_here(*flags, "--out", str(tmp_path / "run"), cwd=conditional_sets), tmp_path / "run"
    )
    result = run_here("evaluate", str(tmp_path / "run"), "-n", "100", cwd=conditional_sets)
    assert "right class" in result.output
    held = read_events(tmp_path / "run", "holdings")[0]["workers"]["1"]["classes"]
    (scored,) = read_events(tmp_path / "run", "scores")
    assert len(scored["by_class"]["right"]) == 10
    assert 0 <= scored["scores"]["label_accuracy"] <= 1
    assert "held-out" in scored["left_out"]["intra_fid"]
    shares = [100 * count / sum(held) for count in held]
    assert all(
        abs(found - share) <= 1
        for found, share in zip(scored["by_class"]["asked"], shares, strict=True)
    )
    reported = run_here("report", str(tmp_path / "run"), cwd=conditional_sets)
    assert reported.status == 0, reported
    assert "right class" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_without_classes_has_none(conditional_sets: Path, tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    ended_well(
        run_here("standalone", *QUICK, "--out", plain, cwd=conditional_sets), tmp_path / "plain"
    )
    result = run_here("sample", plain, "--class", "3", cwd=conditional_sets)
    assert result.status == 2
    assert "--class 3: the generator of" in result.errors
    assert "is not conditional; leave it out" in result.errors


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([*SETS, "unsaid"], "both models have num_classes = 10, but the dataset file says none"),
        (
            [*SETS, "projection", "--set", "class_weight=2"],
            "--set class_weight=2: the discriminator of",
        ),
        (
            [*SETS, "auxiliary", "--set", "class_weight=-1"],
            "--set class_weight=-1.0: must be 0 or more",
        ),
        (["--set", "label_prior=data"], "--set label_prior=data: the models of"),
        (["--set", "label_prior=dat"], "--set label_prior=dat: must be one of uniform, data"),
        (
            [*SETS, "auxiliary", *PRIVATE, "--set", "label_prior=data"],
            "--set label_prior=data: with --dp-epsilon 5 workers keep their classes; add --dp-dis",
        ),
        (
            [*SETS, "auxiliary", *CLUSTERED, "--set", "label_prior=data"],
            "--set label_prior=data: with --clusters kmeans:3 workers tell groups, not classes",
        ),
    ],
)
@claim("no-classes", "how many in all is told")
def test_what_cannot_be_is_one_line(
    conditional_sets: Path, tmp_path: Path, flags: list[str], says: str
) -> None:
    out = tmp_path / "run"
    refused = run_here("train", *QUICK, *flags, "--out", str(out), cwd=conditional_sets)
    assert refused.status == 2, refused
    assert says in refused.errors.strip().splitlines()[-1]
    assert "Traceback" not in refused.errors
    assert not out.exists()


def test_conditional_workers_are_computed_at_once(conditional_sets: Path, tmp_path: Path) -> None:
    flags = ["train", *QUICK, *IN_MEMORY, *SETS, "auxiliary", "--world-size", "4", "--vectorize"]
    done = run_here(*flags, "--out", str(tmp_path / "run"), cwd=conditional_sets)
    ended_well(done, tmp_path / "run")
    assert "one by one" not in done.errors


@pytest.mark.slow
def test_clients_measure_what_they_can(conditional_sets: Path, tmp_path: Path) -> None:
    command = [*FAMILIES["fegan"], *SETS, "auxiliary", "--training-load", "measured"]
    ended_well(
        run_here(*command, "--out", str(tmp_path / "run"), cwd=conditional_sets), tmp_path / "run"
    )


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--set", "label_prior=data", "--stale", "1"]])
def test_a_run_can_be_planned(conditional_sets: Path, flags: list[str]) -> None:
    command = ["plan", *SETS, "auxiliary", "--world-size", "4", "--threads", "1", *flags]
    planned = run(*command, cwd=conditional_sets)
    assert planned.status == 0, planned


def test_the_models_of_the_page_can_be_trained(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "labels.md").read_text(encoding="utf-8")
    match = re.search(r'```python title="my-data/(\w+)\.py"\n(.*?)```', page, re.DOTALL)
    assert match
    (tmp_path / f"{match[1]}.py").write_text(match[2])
    command = ["train", *QUICK, *IN_MEMORY, *SETS, match[1], "--world-size", "3", "--out", "run"]
    ended_well(run_here(*command, cwd=tmp_path), tmp_path / "run")
