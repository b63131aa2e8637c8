"""One certificate calls at random, as fast as it can, while others train."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes import (
    MDGAN,
    REPOSITORY,
    ended_well,
    environment,
    finish,
    read_events,
    read_metrics,
    read_records,
    read_status,
    run_here,
    start,
    wait_until,
)

HONEST, ATTACKER = (1, 2, 3), 4
ITERATIONS = 150
TRAIN = [*MDGAN, "train", "--world-size", "4", "--batch-size", "8", "--workers-per-host", "1"]
TRAIN += ["--threads", "1", "--sample-interval", "0", "--swap-interval", "20"]
TRAIN += ["--eval-interval", "0", "--log-interval", "10"]
MEMORY_RATIO, MEMORY_MORE = 1.2, 64 << 20
MOST_LOGGED_BYTES = 256 << 10


class Run:
    """A run that is over.

    Attributes:
        rate: iterations a second.
        memory: the most bytes that the server's process held for itself alone.
        told: bytes of what the commands have printed as errors.
        attacks: how often the attacker did what.
    """

    def __init__(self, folder: Path, iterations: int, seed: int | None) -> None:
        self.folder, self.memory, self.attacks = folder / "run", 0, dict[str, int]()
        many = ["--iterations", str(iterations)]
        own_flags = ["--ranks", "0", "--listen", "127.0.0.1:0", "--credentials", "a/server.cred"]
        server = start([*TRAIN, *many, *own_flags, "--out", "run"], folder)
        wait_until((self.folder / "run.json").exists, "the server is there")
        place = str(read_status(self.folder)["listens"])
        port = place.rpartition(":")[2]
        with attacked(folder, place, seed) as attacker:
            others = ["--ranks", "1..3", "--credentials", "a/honest.cred", "--master-port", port]
            hosts = start([*TRAIN, *many, *others], folder)
            over = threading.Event()
            watching = threading.Thread(target=self._watch, args=(over,))
            watching.start()
            if attacker is not None:
                assert attacker.stdin is not None
                wait_until(lambda: len(places_of(hosts.pid)) == len(HONEST), "hosts listen")
                attacker.stdin.write(" ".join(places_of(hosts.pid)) + "\n")
                attacker.stdin.flush()
            results = finish(server, 240), finish(hosts, 60)
            over.set()
            watching.join()
            if attacker is not None:
                attacker.terminate()
                said, _ = attacker.communicate(timeout=300)
                self.attacks = json.loads(said)
        for result in results:
            ended_well(result, self.folder, iterations)
        self.told = sum(len(result.errors) + len(result.output) for result in results)
        first, *_, last = read_metrics(self.folder)
        passed = last["seconds"] - first["seconds"]
        self.rate = (last["iteration"] - first["iteration"]) / passed

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.05):
            with contextlib.suppress(psutil.Error, OSError, KeyError):
                process = psutil.Process(read_status(self.folder)["process"])
                self.memory = max(self.memory, process.memory_full_info().uss)


@contextlib.contextmanager
def attacked(
    folder: Path, place: str, seed: int | None
) -> Iterator["subprocess.Popen[str] | None"]:
    """Prepares a caller that calls at random once it knows the hosts' ports; none without seed."""
    if seed is None:
        yield None
        return
    module = ["-m", "tests.hostile.random_calls", str(folder / "a/mallory.cred")]
    errors = folder / "mallory's errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, *module, str(ATTACKER), str(seed), place],
            cwd=REPOSITORY,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as attacker,
    ):
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "ready\n", errors.read_text()
            yield attacker
        finally:
            attacker.kill()


def places_of(launcher: int) -> list[str]:
    """Where the hosts of a command listen."""
    with contextlib.suppress(psutil.Error):
        links = [
            link
            for child in psutil.Process(launcher).children()
            for link in child.net_connections("tcp")
        ]
        listening = [link.laddr for link in links if link.status == psutil.CONN_LISTEN]
        return [f"{address.ip}:{address.port}" for address in listening]
    return []


def harmless(folder: Path, seconds: float) -> None:
    """Trains without and with an attacker, and compares."""
    seed = int(os.environ.get("MDGAN_SEED", random.SystemRandom().randrange(1 << 32)))
    for arguments in (
        ("init", "a"),
        ("issue", "a", "server", "--role", "server"),
        ("issue", "a", "honest", "--ranks", "1,2,3"),
        ("issue", "a", "mallory", "--ranks", str(ATTACKER)),
    ):
        assert run_here("credentials", *arguments, cwd=folder).status == 0
    quiet = Run(folder, ITERATIONS, None)
    quiet.folder.rename(folder / "quiet")
    print(f"\nMDGAN_SEED={seed}")
    iterations = max(ITERATIONS, int(quiet.rate * seconds))
    began = time.monotonic()
    run = Run(folder, iterations, seed)
    came_in = len(read_events(run.folder, "joined"))
    print(
        f"{time.monotonic() - began:.0f} s, let in {came_in} times, {run.attacks}; "
        f"iterations a second: {quiet.rate:.1f} "
        f"without, {run.rate:.1f} with the attacker; MB: {quiet.memory / 1e6:.0f}, "
        f"{run.memory / 1e6:.0f}; printed: {quiet.told}, {run.told} bytes"
    )
    assert sum(run.attacks.values()) > 20
    (attendance,) = read_events(run.folder, "attendance")
    for rank in HONEST:
        assert attendance["workers"][str(rank)]["answered"] == iterations
        assert not attendance["workers"][str(rank)].get("refused")
    for event in (*read_events(run.folder, "lost"), *read_events(run.folder, "shut out")):
        assert event["workers"] == [ATTACKER], event
    assert run.memory < MEMORY_RATIO * quiet.memory + MEMORY_MORE
    assert run.told < MOST_LOGGED_BYTES
    assert (run.folder / "audit-log.jsonl").stat().st_size < MOST_LOGGED_BYTES
    events = [json.dumps(row) for row in read_records(run.folder) if "event" in row]
    assert sum(map(len, events)) < MOST_LOGGED_BYTES


@pytest.mark.slow
def test_one_certificate_that_calls_at_random_harms_nobody(tmp_path: Path) -> None:
    harmless(tmp_path, 6.0)


@pytest.mark.slow
def test_nor_within_a_minute(tmp_path: Path) -> None:
    harmless(tmp_path, 60.0)
