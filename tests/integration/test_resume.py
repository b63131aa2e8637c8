"""A run that ended early continues from its newest checkpoint as if it had never ended."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.gallery import Gallery
from tests.marks import mostly_slow
from tests.processes import (
    Finished,
    check_refused,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    read_status,
    run,
    run_here,
    training,
    wait_until,
)

FLAGS = [
    *("train", "--threads", "1", "--batch-size", "8", "--swap-interval", "3"),
    *("--sample-interval", "0", "--checkpoint-interval", "5", "--log-interval", "1"),
]
IN_MEMORY = [*FLAGS, "--transport", "memory"]


def here(folder: Path, *arguments: str) -> Finished:
    result = run_here(*arguments, cwd=folder)
    assert "Traceback" not in result.errors
    return result


def worker_states(folder: Path, iteration: int) -> list[bytes]:
    files = sorted((folder / "checkpoints" / f"{iteration:07d}").glob("worker-*.safetensors"))
    assert files
    return [file.read_bytes() for file in files]


@pytest.fixture(scope="session")
def ended_at_10(gallery: Gallery) -> Path:
    """A run with checkpoints of iterations 5 and 10: only the last one of a start is certain."""

    def make(folder: Path) -> None:
        assert here(folder, *IN_MEMORY, "--iterations", "5", "--out", "cut").status == 0
        again = here(folder, "train", "--resume", "cut", "--iterations", "10")
        assert again.status == 0, again

    return gallery.show("ended-at-10", make) / "cut"


@pytest.fixture(scope="session")
def uncut_to_12(gallery: Gallery) -> bytes:
    """The generator of a run that went on to iteration 12 at once."""
    flags = [*IN_MEMORY, "--iterations", "12", "--out", "run"]
    return generator_bytes(gallery.show("uncut-to-12", lambda folder: here(folder, *flags)) / "run")


def test_a_killed_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    running = training(tmp_path, *FLAGS, "--iterations", "100000", name="killed")
    checkpoints = running.folder / "checkpoints"
    wait_until(lambda: len(list(checkpoints.glob("*/manifest.json"))) > 1, "two checkpoints")
    wait_until(lambda: running.has_reached(12), "iterations after a checkpoint")
    os.killpg(running.process.pid, signal.SIGKILL)
    finish(running.process)
    reached = read_metrics(running.folder)[-1]["iteration"]
    last = max(int(file.parent.name) for file in checkpoints.glob("*/manifest.json"))

    end = str(reached + 5)
    resumed = run("train", "--resume", "killed", "--iterations", end, cwd=tmp_path)
    assert resumed.status == 0, resumed
    assert "going on with killed from iteration" in resumed.errors
    assert f"iterations was 100000, is {end}" in resumed.errors
    assert here(tmp_path, *IN_MEMORY, "--iterations", end, "--out", "whole").status == 0
    assert generator_bytes(running.folder) == generator_bytes(tmp_path / "whole")
    assert worker_states(running.folder, int(end)) == worker_states(tmp_path / "whole", int(end))
    (event,) = read_events(running.folder, "resumed")
    assert event["iteration"] <= last + 5
    done = [record["iteration"] for record in read_metrics(running.folder)]
    assert done == list(range(1, int(end) + 1)), "every iteration is recorded once"
    seconds = [record["seconds"] for record in read_metrics(running.folder)]
    assert seconds == sorted(seconds)


def test_states_kept_by_the_server_serve_as_well(tmp_path: Path) -> None:
    flags = [*IN_MEMORY, "--set", "checkpoint_to_server=true"]
    assert here(tmp_path, *flags, "--iterations", "10", "--out", "cut").status == 0
    result = here(tmp_path, "train", "--resume", "cut", "--iterations", "14")
    assert result.status == 0, result
    assert here(tmp_path, *IN_MEMORY, "--iterations", "14", "--out", "whole").status == 0
    assert generator_bytes(tmp_path / "cut") == generator_bytes(tmp_path / "whole")


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        ["server.safetensors", "worker-0002.safetensors", "manifest.json"],
        ["worker-0002.safetensors"],
    ),
)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, ended_at_10: Path, uncut_to_12: bytes, name: str
) -> None:
    shutil.copytree(ended_at_10, tmp_path / "cut")
    file = tmp_path / "cut" / "checkpoints" / "0000010" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    result = here(tmp_path, "train", "--resume", "cut", "--iterations", "12")
    assert result.status == 0, result
    # On a slow disk, that of iteration 5 was left out: the first one was still being written.
    assert re.search("going on with cut from iteration [05]", result.errors)
    assert "passed over checkpoint of iteration 10: " in result.errors
    assert generator_bytes(tmp_path / "cut") == uncut_to_12


@pytest.mark.parametrize("world_size", mostly_slow(["4", "7"], ["7"]))
def test_fewer_or_more_workers(tmp_path: Path, ended_at_10: Path, world_size: str) -> None:
    shutil.copytree(ended_at_10, tmp_path / "run")
    flags = ["--world-size", world_size, "--iterations", "15"]
    result = here(tmp_path, "train", "--resume", "run", *flags)
    assert result.status == 0, result
    assert f"world_size was 5, is {world_size}" in result.errors
    event = read_events(tmp_path / "run", "resumed")[-1]
    assert sorted(map(int, event["workers"])) == list(range(1, int(world_size)))
    assert read_metrics(tmp_path / "run")[-1]["workers"] == int(world_size) - 1


def test_the_baseline_goes_on_too(tmp_path: Path) -> None:
    flags = ["standalone", "--batch-size", "8", "--checkpoint-interval", "5", "--threads", "1"]
    assert here(tmp_path, *flags, "--iterations", "10", "--out", "cut").status == 0
    result = here(tmp_path, "standalone", "--resume", "cut", "--iterations", "13")
    assert result.status == 0, result
    assert here(tmp_path, *flags, "--iterations", "13", "--out", "whole").status == 0
    assert generator_bytes(tmp_path / "cut") == generator_bytes(tmp_path / "whole")


def test_only_the_last_checkpoints_are_kept(tmp_path: Path, ended_at_10: Path) -> None:
    """Of a run that was started several times: a slow disk may leave out any other checkpoint."""
    shutil.copytree(ended_at_10, tmp_path / "run")
    for end in ("15", "17"):
        flags = ["--iterations", end, "--set", "checkpoint_keep=3"]
        assert here(tmp_path, "train", "--resume", "run", *flags).status == 0
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["0000010", "0000015", "0000017"]


def test_runs_that_cannot_be_resumed(tmp_path: Path, ended_at_10: Path) -> None:
    shutil.copytree(ended_at_10, tmp_path / "done")
    for flags, says in (
        (["train", "--resume", "nowhere"], "nowhere: not a run"),
        (["train", "--resume", "done", "--out", "other"], "--out other: the run goes on in its fo"),
        (
            ["train", "--resume", "done"],
            "--resume done: all 10 iterations are done; to go on, give",
        ),
        (
            ["standalone", "--resume", "done", "--iterations", "19"],
            "--resume done: was trained with mdgan; use `mdgan train --algorithm mdgan`",
        ),
    ):
        check_refused(here(tmp_path, *flags), says, lines=1)


def test_a_run_that_is_still_going(tmp_path: Path) -> None:
    running = training(tmp_path, *IN_MEMORY, "--iterations", "100000")
    wait_until(lambda: running.has_reached(6), "a checkpoint")
    result = here(tmp_path, "train", "--resume", "run")
    still = f"--resume run: still running (process {running.process.pid})"
    check_refused(result, still, lines=1)
    running.process.terminate()
    finish(running.process)
    assert read_status(running.folder)["state"] == "stopped"


def test_a_full_disk_costs_checkpoints_and_not_training(tmp_path: Path) -> None:
    """The generator fits on the disk; checkpoints do not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs root to make a small disk")
    try:
        result = here(disk, *IN_MEMORY, "--iterations", "12", "--out", "run")
        assert result.status == 0, result
        assert "could not be written: No space left on device; training goes on" in result.errors
        assert read_metrics(disk / "run")[-1]["iteration"] == 12
        assert read_events(disk / "run", "unsaved")
        assert not list((disk / "run" / "checkpoints").rglob("*.safetensors"))
        assert not [path for path in (disk / "run").rglob("*") if path.name.endswith(".tmp")]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
