"""Hosts that join during training, that leave, and that the server keeps out."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    Training,
    finish,
    read_events,
    read_status,
    run,
    run_here,
    start,
    training,
    wait_until,
)

FLAGS = [
    *("train", "--threads", "1", "--batch-size", "8", "--swap-interval", "5"),
    *("--log-interval", "1", "--workers-per-host", "1"),
]
LISTEN = ["--listen", "127.0.0.1:0"]


def where(running: Training) -> tuple[str, str]:
    """Address and port of a run's server, if it has one."""
    address, _, port = read_status(running.folder)["listens"].rpartition(":")
    return address, port


def stop(running: Training) -> str:
    """Ends a run; what it said."""
    running.process.terminate()
    result = finish(running.process)
    assert "Traceback" not in result.errors, result
    return result.errors


@pytest.mark.slow
def test_one_comes_one_leaves_and_one_comes_back(tmp_path: Path) -> None:
    flags = ["--iterations", "100000", "--liveness-timeout", "5", "--world-size", "4"]
    running = training(tmp_path, *FLAGS, *flags)
    leaver, sleeper, _ = running.hosts()

    # A worker leaves when it is asked to; what it has answered counts, and its rank is free.
    os.kill(leaver, signal.SIGTERM)
    wait_until(lambda: bool(read_events(running.folder, "left")), "a leave")
    assert read_events(running.folder, "left")[0]["workers"] == [1]
    assert not read_events(running.folder, "lost")

    # Another takes over its rank, and with it its share of the data.
    assert where(running) == ("", "")  # no port is open
    guest = start([*MDGAN, "join", "run"], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "a join")
    (joined,) = read_events(running.folder, "joined")
    (holdings,) = read_events(running.folder, "holdings")
    assert joined["workers"] == [1]
    assert joined["holdings"]["1"] == holdings["workers"]["1"]
    at = joined["iteration"]
    wait_until(
        lambda: any(r["iteration"] > at and r["workers"] == 3 for r in running.metrics()),
        "iterations with the guest",
    )
    swapped_from = at + 1
    wait_until(
        lambda: any(
            event["iteration"] > swapped_from and "1" in event["taken"] and event["exact"]
            for event in read_events(running.folder, "swap")
        ),
        "a swap with the guest",
    )

    # A host that sleeps for longer than the server believes in it comes back by itself.
    os.kill(sleeper, signal.SIGSTOP)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "a loss")
    os.kill(sleeper, signal.SIGCONT)
    wait_until(lambda: len(read_events(running.folder, "joined")) == 2, "a return")
    assert read_events(running.folder, "joined")[1]["workers"] == [2]

    said = stop(running)
    assert "rank(s) 1 left; 2 left" in said
    assert "rank(s) 1 joined; 3 now" in said
    assert "lost rank(s) 2: its connection closed, or it was silent for 5 s; 2 left" in said
    assert "rank 2 is back after" in said
    ended = finish(guest)
    assert ended.status == 130, ended
    assert "the server was asked to stop" in ended.errors


@claim("strangers", "No machine takes part without a certificate of the run's authority")
def test_the_uninvited_are_kept_out(tmp_path: Path) -> None:
    """Training with credentials goes on while others try to come in without, or send rubbish."""
    for name in ("run.cred", "other.cred"):
        assert run_here("credentials", "new", name, cwd=tmp_path).status == 0
    flags = ["--iterations", "100000", "--world-size", "3", "--credentials", "run.cred", *LISTEN]
    running = training(tmp_path, *FLAGS, *flags)
    address, port = where(running)
    target = (address, int(port))
    before = len(running.metrics())

    half_open = [socket.create_connection(target, timeout=5) for _ in range(100)]
    for rubbish in (b"\0" * 4096, b"GET / HTTP/1.1\r\n\r\n", os.urandom(100_000)):
        with socket.create_connection(target, timeout=5) as stranger:
            stranger.settimeout(10)
            try:
                stranger.sendall(rubbish)
                stranger.shutdown(socket.SHUT_WR)
                assert len(stranger.recv(4096)) < 100, "nothing is told to strangers"
            except OSError:
                pass  # it was closed in the middle
    master = ["--master-addr", address, "--master-port", port, "--set", "connect_timeout=20"]
    arguments = [
        threading.Thread(target=_is_refused, args=(tmp_path, [*master, *shown]))
        for shown in ([], ["--credentials", "other.cred"])
    ]
    for thread in arguments:
        thread.start()
    for thread in arguments:
        thread.join()
    assert (tmp_path / "refusals").read_text().count("refused\n") == 2
    for connection in half_open:
        connection.close()
    wait_until(lambda: len(running.metrics()) > before + 50, "training went on")
    assert not read_events(running.folder, "lost")
    # With the run's credentials it still works.
    guest = start([*MDGAN, "join", *master, "--credentials", "run.cred"], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "a join")
    said = stop(running)
    assert "refused a host" not in said, "nothing is told of those who get no connection"
    finish(guest)


def _is_refused(folder: Path, flags: list[str]) -> None:
    result = run("join", *flags, cwd=folder)
    is_one_line = result.errors.count("\n") == 2  # behind that of its question
    output = result.status == 2 and "--credentials" in result.errors and is_one_line
    with (folder / "refusals").open("a") as file:
        file.write("refused\n" if output else f"{result}\n")
