"""Scores during training and after it, as users get them."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from PIL import Image

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses
from mdgan.records.run_directory import NEIGHBOURS_FILE, RunDirectory
from tests.gallery import Gallery
from tests.processes import (
    MDGAN,
    finish,
    read_events,
    read_metrics,
    read_status,
    run,
    run_here,
    start,
    training,
    wait_until,
)
from tests.unit.dataset_formats import write_mnist

SHORT = ["--iterations", "40", "--batch-size", "8", "--threads", "1", "--sample-interval", "0"]
SCORED = [*SHORT, "--eval-interval", "20", "--set", "eval_samples=2100"]

EXTRACTORS = """
import torch
from torch import nn


class Pixels(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, ::40]


class Broken(Pixels):
    def forward(self, images):
        return super().forward(images) / 0 * 0


class Flat(nn.Module):
    def forward(self, images):
        return images.mean((1, 2, 3))


class Waiting(Pixels):
    def forward(self, images):
        if len(images) >= 50:
            open("never").close()  # a pipe into which nothing is written
        return super().forward(images)
"""


def evaluate(folder: Path, *flags: str) -> dict[str, Any]:
    result = run_here("evaluate", str(folder), "--json", *flags, cwd=folder)
    assert result.status == 0, result
    record: dict[str, Any] = json.loads(result.output)
    return record


@pytest.fixture(scope="session")
def scored_run(gallery: Gallery) -> Path:
    """Three workers in processes of their own, who hold different classes."""
    return gallery.show("scored", train_scored) / "run"


@pytest.fixture
def copy_of_scored_run(scored_run: Path, tmp_path: Path) -> Path:
    """One that an evaluation may write to."""
    return Path(shutil.copytree(scored_run, tmp_path / "scored"))


def train_scored(folder: Path) -> None:
    flags = ["--world-size", "4", "--partition", "sorted", "--workers-per-host", "1"]
    flags += ["--out", "run"]
    result = run("train", *SCORED, *flags, cwd=folder)
    assert result.status == 0, result
    assert "FID" in result.output
    assert "real data" in result.output


def test_scores_are_recorded_with_all_it_takes_to_compare_them(scored_run: Path) -> None:
    records = read_events(scored_run, "scores")
    assert [record["iteration"] for record in records] == [20, 40]
    for record in records:
        assert record["n"] == 2100
        assert record["n_real"] == 1438
        assert record["n_held_out"] == 359
        assert record["left_out"] == {}
        assert len(record["extractor"]["sha256"]) == 64
        assert record["extractor"]["accuracy"] > 0.95
        assert 0 < record["real"]["fid"] < record["scores"]["fid"]
        assert 1 <= record["scores"]["inception_score"] < record["real"]["inception_score"] <= 10
        assert sum(record["class_histogram"]) == 2100
        assert sum(record["real_class_histogram"]) == 1438
        assert record["neighbours"]["n"] == 359
        assert min(record["neighbours"]["real"], record["neighbours"]["generated"]) > 0


def test_what_a_report_shows_of_workers_and_machines_is_recorded(scored_run: Path) -> None:
    recorded = RecordedRun.read(scored_run)
    with Image.open(scored_run / NEIGHBOURS_FILE) as picture:
        assert picture.width > 4 * picture.height  # ten samples above ten real ones
    assert {len(row.by_worker) for row in recorded.of(Losses)} == {3}
    assert {"server", "scorer", "host-1", "host-2", "host-3"} == recorded.traces.keys()
    (held,) = read_events(scored_run, "holdings")
    assert sum(worker["samples"] for worker in held["workers"].values()) == 1438
    first = held["workers"]["1"]["classes"]
    assert len(first) < 10, "sorted by class, the first worker does not reach the last class"
    assert all(min(trace.memory) > 1e7 for trace in recorded.traces.values())
    assert recorded.status["other_defaults"]["partition"] == "iid"
    assert "seed" not in recorded.status["other_defaults"]
    assert recorded.status["system"]["torch"] == torch.__version__


def test_sums_of_the_workers_give_the_score_of_all_data_in_one_place(
    copy_of_scored_run: Path, tmp_path: Path
) -> None:
    """The workers never showed a sample; here all of the data are read and scored anew."""
    (*_, trained) = read_events(copy_of_scored_run, "scores")
    alone = Path(shutil.copytree(copy_of_scored_run, tmp_path / "alone"))
    (alone / "real.safetensors").unlink()
    central = evaluate(alone, "-n", "2100")
    again = evaluate(copy_of_scored_run, "-n", "2100")
    for record in (central, again):
        assert record["warnings"] == []
        assert record["extractor"] == trained["extractor"]
        for name in ("fid", "inception_score", "class_kl", "kid", "coverage"):
            wanted = pytest.approx(trained["scores"][name], rel=1e-6)
            assert record["scores"][name] == wanted, name
        assert record["real"] == pytest.approx(trained["real"], rel=1e-9)
    assert [record.get("by") for record in read_events(copy_of_scored_run, "scores")] == [
        *(None, None, "evaluate")
    ]
    refused = run_here("evaluate", str(alone), "--data-dir", "elsewhere", cwd=tmp_path)
    line = "mdgan: --data-dir elsewhere: --dataset digits reads no files; leave it out\n"
    assert (refused.status, refused.output, refused.errors) == (2, "", line)


def test_a_run_whose_sums_are_by_halves_is_scored_by_its_data(
    scored_run: Path, tmp_path: Path
) -> None:
    """Earlier versions wrote them so."""
    earlier = RunDirectory(Path(shutil.copytree(scored_run, tmp_path / "earlier")))
    whole, about = earlier.read_tensors("real.safetensors")
    halves = {
        f"{half}.{name}": each for half in ("first", "second") for name, each in whole.items()
    }
    earlier.write_tensors("real.safetensors", halves, about)
    (*_, trained) = read_events(scored_run, "scores")
    figures_read = evaluate(earlier.path, "-n", "2100")
    assert figures_read["scores"]["fid"] == pytest.approx(trained["scores"]["fid"], rel=1e-6)


def test_evaluation_prints_a_table_and_warns_of_few_samples(
    copy_of_scored_run: Path, tmp_path: Path
) -> None:
    result = run_here("evaluate", str(copy_of_scored_run), "-n", "500", cwd=tmp_path)
    assert result.status == 0, result
    assert "500 generated samples against 1,438 real ones" in result.output
    for name in ("FID", "KID", "precision", "coverage", "classes covered", "real data"):
        assert name in result.output
    assert "2,048" in result.output
    unlike = "warning: these scores do not compare with those of training: other number of samples"
    assert unlike in result.output
    few = run_here("evaluate", str(copy_of_scored_run), "-n", "30", cwd=tmp_path)
    assert "fid left out: a covariance of 64 features needs at least 65 samples" in few.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--extractor", "none.pt"], ["none.pt"]),
        (["--extractor", "ex.py:Flat"], ["Flat", "[n, d]"]),
        (["--extractor", "ex.py:Broken"], ["Broken", "not finite", "feature 0"]),
        (["--extractor", "ex.py:Missing"], ["Missing"]),
        (["--inception-weights", "ex.py"], ["ex.py", "SHA-256"]),
        (["--extractor", "inception"], ["--inception-weights FILE"]),
        (["-n", "1"], ["-n"]),
    ],
)
def test_bad_extractors(
    scored_run: Path, tmp_path: Path, flags: list[str], says: list[str]
) -> None:
    (tmp_path / "ex.py").write_text(EXTRACTORS)
    result = run_here("evaluate", str(scored_run), *flags, cwd=tmp_path)
    assert result.status == 2, result
    assert len(result.errors.splitlines()) == 1, result.errors
    assert all(text in result.errors for text in says), result.errors


@pytest.mark.parametrize("command", ["evaluate", "report", "trace", "watch", "sample"])
def test_folders_that_are_no_run_or_of_a_newer_version(tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "run.json").write_text('{"version": "99.1.0", "state": "finished"}')
    for folder, says in (("empty", "not a run"), ("newer", "99.1.0"), ("nowhere", "not a run")):
        result = run_here(command, folder, cwd=tmp_path)
        assert result.status == 2, result
        (line,) = (line for line in result.errors.splitlines() if line.startswith("mdgan: "))
        assert folder in line
        assert says in line


def test_short_runs_are_not_scored(tmp_path: Path) -> None:
    assert run_here("standalone", *SHORT, "--out", "run", cwd=tmp_path).status == 0
    assert read_events(tmp_path / "run", "scores") == []
    assert read_metrics(tmp_path / "run")


def test_data_that_must_not_be_read_here(tmp_path: Path) -> None:
    """With every worker's own data the classifier learns from held-out samples alone."""
    flags = ["--transport", "memory", "--partition", "none", "--out", "run"]
    result = run_here("train", *SCORED, *flags, cwd=tmp_path)
    assert result.status == 0, result
    *_, scored = read_events(tmp_path / "run", "scores")
    assert scored["extractor"]["name"] == "classifier of half of the held-out samples of digits"


