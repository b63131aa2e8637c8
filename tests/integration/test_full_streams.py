"""A log on a full disk, and a reader that goes away, end no command and change no exit status."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path

import pytest

from mdgan.cli import main
from tests.processes import MDGAN, finish, read_metrics, read_status, start, training, wait_until

QUICK = ["--world-size", "3", "--threads", "1", "--log-interval", "1"]


def full() -> TextIOWrapper:
    return Path("/dev/full").open("w")


def left_by_its_reader() -> TextIOWrapper:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


@pytest.mark.parametrize("make", [full, left_by_its_reader])
def test_training_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], TextIOWrapper]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (takes_output, takes_errors) in enumerate([(1, 0), (0, 1), (1, 1)]):
        stream = make()
        flags = ["--transport", "memory", "--iterations", "3", "--out", f"run{number}"]
        with (
            pytest.raises(SystemExit) as ended,
            redirect_stdout(stream if takes_output else sys.stdout),
            redirect_stderr(stream if takes_errors else sys.stderr),
        ):
            main(["train", *QUICK, *flags])
        with suppress(OSError):  # its last line cannot be written
            stream.close()
        assert ended.value.code == 0
        assert read_status(tmp_path / f"run{number}")["state"] == "finished"
        assert read_metrics(tmp_path / f"run{number}")[-1]["iteration"] == 3


def shell(command: str, folder: Path) -> int:
    return finish(start(["bash", "-c", command], folder), timeout=280).status


def train(*flags: str) -> str:
    return shlex.join([*MDGAN, "train", *QUICK, *flags])


STREAMS = [">/dev/full", "2>/dev/full", ">/dev/full 2>&1", ">&- 2>&-"]


@pytest.mark.slow
@pytest.mark.parametrize("streams", STREAMS)
def test_training_in_several_processes(tmp_path: Path, streams: str) -> None:
    assert shell(f"{train('--iterations', '30', '--out', 'run')} {streams}", tmp_path) == 0
    assert read_status(tmp_path / "run")["state"] == "finished"


@pytest.mark.slow
def test_a_reader_of_one_line(tmp_path: Path) -> None:
    command = train("--iterations", "60", "--out", "run")
    assert shell(f"{command} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}", tmp_path) == 0
    assert read_status(tmp_path / "run")["state"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("streams", [">/dev/full 2>&1", "2>&1 | head -1; exit ${PIPESTATUS[0]}"])
def test_a_worker_that_joins(tmp_path: Path, streams: str) -> None:
    running = training(tmp_path, "train", *QUICK, "--iterations", "100000")
    joins = start(["bash", "-c", f"{shlex.join([*MDGAN, 'join', 'run'])} {streams}"], tmp_path)
    wait_until(lambda: read_metrics(running.folder)[-1]["workers"] == 3, "the newcomer")
    running.process.terminate()
    assert finish(running.process).status == 143
    assert finish(joins).status == 130, "the server was asked to stop"


@pytest.mark.slow
@pytest.mark.parametrize("streams", STREAMS[:3])
def test_a_comparison(tmp_path: Path, streams: str) -> None:
    (tmp_path / "a.json").write_text('{"world_size": 3}')
    flags = ["--seeds", "0", "--iterations", "20", "--threads", "1", "--out", "both"]
    command = shlex.join([*MDGAN, "compare", "a.json", *flags])
    assert shell(f"{command} {streams}", tmp_path) == 0
    assert (tmp_path / "both" / "comparison.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("streams", [">/dev/full 2>&1", "2>&1 | head -1; exit ${PIPESTATUS[0]}"])
def test_chaos_and_a_standby(tmp_path: Path, streams: str) -> None:
    flags = ["--seed", "1", "--faults", "2", "--kinds", "server,join", "--"]
    more = [*QUICK, "--iterations", "400", "--out", "run"]
    command = shlex.join([*MDGAN, "chaos", *flags, *more])
    assert shell(f"{command} {streams}", tmp_path) == 0
    assert read_status(tmp_path / "run")["state"] == "finished"
