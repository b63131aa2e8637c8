"""Scores of runs whose workers have their own folders, which the server does not have."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from mdgan.storage.state_file import read_tensors
from tests.processes import ended_well, read_events, run, run_here

FLAGS = [
    *("train", "--dataset", "folder", "--data-dir", "photos/{rank}", "--world-size", "3"),
    *("--transport", "memory", "--threads", "1", "--batch-size", "4", "--width", "8"),
    *("--architecture", "dcgan", "--iterations", "4", "--sample-interval", "0"),
    *("--eval-interval", "4", "--set", "eval_samples=100", "--set", "image_size=16"),
    *("--out", "run"),
]
BY_CHANCE = "network of random weights"


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Makes pictures of two sites, and held-out pictures with the same classes."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images[:420], digits.target, strict=False)):
        where = f"photos/{1 + number % 2}" if number < 280 else f"public/{label}"
        (tmp_path / where).mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(tmp_path / where / f"{number}.png")
    return tmp_path


def evaluated(folder: Path, *flags: str) -> dict[str, Any]:
    done = run_here("evaluate", "run", "-n", "100", "--json", *flags, cwd=folder)
    assert done.status == 0, done
    record: dict[str, Any] = json.loads(done.output)
    return record


def test_they_are_scored_and_the_network_is_named(sites: Path) -> None:
    done = run(*FLAGS, cwd=sites)
    ended_well(done, sites / "run", 4)
    (warning,) = [line for line in done.errors.splitlines() if f"by a {BY_CHANCE}" in line]
    assert "--held-out DIR" in warning
    assert "weights-inception-2015-12-05-6726825d.pth" in warning
    assert f" by {BY_CHANCE} at iteration 4" in done.output
    (scored,) = read_events(sites / "run", "scores")
    assert (scored["extractor"]["name"], scored["n_real"]) == (BY_CHANCE, 280)
    (sites / "photos").rename(sites / "gone")
    assert evaluated(sites)["scores"] == scored["scores"]
    assert "fid" in scored["scores"]
    shown = run_here("report", "run", "-o", "report.html", cwd=sites)
    assert shown.status == 0, shown
    assert BY_CHANCE in (sites / "report.html").read_text()


def test_held_out_pictures_with_classes_train_the_network(sites: Path) -> None:
    done = run_here(*FLAGS, "--held-out", "public", cwd=sites)
    ended_well(done, sites / "run", 4)
    (scored,) = read_events(sites / "run", "scores")
    assert scored["extractor"]["name"] == "classifier of half of the held-out samples of folder"
    assert scored["extractor"]["accuracy"] > 0.5
    assert scored["n_real"] == 280
    assert scored["n_held_out"] == pytest.approx(70, abs=5)
    (sites / "photos").rename(sites / "gone")
    assert evaluated(sites)["scores"] == scored["scores"]


def test_a_server_without_them_scores_by_held_out_pictures(sites: Path) -> None:
    done = run_here(*FLAGS, "--eval-interval", "0", cwd=sites)
    ended_well(done, sites / "run", 4)
    (sites / "photos").rename(sites / "gone")
    refused = run_here("evaluate", "run", cwd=sites)
    assert refused.status == 2
    assert refused.errors.count("\n") == 1
    assert "--data-dir photos/1: no such folder" in refused.errors
    assert "--held-out DIR" in refused.errors
    figures_read = evaluated(sites, "--held-out", "public")
    assert figures_read["extractor"]["accuracy"] > 0.5
    assert figures_read["n_real"] == figures_read["n_held_out"]
    assert "kid" in figures_read["scores"]


def test_pictures_without_classes_on_this_machine_are_scored_too(sites: Path) -> None:
    done = run_here(*FLAGS, "--data-dir", "photos/1", cwd=sites)
    ended_well(done, sites / "run", 4)
    (scored,) = read_events(sites / "run", "scores")
    assert (scored["extractor"]["name"], scored["n_real"]) == (BY_CHANCE, 140)
    tensors, _ = read_tensors(sites / "run" / "extractor.safetensors")
    assert not tensors  # every rank makes it
