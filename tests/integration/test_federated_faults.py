"""FL-GAN and FeGAN while processes are killed, stopped, resumed and joined."""

import os
import signal
from pathlib import Path

import pytest

from tests.integration.federated import rounds_of
from tests.processes import (
    Training,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run_here,
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


@pytest.mark.slow
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


def test_a_killed_worker_is_not_missed(tmp_path: Path) -> None:
    running = begin(tmp_path, "--participation", "1")
    os.kill(running.hosts()[1], signal.SIGKILL)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "a loss")
    (lost,) = read_events(running.folder, "lost")
    assert lost["workers"] == [2]

    def goes_on() -> bool:
        later = [e for e in rounds_of(running.folder) if e["iteration"] > lost["iteration"] + 5]
        return any(event["took_part"] == [1, 3, 4] for event in later)

    wait_until(goes_on, "rounds without rank 2")
    running.process.terminate()
    result = finish(running.process)
    assert "Traceback" not in result.errors, result
    assert running.metrics()[-1]["workers"] == 3


def test_another_length_of_rounds_from_here_on(tmp_path: Path) -> None:
    first = [*FLAGS, "--transport", "memory", "--iterations", "20", "--out", "run"]
    assert run_here(*first, cwd=tmp_path).status == 0
    again = ["train", "--resume", "run", "--round-iterations", "3", "--iterations", "26"]
    result = run_here(*again, cwd=tmp_path)
    assert result.status == 0, result
    assert "round_iterations was " in result.errors
    later = [event["iteration"] for event in rounds_of(tmp_path / "run") if event["iteration"] > 20]
    assert later == [23, 26]