@pytest.mark.slow
def test_a_server_without_data(tmp_path: Path, port: int) -> None:
    """Rank 0 is started where no data are; its scores are those of the workers' data."""
    (tmp_path / "ex.py").write_text(EXTRACTORS)
    write_mnist(tmp_path / "private", 200)
    same = [*SCORED, "--dataset", "mnist", "--world-size", "3", "--extractor", "ex.py:Pixels"]
    whole = ["train", *same, "--transport", "memory", "--data-dir", "private", "--out", "whole"]
    ended = run_here(*whole, cwd=tmp_path)
    assert ended.status == 0, ended
    (*_, wanted) = read_events(tmp_path / "whole", "scores")
    assert wanted["n_real"] == 200
    assert "kid" in wanted["scores"]

    apart = [*MDGAN, "train", *same, "--master-port", str(port)]
    server = start(
        [*apart, "--ranks", "0", "--data-dir", "nothing-here", "--out", "alone"], tmp_path
    )
    hosts = start([*apart, "--ranks", "1..2", "--data-dir", "private"], tmp_path)
    for process in (server, hosts):
        ended = finish(process)
        assert ended.status == 0, ended
    (*_, result) = read_events(tmp_path / "alone", "scores")
    assert result["scores"]["fid"] == pytest.approx(wanted["scores"]["fid"], rel=1e-6)
    assert result["n_real"] == 200
    assert "kid" not in result["scores"]
    assert "held-out" in result["left_out"]["kid"]
    assert "neighbours" not in result


