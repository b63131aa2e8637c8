"""However a run ends, it leaves no process and no half-written file."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from mdgan.storage.checkpoints import Checkpoints
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    REPOSITORY,
    Training,
    finish,
    generator_bytes,
    read_status,
    run_here,
    start,
    training,
    wait_until,
)

LONG = ["train", "--iterations", "100000", "--log-interval", "5", "--threads", "1"]


def check_left_whole(running: Training, state: str) -> None:
    """The run's files are complete, and there are no others."""
    leftovers = [path for path in running.folder.rglob("*") if path.name.endswith(".tmp")]
    assert leftovers == []
    assert read_status(running.folder)["state"] == state
    sampled = run_here(
        "sample", str(running.folder), "-n", "4", "-o", "x.png", cwd=running.folder.parent
    )
    assert sampled.status == 0, sampled


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
@claim("exits", "128 + N signal N")
def test_launcher_is_asked_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    running = training(tmp_path, *LONG)
    running.process.send_signal(number)
    result = finish(running.process)
    assert result.status == 128 + number, result
    stopped_at = read_status(running.folder)["iteration"]
    assert f"stopped when asked to: {stopped_at} of 100,000 iterations" in result.output
    assert "go on      mdgan train --resume run\n" in result.output
    assert "Traceback" not in result.errors
    check_left_whole(running, "stopped")
    check_goes_on(running, stopped_at, stopped_at + 7)


def check_goes_on(running: Training, stopped_at: int, iterations: int) -> None:
    """The run goes on from where it was stopped, as if it had never been, bit for bit."""
    manifest = Checkpoints(running.folder / "checkpoints", keep=1).newest()[0]
    assert manifest is not None
    assert (manifest.iteration, manifest.workers) == (stopped_at, (1, 2, 3, 4))
    flags_of_run = ["--transport", "memory", "--iterations", str(iterations)]
    above = running.folder.parent
    for command in (
        ["train", "--resume", "run", *flags_of_run],
        [*LONG, *flags_of_run, "--out", "whole"],
    ):
        result = run_here(*command, cwd=above)
        assert result.status == 0, result
    assert generator_bytes(running.folder) == generator_bytes(above / "whole")


@pytest.mark.slow
def test_who_asks_twice_does_not_wait_for_an_iteration(tmp_path: Path) -> None:
    running = training(tmp_path, *LONG, "--log-file", "log")
    os.kill(running.hosts()[0], signal.SIGSTOP)
    running.process.send_signal(signal.SIGINT)
    log = tmp_path / "log"
    wait_until(lambda: "Ctrl-C again: at once" in log.read_text(), "an answer to Ctrl-C")
    running.process.send_signal(signal.SIGINT)
    result = finish(running.process, timeout=300)
    assert result.status == 130, result
    assert "Traceback" not in result.errors
    check_left_whole(running, "stopped")


def test_ctrl_c_in_a_terminal_reaches_all_processes_at_once(tmp_path: Path) -> None:
    running = training(tmp_path, *LONG)
    os.killpg(running.process.pid, signal.SIGINT)
    result = finish(running.process)
    assert result.status == 130, result
    assert "stopped when asked to" in result.output
    assert "lost rank" not in result.errors
    check_left_whole(running, "stopped")


def test_launcher_is_killed(tmp_path: Path) -> None:
    running = training(tmp_path, *LONG)
    running.process.kill()
    finish(running.process)
    check_left_whole(running, "stopped")


@pytest.mark.slow
def test_server_is_killed(tmp_path: Path) -> None:
    running = training(tmp_path, *LONG)
    os.kill(running.server(), signal.SIGKILL)
    result = finish(running.process)
    assert result.status == 128 + signal.SIGKILL
    assert "rank 0 was killed by signal 9" in result.errors
    assert "Traceback" not in result.errors


def test_all_workers_killed(tmp_path: Path) -> None:
    running = training(tmp_path, *LONG, "--set", "patience=0.5")
    for host in running.hosts():
        os.kill(host, signal.SIGKILL)
    result = finish(running.process)
    assert result.status == 1
    assert "waiting 0.5 s for one to come back, or to join (mdgan join)" in result.errors
    assert "and none came" in result.errors
    assert "Traceback" not in result.errors
    check_left_whole(running, "failed")


@pytest.mark.parametrize("command", ["memory", pytest.param("standalone", marks=pytest.mark.slow)])
def test_one_process_is_asked_to_stop(tmp_path: Path, command: str) -> None:
    flags = ["standalone"] if command == "standalone" else ["train", "--transport", "memory"]
    running = training(tmp_path, *flags, *LONG[1:])
    wait_until(lambda: running.has_reached(10), "ten iterations")
    running.process.send_signal(signal.SIGINT)
    result = finish(running.process)
    assert result.status == 130, result
    assert "stopped when asked to" in result.output
    check_left_whole(running, "stopped")
    outcome = Checkpoints(running.folder / "checkpoints", keep=1).newest()[0]
    assert outcome is not None
    assert outcome.iteration == read_status(running.folder)["iteration"]


@pytest.mark.slow
def test_full_disk(tmp_path: Path) -> None:
    """No file may exceed 100 KB here, which is where a full disk would cut the generator."""
    command = shlex.join([*MDGAN, *LONG, "--out", "run"])
    result = finish(start(["bash", "-c", f"ulimit -f 100; exec {command}"], tmp_path))
    assert result.status == 1, result
    assert "generator-average.safetensors: cannot write there (File too large)" in result.errors
    assert "Traceback" not in result.errors
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert not (tmp_path / "run" / "generator.safetensors").exists()


INTERRUPTED = """
import os, runpy, signal, sys
name = sys.argv.pop(1)
class Finder:
    def find_spec(self, found, *_):
        if found == name:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module("mdgan", run_name="__main__", alter_sys=True)
"""
"""Ctrl-C at the moment at which `mdgan` imports a module."""


@pytest.mark.parametrize(("module", "status"), [("click", -signal.SIGINT), ("torch._C", 130)])
def test_ctrl_c_at_the_start_ends_without_a_traceback(
    tmp_path: Path, module: str, status: int
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "train", "--out", "run"]
    result = finish(start(command, tmp_path, PYTHONPATH=str(REPOSITORY)), 120)
    assert result.status == status
    assert "Traceback" not in result.errors
    assert not (tmp_path / "run").exists()
