"""Everything serves an algorithm in one file of at most 150 lines, without further code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes, toy_family
from tests.processes import (
    Finished,
    finish,
    generator_bytes,
    read_events,
    run_here,
    start_anew,
    wait_until,
)

TOY = [sys.executable, "-m", "tests.toy_family"]
FLAGS = [
    *("train", "--algorithm", "toy", "--world-size", "4", "--batch-size", "8", "--threads", "1"),
    *("--sample-interval", "0", "--eval-interval", "0", "--checkpoint-interval", "10"),
    *("--log-interval", "1"),
]


def toy(*arguments: str, cwd: Path) -> Finished:
    """Runs `mdgan` with the toy added, to its end."""
    return finish(begin(*arguments, cwd=cwd))


def begin(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    return start_anew([*TOY, *arguments], cwd, PYTHONPATH=str(processes.REPOSITORY))


def test_the_family_is_small() -> None:
    assert toy_family.__file__ is not None
    assert len(Path(toy_family.__file__).read_text().splitlines()) <= 150


@pytest.mark.slow
def test_killed_and_resumed_over_processes_it_ends_as_in_one_process(tmp_path: Path) -> None:
    # Processes: a worker is killed, then the server.
    running = processes.Training(
        begin(*FLAGS, "--iterations", "1000000", "--out", "run", cwd=tmp_path), tmp_path / "run"
    )
    made = running.folder / "checkpoints"
    wait_until(lambda: len(list(made.glob("*/manifest.json"))) > 1, "two checkpoints")
    os.kill(running.server(), signal.SIGKILL)
    assert finish(running.process).status == 128 + signal.SIGKILL

    # Resumed in one process, it ends as if nothing had happened.
    end = str(processes.read_metrics(running.folder)[-1]["iteration"] + 7)
    flags = ("--transport", "memory", "--iterations", end)
    resumed = toy("train", "--resume", "run", *flags, cwd=tmp_path)
    assert resumed.status == 0, resumed
    whole = toy(*FLAGS, *flags, "--out", "whole", cwd=tmp_path)
    assert whole.status == 0, whole
    assert generator_bytes(tmp_path / "run") == generator_bytes(tmp_path / "whole")

    # The tools, in a process in which it was never registered, serve it all the same.
    watched = run_here("watch", "run", "--once", cwd=tmp_path)
    assert watched.status == 0, watched
    assert "finished" in watched.output
    assert run_here("trace", "run", cwd=tmp_path).status == 0
    reported = run_here("report", "run", cwd=tmp_path)
    assert reported.status == 0, reported
    assert "toy" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_it_goes_on_when_a_worker_dies_and_a_newcomer_joins(tmp_path: Path) -> None:
    running = processes.Training(
        begin(*FLAGS, "--iterations", "1000000", "--out", "run", cwd=tmp_path), tmp_path / "run"
    )
    wait_until(lambda: bool(processes.read_metrics(running.folder)), "first iterations")
    os.kill(running.hosts()[0], signal.SIGKILL)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "the loss is noticed")
    newcomer = begin("join", "run", "--threads", "1", cwd=tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "the newcomer trains")
    running.process.terminate()
    assert finish(running.process).status == 128 + signal.SIGTERM
    assert "Traceback" not in finish(newcomer).errors


@pytest.mark.slow
def test_a_setting_of_its_own_is_a_flag_and_no_other_algorithm_takes_it(tmp_path: Path) -> None:
    planned = toy(*FLAGS, "--toy-steps", "3", "--dry-run", cwd=tmp_path)
    assert planned.status == 0, planned
    assert "toy_steps            3" in planned.output
    refused = toy("train", "--toy-steps", "3", cwd=tmp_path)
    assert refused.status == 2
    assert "--toy-steps 3: mdgan has no use for it" in refused.errors
