"""`mdgan compare` with real trainings."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.gallery import Gallery
from tests.processes import (
    MDGAN,
    finish,
    generator_bytes,
    read_events,
    read_status,
    run,
    run_here,
    start,
    wait_until,
)

SHORT = ["--iterations", "12", "--batch-size", "8", "--threads", "1", "--sample-interval", "0"]
SCORED = ["--eval-interval", "6", "--set", "eval_samples=100"]


def config(folder: Path, name: str, **settings: Any) -> str:
    (folder / f"{name}.json").write_text(json.dumps(settings))
    return f"{name}.json"


@pytest.fixture(scope="session")
def compared(gallery: Gallery) -> Path:
    return gallery.show("compared", compare)


def compare(folder: Path) -> None:
    files = [
        config(folder, "four", world_size=5, transport="memory"),
        config(folder, "alone", algorithm="standalone"),
    ]
    flags = [*SHORT, *SCORED, "--seeds", "0,7", "--jobs", "2", "--out", "out"]
    result = run("compare", *files, *flags, cwd=folder)
    assert result.status == 0, result
    assert result.errors == ""
    (folder / "output").write_text(result.output)


def test_a_dry_run_says_what_would_train_and_writes_nothing(tmp_path: Path) -> None:
    files = [
        config(tmp_path, "four", world_size=5, algorithm="md-gan"),
        config(tmp_path, "alone", algorithm="standalone"),
    ]
    flags = [*SHORT, *SCORED, "--seeds", "0,7", "--out", "out", "--dry-run"]
    result = run("compare", *files, *flags, cwd=tmp_path)
    assert result.status == 0, result
    assert result.output.splitlines() == [
        "four, seed 0: mdgan on digits, b = 8, 12 iterations, starts",
        "alone, seed 0: standalone on digits, b = 8, 12 iterations, starts",
        "four, seed 7: mdgan on digits, b = 8, 12 iterations, starts",
        "alone, seed 7: standalone on digits, b = 8, 12 iterations, starts",
        "4 training(s), 1 at once, into out; mdgan plan says how long",
    ]
    assert {path.name for path in tmp_path.iterdir()} == set(files)


def test_every_configuration_is_trained_with_every_seed(compared: Path) -> None:
    lines = (compared / "output").read_text().splitlines()
    assert lines[:2] == ["[1/4] four, seed 0: starts", "[2/4] alone, seed 0: starts"]
    for number, label in enumerate(("four, seed 0", "alone, seed 0", "four, seed 7"), start=1):
        done = rf"\[{number}/4\] {label}: finished in \d+ s, FID [\d.]+"
        assert any(re.fullmatch(done, line) for line in lines), lines
    for name in ("four", "alone"):
        for seed in (0, 7):
            folder = compared / "out" / f"{name}-seed{seed}"
            assert read_status(folder)["state"] == "finished"
            assert json.loads((folder / "config.json").read_text())["seed"] == seed
            assert "done: 12 of 12 iterations" in folder.with_suffix(".log").read_text()
    generators = {generator_bytes(path) for path in (compared / "out").glob("*-seed?")}
    assert len(generators) == 4


def test_a_run_is_what_the_same_settings_give_alone(compared: Path, tmp_path: Path) -> None:
    flags = ["--seed", "7", *SHORT, "--eval-interval", "0", "--out", "same"]
    result = run_here("standalone", *flags, cwd=tmp_path)
    assert result.status == 0, result
    same = generator_bytes(compared / "out" / "alone-seed7")
    assert generator_bytes(tmp_path / "same") == same


def test_the_numbers_are_those_of_the_runs(compared: Path) -> None:
    table = json.loads((compared / "out" / "comparison.json").read_text())
    assert table["seeds"] == [0, 7]
    assert list(table["configurations"]) == ["four", "alone"]
    for name, found in table["configurations"].items():
        fids = []
        for seed in ("0", "7"):
            (*_, last) = read_events(compared / "out" / f"{name}-seed{seed}", "scores")
            assert last["iteration"] == 12
            assert found["runs"][seed]["fid"] == last["scores"]["fid"]
            fids.append(last["scores"]["fid"])
        assert found["summary"]["fid"]["mean"] == pytest.approx(sum(fids) / 2)
        assert (found["summary"]["fid"]["least"], found["summary"]["fid"]["greatest"]) == (
            min(fids),
            max(fids),
        )
    four, alone = (table["configurations"][name]["summary"] for name in ("four", "alone"))
    assert four["samples_processed"]["mean"] == 4 * 12 * 8
    assert alone["samples_processed"]["mean"] == 12 * 8
    assert four["server_bytes"]["mean"] > 12 * 4 * 8 * 64 * 4  # the feedback alone, in float32
    assert alone["client_bytes"] is None


def test_the_report_has_one_line_for_each_configuration(compared: Path) -> None:
    page = (compared / "out" / "report.html").read_text()
    assert "four, seed 0" in page
    drawing = page[page.index('id="fig-scores"') :]
    legend = re.findall(r"<text[^>]*>(four|alone)[^<]*</text>", drawing[: drawing.index("</svg>")])
    assert legend == ["four", "alone"]


@pytest.mark.slow
def test_what_is_finished_is_not_trained_again(compared: Path, tmp_path: Path) -> None:
    compared = Path(shutil.copytree(compared, tmp_path, dirs_exist_ok=True))
    before = {path: path.stat().st_mtime_ns for path in (compared / "out").glob("*/run.json")}
    flags = [*SHORT, *SCORED, "--seeds", "7,0", "--out", "out"]
    again = run_here("compare", "alone.json", "four.json", *flags, "--resume", cwd=compared)
    assert again.status == 0, again
    assert again.output.count("finished before") == 4
    after = {path: path.stat().st_mtime_ns for path in (compared / "out").glob("*/run.json")}
    assert after == before
    refused = run_here("compare", "alone.json", *flags, cwd=compared)
    assert (refused.status, refused.output) == (2, "")
    assert "--out out: has files in it; add --resume" in refused.errors
    other = run_here("compare", "alone.json", *flags, "--kappa", "3", "--resume", cwd=compared)
    assert (other.status, other.output) == (2, "")
    assert "alone-seed7: was trained with kappa auto, now it is 3" in other.errors


def test_private_runs_are_compared_by_what_they_spend(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    private = {"algorithm": "moments", "world_size": 3, "transport": "memory", "dp_delta": 1e-3}
    small = {"architecture": "md-gan-mlp", "width": 32, "num_features": 100}
    files = [
        config(tmp_path, f"e{epsilon}", dp_epsilon=epsilon, **private, **small)
        for epsilon in (1, 3)
    ]
    flags = [*SHORT, *SCORED, "--jobs", "2"]
    own_flags = ["--dp-ledger", "ledgers/{run}", "--seeds", "0", "--out", "out"]
    apart = run("compare", *files, *flags, *own_flags, cwd=tmp_path)
    assert apart.status == 0, apart
    assert {path.name for path in (tmp_path / "ledgers").iterdir()} == {"e1-seed0", "e3-seed0"}
    record = json.loads((tmp_path / "out" / "comparison.json").read_text())["configurations"]
    for epsilon in (1, 3):
        assert epsilon - 0.1 < record[f"e{epsilon}"]["summary"]["epsilon"]["mean"] <= epsilon
    assert "by epsilon" in (tmp_path / "out" / "report.html").read_text()


def test_private_runs_spend_of_one_account_unless_told_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    name = config(tmp_path, "e1", algorithm="moments", world_size=3, dp_epsilon=1, dp_delta=1e-3)
    flags = ["--transport", "memory", *SHORT, "--eval-interval", "0", "--seeds", "0,1"]
    one = run("compare", name, *flags, "--out", "one", cwd=tmp_path)
    assert "give each its own with --dp-ledger 'DIR/{run}'" in one.errors
    assert one.status == 1, "the second seed has nothing left to spend"


@pytest.mark.parametrize(
    ("transport", "of_host"),
    [("memory", ""), pytest.param("tcp", "host-1:kill@receive:3", marks=pytest.mark.slow)],
)
def test_who_goes_on_meets_only_the_faults_that_are_still_ahead(
    tmp_path: Path, transport: str, of_host: str
) -> None:
    """After each strike of the server, and with `--resume`: here from iteration 30 on, or before.

    Checkpoints are far apart, so that some are whole at each strike, however fast iterations are.
    """
    faults = f"server:kill@wait:35;{of_host};server:kill@wait:25"
    settings = {"world_size": 3, "checkpoint_interval": 5, "eval_interval": 0, "faults": faults}
    name = config(tmp_path, "struck", transport=transport, checkpoint_keep=99, **settings)
    command = ["compare", name, *SHORT, "--iterations", "40", "--seeds", "0", "--out", "out"]
    folder = tmp_path / "out" / "struck-seed0"
    for given, num_strikes in ([], 2), (["--resume"], 1):
        result = run(*command, *given, cwd=tmp_path)
        assert result.status == 0, result
        assert result.output.count("its server was struck; goes on") == num_strikes
        lost = [event["workers"] for event in read_events(folder, "lost")]
        assert lost == ([[1]] if of_host else []), result
        (folder / "run.json").write_text(json.dumps({**read_status(folder), "state": "stopped"}))
        for checkpoint in (folder / "checkpoints").iterdir():
            if int(checkpoint.name) > 30:
                shutil.rmtree(checkpoint)


@pytest.mark.slow
def test_what_stopped_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    name = config(tmp_path, "alone", algorithm="standalone", iterations=5, eval_interval=0)
    flags = [name, "--threads", "1", "--seeds", "3", "--out", "out"]
    assert run_here("compare", *flags, cwd=tmp_path).status == 0
    folder = tmp_path / "out" / "alone-seed3"
    whole = generator_bytes(folder)
    (folder / "run.json").write_text(json.dumps({**read_status(folder), "state": "stopped"}))
    (folder / "generator.safetensors").write_bytes(b"half")
    shutil.rmtree(folder / "checkpoints")
    again = run_here("compare", *flags, "--resume", cwd=tmp_path)
    assert again.status == 0, again
    assert "[1/1] alone, seed 3: starts again" in again.output
    assert generator_bytes(folder) == whole
    assert folder.with_suffix(".log").read_text().count("done: 5 of 5 iterations") == 2


def test_one_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    files = [
        config(tmp_path, "hasty", world_size=3, connect_timeout=0.001),
        config(tmp_path, "alone", algorithm="standalone", iterations=5),
    ]
    flags = ["--threads", "1", "--seeds", "3", "--eval-interval", "0", "--out", "out"]
    result = run("compare", *files, *flags, cwd=tmp_path)
    assert result.status == 1, result
    assert re.search(
        r"\[1/2\] hasty, seed 3: failed with exit status 2 after .*log:", result.output
    )
    # Whether the server or a host gives up first, and says so, is a matter of microseconds.
    ends = (
        r"did not join within 0\.001 s|no server answers .* after 0\.001 s|did not admit this host"
    )
    assert re.search(rf"^    .*mdgan: .*({ends})", result.output, re.MULTILINE)
    assert re.search(r"\[2/2\] alone, seed 3: finished in \d+ s, not scored", result.output)
    assert "mdgan: failed: hasty, seed 3" in result.errors
    table = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert table["configurations"]["hasty"]["runs"]["3"]["state"] == "failed"
    assert table["configurations"]["alone"]["summary"]["samples_processed"]["runs"] == 1
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_stopped_it_leaves_no_process_behind_and_goes_on_later(
    tmp_path: Path, number: signal.Signals
) -> None:
    name = config(tmp_path, "two", world_size=3, checkpoint_interval=40, iterations=400)
    flags = [name, "--threads", "1", "--seeds", "0", "--eval-interval", "0", "--out", "out"]
    comparing = start([*MDGAN, "compare", *flags], tmp_path)
    folder = tmp_path / "out" / "two-seed0"
    wait_until(lambda: any(folder.glob("checkpoints/*/manifest.json")), "a checkpoint")
    started = psutil.Process(comparing.pid).children(recursive=True)
    assert len(started) > 3  # the launcher, the server, two hosts
    comparing.send_signal(number)
    result = finish(comparing, timeout=300)
    assert result.status == 130, result
    assert "[1/1] two, seed 0: stopped" in result.output
    assert "--out out --resume goes on" in result.output
    _, alive = psutil.wait_procs(started, timeout=5)
    assert alive == []
    assert read_status(folder)["state"] == "stopped"
    again = run("compare", *flags, "--resume", cwd=tmp_path)
    assert again.status == 0, again
    assert "[1/1] two, seed 0: goes on" in again.output
    assert read_status(folder)["iteration"] == 400
    assert re.search(r"going on with .* from iteration \d+", folder.with_suffix(".log").read_text())
