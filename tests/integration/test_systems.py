"""Runs where no process is a fork, and where Linux lacks what macOS lacks."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch import nn

import mdgan
from mdgan.system import START
from tests.processes import (
    MDGAN,
    QUICK,
    QUICK_SETTINGS,
    ended_well,
    finish,
    generator_bytes,
    read_events,
    run,
    start,
    start_anew,
    wait_until,
)

HOW: dict[str, dict[str, str]] = {"forks": {}, "anew": {START: "spawn"}}
SCORED = ["--eval-interval", "6", "--set", "eval_samples=64"]
PAIRS = ["--swap", "pairs", "--swap-interval", "3"]

LIKE_MACOS = """
import os, pathlib, socket
for module, name in (
    *((os, "fork"), (os, "sched_getaffinity"), (os, "sched_setaffinity"), (os, "pidfd_open")),
    *((socket, "SO_PEERCRED"), (socket, "TCP_DEFER_ACCEPT"), (socket, "MSG_NOSIGNAL")),
):
    delattr(module, name)
read_text = pathlib.Path.read_text
def read(path, *arguments, **options):
    if str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(path)
    return read_text(path, *arguments, **options)
pathlib.Path.read_text = read
import mdgan.system
mdgan.system.IS_LINUX = False
"""
"""Each interpreter runs this first, from a `sitecustomize.py`."""


@pytest.fixture
def like_macos(tmp_path: Path) -> dict[str, str]:
    """Variables of a command that finds as little as on macOS."""
    folder = tmp_path / "system"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LIKE_MACOS)
    paths = [str(folder), str(Path(mdgan.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--transport", "memory"], id="its scorer is a process"),
        pytest.param(
            ["--workers-per-host", "1"], id="all roles are processes", marks=pytest.mark.slow
        ),
    ],
)
def test_processes_that_are_no_forks_give_the_same_generator(
    tmp_path: Path, flags: list[str]
) -> None:
    train = ["train", "--world-size", "3", *QUICK, *PAIRS, *SCORED, *flags]
    generators, scores = set(), []
    for how, variables in HOW.items():
        ended = run(*train, "--out", how, cwd=tmp_path, timeout=300, **variables)
        generators.add(ended_well(ended, tmp_path / how))
        rows = read_events(tmp_path / how, "scores")
        scores.append([{k: v for k, v in row.items() if "seconds" not in k} for row in rows])
        if how == "anew":
            assert "mdgan." not in ended.output, "lines are in words of the command line"
    assert len(generators) == 1
    assert [row["iteration"] for row in scores[0]] == [6, 12]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_slots_where_nothing_forks(tmp_path: Path) -> None:
    flags = ["--algorithm", "fl-gan", "--clients", "6", "--slots", "2", "--local-steps", "1"]
    train = ["train", "--world-size", "3", *QUICK, *flags, "--iterations", "2"]
    for out, variables in HOW.items():
        ended = run(*train, "--out", out, cwd=tmp_path, timeout=300, **variables)
        assert ended.status == 0, ended
    assert generator_bytes(tmp_path / "forks") == generator_bytes(tmp_path / "anew")


@pytest.mark.slow
@pytest.mark.usefixtures("cwd")
def test_a_program_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program alone has reaches every process, and their events reach the program."""
    monkeypatch.setenv(START, "spawn")
    iterations = []

    def generator() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))

    def discriminator() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))

    def note(reached: mdgan.Reached) -> None:
        iterations.append(reached.iteration)

    models: dict[str, Any] = {"generator": generator, "discriminator": discriminator, "z_dim": 16}
    mdgan.train(out="run", world_size=2, callbacks=[note], **models, **QUICK_SETTINGS)
    assert iterations[-1] == 12


@pytest.mark.slow
def test_none_outlives_a_killed_launcher(tmp_path: Path) -> None:
    flags = ["--iterations", "100000", "--workers-per-host", "1", "--out", "run"]
    command = [*MDGAN, "train", "--world-size", "3", *QUICK, *flags]
    launcher = start(command, tmp_path, **HOW["anew"])
    log = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: log.exists() and log.stat().st_size > 0, "it trains", 200)
    children = psutil.Process(launcher.pid).children(recursive=True)
    assert len(children) >= 3
    os.kill(launcher.pid, signal.SIGKILL)
    finish(launcher)
    psutil.wait_procs(children, 60)
    assert not [child for child in children if child.is_running()]


@pytest.mark.slow
def test_training_and_joining_with_what_macos_has(
    tmp_path: Path, port: int, like_macos: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "mdgan"]
    memory = ["train", "--transport", "memory", "--world-size", "3", *QUICK, "--out", "memory"]
    ended = finish(start_anew([*command, *memory], tmp_path, **like_macos), 200)
    ended_well(ended, tmp_path / "memory")
    flags = ["--iterations", "100000", "--master-port", str(port), "--out", "run"]
    server = start([*MDGAN, "train", "--world-size", "2", *QUICK, *flags], tmp_path)
    log = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: log.exists() and log.stat().st_size > 0, "it trains", 200)
    join = [*command, "join", "--master-port", str(port), "--log-file", "join.log"]
    joining = start_anew(join, tmp_path, **like_macos)
    told = tmp_path / "join.log"
    wait_until(lambda: told.exists() and "joined as rank" in told.read_text(), "it joins", 200)
    server.terminate()
    assert finish(server).status == 128 + signal.SIGTERM
    finish(joining)