def test_ranks_with_other_extractors_are_refused(tmp_path: Path, port: int) -> None:
    (tmp_path / "ex.py").write_text(EXTRACTORS)
    apart = [*MDGAN, "train", *SCORED, "--world-size", "2", "--master-port", str(port)]
    server = start([*apart, "--ranks", "0", "--set", "connect_timeout=60"], tmp_path)
    host = finish(start([*apart, "--ranks", "1", "--extractor", "ex.py:Pixels"], tmp_path))
    assert host.status == 2, host
    assert "rank 1 has extractor = sha256" in host.errors
    assert "rank 0 has extractor = classifier" in host.errors
    assert finish(server).status == 2, "rank 1 alone was to come"


@pytest.mark.slow
def test_training_goes_on_without_the_scorer(tmp_path: Path) -> None:
    (tmp_path / "ex.py").write_text(EXTRACTORS)
    flags = ["--iterations", "100000", "--log-interval", "1", "--eval-interval", "50"]
    flags += ["--set", "eval_samples=100", "--extractor", "ex.py:Pixels", "--threads", "1"]
    running = training(tmp_path, "train", *flags)
    wait_until(lambda: bool(read_events(running.folder, "scores")), "the first scores")
    (scorer,) = psutil.Process(running.server()).children()
    scorer.kill()
    wait_until(lambda: bool(read_events(running.folder, "unscored")), "the loss is noted")
    reached = read_metrics(running.folder)[-1]["iteration"]
    wait_until(lambda: running.has_reached(reached + 20), "training goes on")
    running.process.terminate()
    ended = finish(running.process)
    assert "scores are left out: the scorer is gone" in ended.errors


def test_ctrl_c_while_the_last_generator_is_scored(tmp_path: Path) -> None:
    (tmp_path / "ex.py").write_text(EXTRACTORS)
    os.mkfifo(tmp_path / "never")
    flags = ["--extractor", "ex.py:Waiting", "--world-size", "2", "--out", "run"]
    process = start([*MDGAN, "train", *SCORED, *flags], tmp_path)
    log = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: log.exists() and '"iteration": 40' in log.read_text(), "the last iteration")
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    ended = finish(process)
    assert ended.status == 130, ended
    assert read_status(tmp_path / "run")["iteration"] == 40
