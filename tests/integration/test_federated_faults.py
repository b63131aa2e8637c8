"""FL-GAN and FeGAN while processes are killed, stopped, resumed and joined."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.federated import rounds_of
from tests.processes import (
    MDGAN,
    Training,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run_here,
    start,
    training,
    wait_until,
)

FLAGS = [
    *("train", "--algorithm", "fegan", "--participation", "0.5", "--round-iterations", "5"),
    *("--batch-size", "8", "--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
    *("--checkpoint-interval", "10", "--log-interval", "1"),
]
FOR_LONG = [*FLAGS, "--iterations", "1000000"]


def begin(folder: Path, *flags: str) -> Training:
    """A run that has made two checkpoints."""
    running = training(folder, *FOR_LONG, *flags)
    made = running.folder / "checkpoints"
    wait_until(lambda: len(list(made.glob("*/manifest.json"))) > 1, "two checkpoints")
    wait_until(lambda: running.has_reached(25), "rounds after a checkpoint")
    return running


def check_goes_on_as_if_nothing_had_been(folder: Path, *flags: str) -> None:
    """Resumes a run for some rounds more, and compares with one that was never stopped."""
    end = str(read_metrics(folder / "run")[-1]["iteration"] + 13)
    again = run_here(
        "train", "--resume", "run", "--transport", "memory", "--iterations", end, cwd=folder
    )
    assert again.status == 0, again
    assert "Traceback" not in again.errors
    flags = (*FLAGS, *flags, "--transport", "memory", "--iterations", end, "--out", "whole")
    assert run_here(*flags, cwd=folder).status == 0
    assert generator_bytes(folder / "run") == generator_bytes(folder / "whole")
    done = [record["iteration"] for record in read_metrics(folder / "run")]
    assert done == [record["iteration"] for record in read_metrics(folder / "whole")]
    ours, theirs = (
        [(event["number"], event["took_part"]) for event in rounds_of(folder / name)]
        for name in ("run", "whole")
    )
    assert ours[-3:] == theirs[-3:]


def test_a_run_that_was_asked_to_stop(tmp_path: Path) -> None:
    running = begin(tmp_path)
    running.process.terminate()
    stopped = finish(running.process)
    assert stopped.status == 128 + signal.SIGTERM, stopped
    assert read_status(running.folder)["state"] == "stopped"
    check_goes_on_as_if_nothing_had_been(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [[], ["--set", "checkpoint_to_server=true", "--sampling", "random"]], ids=str
)
def test_a_server_that_was_killed(tmp_path: Path, flags: list[str]) -> None:
    running = begin(tmp_path, *flags)
    os.kill(running.server(), signal.SIGKILL)
    killed = finish(running.process)
    assert killed.status == 128 + signal.SIGKILL, killed
    check_goes_on_as_if_nothing_had_been(tmp_path, *flags)


def lose_rank_2(running: Training) -> None:
    """Kills a worker, and sees rounds go on without it."""
    os.kill(running.hosts()[1], signal.SIGKILL)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "a loss")
    (lost,) = read_events(running.folder, "lost")
    assert lost["workers"] == [2]
    wait_until(lambda: took_part(running, lost, 1, 3, 4), "rounds without rank 2")


def took_part(running: Training, since: dict[str, Any], *workers: int) -> bool:
    """Whether just these have taken part in a round that began after an event."""
    later = [e for e in rounds_of(running.folder) if e["iteration"] > since["iteration"] + 5]
    return any(event["took_part"] == list(workers) for event in later)


def test_a_killed_worker_is_not_missed(tmp_path: Path) -> None:
    running = begin(tmp_path, "--participation", "1")
    lose_rank_2(running)
    running.process.terminate()
    result = finish(running.process)
    assert "Traceback" not in result.errors, result
    assert running.metrics()[-1]["workers"] == 3


@pytest.mark.slow
def test_another_joins_for_a_killed_one(tmp_path: Path) -> None:
    running = begin(tmp_path, "--participation", "1")
    lose_rank_2(running)
    guest = start([*MDGAN, "join", str(running.folder), "--threads", "1"], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "a join")
    (joined,) = read_events(running.folder, "joined")
    present = sorted({1, 3, 4, *joined["workers"]})
    assert len(present) == 4
    wait_until(lambda: took_part(running, joined, *present), "rounds with the guest")
    running.process.terminate()
    for process in (running.process, guest):
        result = finish(process)
        assert "Traceback" not in result.errors, result
    assert read_status(running.folder)["state"] == "stopped"


@pytest.mark.parametrize("flag", ["--round-iterations", "--round-epochs"])
def test_another_length_of_rounds_from_here_on(tmp_path: Path, flag: str) -> None:
    here = [*FLAGS, "--transport", "memory", "--iterations", "20", "--out", "run"]
    epochs = ["--config", "settings.json"]
    (tmp_path / "settings.json").write_text('{"algorithm": "fl-gan", "round_epochs": 0.1}')
    if flag == "--round-epochs":
        drop = here.index("--round-iterations")
        here = [*here[:drop], *here[drop + 2 :], "--algorithm", "fl-gan", *epochs]
    first = run_here(*here, cwd=tmp_path)
    assert first.status == 0, first
    value = {"--round-iterations": "3", "--round-epochs": "0.05"}[flag]
    again = ["train", "--resume", "run", flag, value, "--iterations", "26"]
    result = run_here(*again, cwd=tmp_path)
    assert result.status == 0, result
    assert f"{flag[2:].replace('-', '_')} was " in result.errors
    later = [event["iteration"] for event in rounds_of(tmp_path / "run") if event["iteration"] > 20]
    # 0.05 epochs of 360 samples, 8 at a time, are two iterations.
    assert later == ([23, 26] if flag == "--round-iterations" else [22, 24, 26])
