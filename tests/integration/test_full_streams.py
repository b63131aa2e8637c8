"""A log on a full disk, or a reader that ends, stops no command and changes no exit status."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path

import pytest

from mdgan.cli import main
from tests.processes import MDGAN, finish, read_metrics, read_status, start

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


NO_ROOM, ONE_LINE = ">/dev/full 2>&1", "2>&1 | head -1; exit ${PIPESTATUS[0]}"
TRAIN = ["train", *QUICK, "--iterations", "60", "--out", "out"]
COMPARE = ["compare", "a.json", "--seeds", "0", "--iterations", "20", "--threads", "1"]
CHAOS = ["chaos", "--seed", "1", "--faults", "2", "--kinds", "server,join", "--"]
CHAOS += [*QUICK, "--iterations", "400"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "streams"),
    [
        *((TRAIN, streams) for streams in (">/dev/full", "2>/dev/full", ">&- 2>&-")),
        *((TRAIN, streams) for streams in (NO_ROOM, ONE_LINE)),
        *(([*COMPARE, "--out", "out"], streams) for streams in (">/dev/full", NO_ROOM)),
        *(([*CHAOS, "--out", "out"], streams) for streams in (NO_ROOM, ONE_LINE)),
    ],
)
def test_commands_of_several_processes(tmp_path: Path, command: list[str], streams: str) -> None:
    (tmp_path / "a.json").write_text('{"world_size": 3}')
    line = f"{shlex.join([*MDGAN, *command])} {streams}"
    assert finish(start(["bash", "-c", line], tmp_path), timeout=300).status == 0
    if command[0] == "compare":
        assert (tmp_path / "out" / "comparison.json").is_file()
    else:
        assert read_status(tmp_path / "out")["state"] == "finished"
