"""A resumption that fails leaves every byte of the run's folder as it was."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gallery import Gallery
from tests.processes import (
    MDGAN,
    check_refused,
    finish,
    read_metrics,
    read_status,
    run_here,
    start,
    wait_until,
)

FLAGS = [
    *("train", "--transport", "memory", "--world-size", "3", "--threads", "1"),
    *("--checkpoint-interval", "5", "--log-interval", "1", "--batch-size", "8"),
]
OVER_THE_NETWORK = ["--transport", "tcp", "--ranks", "0", "--listen", "127.0.0.1:0"]


@pytest.fixture(scope="session")
def ended(gallery: Gallery) -> Path:
    """A run that was cut short between two checkpoints, and while it wrote a picture."""
    return gallery.show("cut-short", cut_short) / "run"


def cut_short(folder: Path) -> None:
    result = run_here(*FLAGS, "--iterations", "5", "--out", "run", cwd=folder)
    assert result.status == 0, result
    with (folder / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"iteration": 7, "seconds": 9.0}) + "\n")
    (folder / "run" / "samples" / ".0000010.png.12.tmp").write_bytes(b"half")
    status = read_status(folder / "run")
    (folder / "run" / "run.json").write_text(json.dumps({**status, "state": "failed"}))


@pytest.fixture
def run(ended: Path, tmp_path: Path) -> Path:
    shutil.copytree(ended, tmp_path / "run")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


REFUSED = {
    "--iterations -1": "--iterations -1: ",
    "--iterations 5": "all 5 iterations are done",
    "--dataset nowhere": "nowhere",
    "--architecture dcgan": "its checkpoint does not fit the models",
    "--algorithm fl-gan": "was trained with mdgan",
    "--out other": "the run goes on in its folder",
    "--seed 3 --batch-size 9 --world-size 1": "--world-size 1: ",
    "--log-file nowhere/log": "nowhere/log: cannot be written",
    "--transport tcp --ranks 0 --master-addr 192.0.2.1": "192.0.2.1",
    "--transport tcp --ranks 0 --listen 0.0.0.0": "give --credentials",
    "--transport tcp --ranks 0 --credentials nowhere.cred": "nowhere.cred",
}


def check_left_alone(run: Path, says: str, *flags: str) -> None:
    before = contents(run)
    check_refused(run_here("train", "--resume", "run", *flags, cwd=run.parent), says)
    assert contents(run) == before


@pytest.mark.parametrize("flags", REFUSED)
def test_what_is_refused(run: Path, flags: str) -> None:
    more = [] if "--iterations" in flags else ["--iterations", "20"]
    check_left_alone(run, REFUSED[flags], *flags.split(), *more)


def test_a_port_that_is_taken(run: Path, taken_port: int) -> None:
    flags = [*OVER_THE_NETWORK[:-1], f"127.0.0.1:{taken_port}", "--iterations", "20"]
    check_left_alone(run, str(taken_port), *flags)


def test_a_damaged_checkpoint(run: Path) -> None:
    (state,) = run.glob("checkpoints/*5/server.safetensors")
    for path in (state, *run.glob("checkpoints/*0/manifest.json")):
        path.write_bytes(path.read_bytes()[:-9])
    check_left_alone(run, "has no whole checkpoint", "--iterations", "20")


def test_hosts_that_do_not_come(run: Path) -> None:
    before = contents(run)
    flags = [*OVER_THE_NETWORK, "--iterations", "20", "--set", "connect_timeout=1"]
    flags += ["--tracker", "tensorboard"]
    result = finish(start([*MDGAN, "train", "--resume", "run", *flags], run.parent))
    check_refused(result, "rank(s) 1,2 did not join within 1 s")
    assert contents(run) == before


def test_an_end_while_the_server_waits_for_hosts(run: Path) -> None:
    before = contents(run)
    (run.parent / "log").touch()
    flags = [*OVER_THE_NETWORK, "--iterations", "20", "--log-file", "log"]
    resumed = start([*MDGAN, "train", "--resume", "run", *flags], run.parent)
    wait_until(lambda: "starting" in (run.parent / "log").read_text(), "the server", 60)
    resumed.send_signal(signal.SIGINT)
    result = finish(resumed)
    assert result.status == 130, result
    assert contents(run) == before


def test_one_that_does_not_fail_cuts_and_sweeps(run: Path) -> None:
    result = run_here("train", "--resume", "run", "--iterations", "6", cwd=run.parent)
    assert result.status == 0, result
    assert [record["iteration"] for record in read_metrics(run)] == [1, 2, 3, 4, 5, 6]
    assert not list(run.rglob("*.tmp"))
    assert json.loads((run / "config.json").read_text())["iterations"] == 6
    assert sorted(path.name for path in run.glob("generation-*")) == [
        "generation-1.json",
        "generation-2.json",
    ]
