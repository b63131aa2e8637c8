"""Strangers flood the server's port; `pytest -s` prints what honest hosts lose."""

import json
import signal
import statistics
import sys
import time
from pathlib import Path

import psutil
import pytest

from mdgan.credentials.identity import read_credentials
from mdgan.timeouts import Timeouts
from mdgan.transport.until import Until
from tests.claims.registry import claim
from tests.hostile.flooding import STRANGERS
from tests.processes import (
    MDGAN,
    finish,
    read_events,
    read_metrics,
    read_status,
    run_here,
    start,
    start_anew,
    wait_until,
)

REPOSITORY = Path(__file__).parents[2]
QUESTIONS = 10
SECONDS = 12
TRAIN = [*MDGAN, "train", "--world-size", "3", "--iterations", "100000", "--batch-size", "8"]
TRAIN += ["--threads", "1", "--log-interval", "1", "--sample-interval", "0", "--eval-interval", "0"]
TRAIN += ["--checkpoint-interval", "0", "--credentials", "run.cred"]


def train_on(folder: Path, iterations: int) -> float:
    """Waits until so many more iterations are over; iterations a second."""
    before, began = len(read_metrics(folder)), time.monotonic()
    wait_until(lambda: len(read_metrics(folder)) >= before + iterations, "training goes on")
    return iterations / (time.monotonic() - began)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*STRANGERS, "hello-here"])
@claim("flood", "A flood of knocks can cost speed, and no host its link")
def test_honest_hosts_come_in_and_train_while_strangers_knock(tmp_path: Path, kind: str) -> None:
    from mdgan.transport.visit import ask

    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    listen = ["--ranks", "0", "--listen", "127.0.0.1:0", "--out", "run"]
    server = start([*TRAIN, *listen], tmp_path)
    run = tmp_path / "run"
    wait_until((run / "run.json").exists, "the server is there")
    place = read_status(run)["listens"]
    port = place.rpartition(":")[2]
    hosts = start([*TRAIN, "--ranks", "1..2", "--master-port", port], tmp_path)
    wait_until(lambda: len(read_metrics(run)) > 20, "training goes on")
    quiet = train_on(run, 200)
    (process,) = psutil.Process(read_status(run)["process"]).children()
    memory = process.memory_info().rss

    knocks = start_anew(
        [sys.executable, "-m", "tests.hostile.flooding", kind, port, str(SECONDS)], REPOSITORY
    )
    identity, timeouts = read_credentials(tmp_path / "run.cred"), Timeouts(connect=20.0)
    waits, rates, most_files = [], list[float](), 0
    for _ in range(QUESTIONS):
        asked = time.monotonic()
        promised = ask(place, identity, timeouts, Until(20.0))["rank"]
        waits.append(time.monotonic() - asked)
        assert promised >= 3
        ask(place, identity, timeouts, Until(20.0), gives_back=[promised])  # one address has few
        most_files = max(most_files, process.num_fds())
        rates.append(train_on(run, 20))  # so that questions are spread over the flood
    flooded = statistics.mean(rates)
    newcomer = start([*MDGAN, "join", "--master-port", port, "--credentials", "run.cred"], tmp_path)
    wait_until(lambda: bool(read_events(run, "joined")), "a newcomer takes part")
    said = finish(knocks, 60)
    grown = process.memory_info().rss - memory
    assert read_events(run, "lost") == []
    hosts.send_signal(signal.SIGTERM)
    server.send_signal(signal.SIGINT)
    for end in (server, hosts, newcomer):
        result = finish(end)
        assert "Traceback" not in result.errors
    print(
        f"\n{said.output.strip()}; iterations a second: {quiet:.1f} before, {flooded:.1f} "
        f"during; a question: {statistics.median(waits):.3f} s, at most {max(waits):.3f} s; "
        f"server: at most {most_files} open files, {grown / 1e6:+.0f} MB"
    )
    assert json.loads(said.output)[kind.partition("-")[0]] > QUESTIONS
