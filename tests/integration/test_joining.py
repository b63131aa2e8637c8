"""Ranks of several commands find each other, or learn the reason in one line."""

import re
import signal
import socket
from pathlib import Path

import pytest

from tests.processes import MDGAN, QUICK, check_refused, finish, read_status, start, wait_until
from tests.unit.dataset_formats import write_mnist


def train(*flags: str, port: int) -> list[str]:
    return [*MDGAN, "train", *QUICK, "--master-port", str(port), *flags]


def test_ranks_started_apart(tmp_path: Path, port: int) -> None:
    workers = start(train("--world-size", "3", "--ranks", "1..2", port=port), tmp_path)
    server = train("--world-size", "3", "--ranks", "0", "--out", "run", port=port)
    results = [finish(start(server, tmp_path)), finish(workers)]
    assert [result.status for result in results] == [0, 0], results
    # The machine without the server tells its user what it does.
    assert results[1].output == "rank 1, 2 ended with status 0\n"
    output = {re.sub(r"^\S+ \S+ ", "", line) for line in results[1].errors.splitlines()}
    assert any(line.startswith("rank 1 | iteration ") for line in output)
    assert output >= {
        "joined as rank 1; holds 719 samples; iteration 0",
        "joined as rank 2; holds 719 samples; iteration 0",
        "rank 1 is done after iteration 12 of 12",
        "rank 2 is done after iteration 12 of 12",
        f"starting rank 1, 2; waiting for the server at 127.0.0.1:{port}",
    }
    assert read_status(tmp_path / "run")["state"] == "finished"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--batch-size", "9"], "rank 1 has batch_size = 9, rank 0 has batch_size = 8"),
        (["--dataset", "mnist"], "rank 1 has dataset = mnist, rank 0 has dataset = digits"),
    ],
)
def test_a_rank_with_other_settings_is_told_which(
    tmp_path: Path, port: int, flags: list[str], says: str
) -> None:
    write_mnist(tmp_path / "data" / "mnist", 40)
    # The server waits for rank 2 after it has refused rank 1, instead of ending at once.
    trio = ["--world-size", "3", "--set", "connect_timeout=60"]
    serving = start(train(*trio, "--ranks", "0", "--out", "run", port=port), tmp_path)
    worker = finish(start(train(*trio, "--ranks", "1", *flags, port=port), tmp_path))
    check_refused(worker, "refused", says, "same settings")
    serving.terminate()
    assert f"refused a host: {says}" in finish(serving).errors


def test_a_rank_that_is_there_already(tmp_path: Path, port: int) -> None:
    trio = ["--world-size", "3", "--set", "connect_timeout=60"]
    serving = start(train(*trio, "--ranks", "0", "--out", "run", port=port), tmp_path)
    one = [*trio, "--ranks", "1", "--log-file"]
    twins = [start(train(*one, f"{name}.log", port=port), tmp_path) for name in "ab"]
    wait_until(lambda: any(twin.poll() is not None for twin in twins), "one of two is refused")
    logs = [tmp_path / f"{name}.log" for name in "ab"]
    wait_until(lambda: any("joined as" in log.read_text() for log in logs), "the other is in")
    refused, admitted = sorted(twins, key=lambda twin: twin.poll() is None)
    check_refused(finish(refused), "rank 1 has joined already")
    serving.terminate()
    assert finish(serving).status == 128 + signal.SIGTERM
    assert "the server was asked to stop" in finish(admitted).errors


def test_the_server_says_who_has_come_and_who_has_not(tmp_path: Path, port: int) -> None:
    trio, log = ["--world-size", "4", "--set", "connect_timeout=60"], tmp_path / "server.log"
    zero = [*trio, "--ranks", "0", "--out", "run", "--log-file", "server.log"]
    serving = start(train(*zero, port=port), tmp_path)
    two = start(train(*trio, "--ranks", "2", port=port), tmp_path)
    says = "rank(s) 2 joined (479 samples); waiting for rank(s) 1,3"
    wait_until(lambda: log.exists() and says in log.read_text(), "it says so")
    serving.terminate()
    finish(serving)
    finish(two)


def test_workers_that_never_come(tmp_path: Path, port: int) -> None:
    flags = ["--world-size", "3", "--set", "connect_timeout=1", "--ranks", "0", "--out", "run"]
    result = finish(start(train(*flags, port=port), tmp_path))
    check_refused(result, "rank(s) 1,2 did not join within 1 s", "--ranks 1,2", lines=2)
    assert " starting 1 process for run, others may join at 127.0.0.1:" in result.errors


@pytest.mark.parametrize("listens", [False, True])
def test_no_server(tmp_path: Path, listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port, says = silent.getsockname()[1], "no server answers at 127.0.0.1:{} after 1 s"
        if listens:
            silent.listen()
            says = "the server at 127.0.0.1:{} did not admit this host"
        flags = ["--ranks", "1", "--set", "connect_timeout=1"]
        result = finish(start(train(*flags, port=port), tmp_path))
    check_refused(result, says.format(port), lines=3)  # whom it trusts, and that it waits
