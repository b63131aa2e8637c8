"""Training continues when the run's folder disappears, or when no file can be opened."""

import resource
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import Checkpoints
from tests.processes import (
    MDGAN,
    Process,
    Training,
    finish,
    read_events,
    read_metrics,
    read_status,
    start,
    wait_until,
)

FLAGS = [
    *("train", "--world-size", "3", "--threads", "1", "--log-interval", "1"),
    *("--sample-interval", "20", "--checkpoint-interval", "20", "--log-file", "log"),
]
pytestmark = pytest.mark.slow
WARNING = "training goes on"
BACK = "can be written again"


def begun(folder: Path, *flags: str) -> Training:
    """A run that trains; temporary files are in `tmp`."""
    (folder / "tmp").mkdir()
    command = [*MDGAN, *FLAGS, *flags, "--out", "run"]
    running = Training(start(command, folder, TMPDIR=str(folder / "tmp")), folder / "run")
    wait_until(lambda: running.has_reached(20), "training")
    return running


def wait_for_line(folder: Path, text: str, times: int = 1) -> None:
    wait_until(lambda: (folder / "log").read_text().count(text) >= times, text)


def allow_files(processes: Sequence[int], number: int | None) -> None:
    """Bounds the number of the next file that processes may open; None: as before."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for process in processes:
        limits = (hard if number is None else number, hard)
        resource.prlimit(process, resource.RLIMIT_NOFILE, limits)


def stop(process: Process) -> str:
    process.send_signal(signal.SIGTERM)
    result = finish(process)
    assert result.status == 128 + signal.SIGTERM, result
    assert "Traceback" not in result.errors, result
    return result.output


def test_no_file_can_be_opened_and_then_the_folder_is_away(tmp_path: Path) -> None:
    running = begun(tmp_path, "--iterations", "100000")
    flags_of_run = [
        child.pid for child in psutil.Process(running.process.pid).children(recursive=True)
    ]
    allow_files(flags_of_run, 3)
    wait_for_line(tmp_path, "Too many open files; training goes on")
    allow_files(flags_of_run, None)
    wait_for_line(tmp_path, BACK)
    recorded = read_metrics(running.folder)[-1]["iteration"]
    running.folder.rename(tmp_path / "away")
    wait_for_line(tmp_path, f"No such file or directory; {WARNING}")
    assert not running.folder.exists()
    (tmp_path / "away").rename(running.folder)
    wait_for_line(tmp_path, BACK, 2)
    output = stop(running.process)
    stopped_at = read_status(running.folder)["iteration"]
    assert stopped_at > recorded
    assert f"stopped when asked to: {stopped_at} of 100,000 iterations" in output
    assert RunDirectory(running.folder).read_generator()[1] == stopped_at
    newest, passed_over = Checkpoints(running.folder / "checkpoints", keep=1).newest()
    assert newest is not None
    assert (newest.iteration, newest.workers, passed_over) == (stopped_at, (1, 2), [])
    assert not read_events(running.folder, "lost")


def test_the_folder_is_gone_for_good(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    running = begun(
        tmp_path, "--iterations", "250", "--tracker", "tensorboard", "--eval-interval", "100"
    )
    running.folder.rename(tmp_path / "away")
    result = finish(running.process)
    assert result.status == 1, result
    assert "Traceback" not in result.errors, result
    assert result.errors.count("warning: cannot write") == 1, result
    assert "tensorboard gets no more records" in result.errors
    assert "done: 250 of 250 iterations" in result.output
    (saved,) = (file.parent for file in (tmp_path / "tmp").glob("*/generator.safetensors"))
    message = (
        "cannot write there (No such file or directory); name another place. The generator of "
    )
    assert f"{message}iteration 250 is in {saved}" in result.errors, result
    assert RunDirectory(saved).read_generator()[1] == 250
    assert not running.folder.exists(), "nothing is written where it was"


def test_another_run_has_taken_the_folders_place(tmp_path: Path) -> None:
    running = begun(tmp_path, "--iterations", "100000")
    running.folder.rename(tmp_path / "away")
    wait_for_line(tmp_path, WARNING)
    other = [*MDGAN, *FLAGS[:-2], "--iterations", "30", "--out", "run"]
    assert finish(start([*other, "--transport", "memory"], tmp_path)).status == 0
    stop(running.process)
    assert read_status(running.folder)["iteration"] == 30
    assert read_metrics(running.folder)[-1]["iteration"] == 30
    assert RunDirectory(running.folder).read_generator()[1] == 30


@pytest.mark.parametrize("limit", [8, 63, 64])
def test_a_start_with_few_open_files(tmp_path: Path, limit: int) -> None:
    command = " ".join([*MDGAN, *FLAGS, "--iterations", "40", "--out", "run"])
    result = finish(start(["bash", "-c", f"ulimit -n {limit}; exec {command}"], tmp_path))
    assert "Traceback" not in result.errors, result
    if limit < 64:
        assert result.status == 2, result
        assert f"ulimit -n {limit}: allows processes too few open files" in result.errors
    else:
        assert read_status(tmp_path / "run")["state"] == "finished"
