"""Starts runs, plays faults on them, and checks what must hold for every run afterwards."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import torch
from safetensors.torch import load_file

from mdgan.chaos.play import ChaosCommands, ChaosLimits, ChaosRun, play
from mdgan.chaos.run import Consequence, consequences, troubles
from mdgan.chaos.schedule import ChaosEvent
from mdgan.launch.faults import Fault
from tests.forks import MDGAN, ForkedCommand
from tests.processes import free_port, read_events, read_records, read_status

STEP = "discriminator.optimizer.1.weight.step"
"""How many optimizer steps a discriminator has gone through, by its own count."""

QUIET = (
    *("--batch-size", "8", "--threads", "1", "--log-interval", "1", "--sample-interval", "0"),
    *("--eval-interval", "0"),
)


def fault(text: str, seconds: float = 0.0) -> ChaosEvent:
    """`host-2:kill@swap:12`, or `…:stop@…` for some seconds, as one planned event."""
    role, rest = text.split(":", 1)
    action, rest = rest.split("@")
    phase, iteration = rest.split(":")
    kind = "server" if role == "server" else action
    return ChaosEvent(kind, int(iteration), Fault(role, action, phase, int(iteration)), seconds)


@dataclass
class Staged:
    """A run that is over.

    Attributes:
        played: what happened, by the engine.
        rows: the outcome of every event.
        run: its folder.
    """

    played: ChaosRun
    rows: list[Consequence]
    run: Path

    def events(self, name: str) -> list[dict[str, Any]]:
        """What is recorded under a name."""
        return read_events(self.run, name)

    def steps(self, worker: int) -> int:
        """`steps` of this run."""
        return steps(self.run, worker)

    def said(self, text: str) -> bool:
        """Whether a user has seen a text."""
        return any(actor.said(text) for actor in self.played.actors)


def stage(
    folder: Path,
    events: Sequence[ChaosEvent],
    *flags: str,
    workers: int,
    iterations: int,
    standby: bool = False,
) -> Staged:
    """Plays events on a run of digits, and checks what must hold however it was struck."""
    run = folder / "run"
    address = ["--master-addr", "127.0.0.1,127.0.0.2"] * standby
    address = [*address, "--master-port", str(free_port())]
    size = ["--world-size", str(workers + 1), "--iterations", str(iterations)]
    places = ["--out", str(run), *address]
    train = ["train", *size, *QUIET, *places, *flags]
    join = ["join", "--threads", "1", *places]
    commands = ChaosCommands(train, join)
    if standby:
        watch = ["standby", str(run), *address]
        others = [*train, "--ranks", f"1..{workers}"]
        commands = ChaosCommands([*train, "--ranks", "0"], join, watch, others)
    limits = ChaosLimits(spare=0, gap_seconds=0.0, rejoin_seconds=float("inf"), stall_seconds=60.0)
    with patch("subprocess.Popen", partial(_forked, folder)):
        played = play(commands, events, limits, run)
    staged = Staged(played, consequences(played), run)
    for row in staged.rows:
        print(" | ".join(row.cells()))
    assert troubles(played, run, iterations, serves=True) == [], lines(played)
    check_left_whole(run, iterations)
    return staged


def _forked(
    folder: Path, command: list[str], *, env: Mapping[str, str], **_: object
) -> ForkedCommand:
    """What chaos starts, without importing everything anew."""
    assert command[: len(MDGAN)] == MDGAN
    return ForkedCommand(command[len(MDGAN) :], folder, env, merged=True)


def steps(run: Path, worker: int) -> int:
    """The optimizer steps of a worker's discriminator in the last checkpoint."""
    (*_, last) = sorted((run / "checkpoints").iterdir())
    return int(load_file(last / f"worker-{worker:04d}.safetensors")[STEP])


def check_left_whole(run: Path, iterations: int) -> None:
    """Told without the engine: the run is done and whole, and no process works on it any more."""
    status = read_status(run)
    assert (status["state"], status["iteration"]) == ("finished", iterations)
    assert [path for path in run.rglob("*") if path.name.endswith(".tmp")] == []
    counted = [record["iteration"] for record in read_records(run) if "event" not in record]
    assert counted == list(range(1, iterations + 1))
    assert all(torch.isfinite(v).all() for v in load_file(run / "generator.safetensors").values())
    for folder in (run / "checkpoints").glob("*"):
        for name in json.loads((folder / "manifest.json").read_text())["files"].values():
            assert all(torch.isfinite(v).all() for v in load_file(folder / name["name"]).values())
    assert who_works_on(run) == []


def who_works_on(run: Path) -> list[list[str]]:
    """The command lines of living processes that name a run, or work in the folder above it."""
    problems = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        command, where = process.info["cmdline"] or [], process.info["cwd"]
        works = str(run) in command or where == str(run.parent)
        if works and process.info["status"] != psutil.STATUS_ZOMBIE:
            problems.append(command)
    return problems


def lines(played: ChaosRun) -> str:
    """Everything that was printed, in order, for a test that fails."""
    messages = sorted(
        (moment, f"{actor.name}: {line}")
        for actor in played.actors
        for moment, line in list(actor.lines)
    )
    return "\n".join(line for _, line in messages)
