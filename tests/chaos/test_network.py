"""Cables between machines with their own addresses are pulled and plugged in again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import namespaces
from tests.chaos.staging import QUIET, check_left_whole, steps
from tests.namespaces import Machine
from tests.processes import (
    MDGAN,
    Finished,
    Process,
    finish,
    read_events,
    read_metrics,
    read_records,
    run_here,
    wait_until,
)
from tests.processes import start as start_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not namespaces.available(), reason="needs root and `ip` to make network namespaces"
    ),
]

LIVENESS_SECONDS = 5.0


@dataclass
class Spread:
    """A run on machines of its own: the server, workers 1 and 2, worker 3, the standby.

    Attributes:
        machines: in that order.
        processes: on the first three.
        standby: on the last.
        run: the folder, which all machines share.
        iterations: I.
    """

    machines: list[Machine]
    processes: list[Process]
    standby: Process
    run: Path
    iterations: int

    def wait_for(self, iteration: int) -> None:
        """Waits until an iteration is done."""
        wait_until(
            lambda: any(m["iteration"] >= iteration for m in read_metrics(self.run)),
            f"iteration {iteration}",
        )

    def wait_for_event(self, name: str) -> None:
        """Waits until something is recorded."""
        wait_until(lambda: bool(read_events(self.run, name)), name)

    def wait_for_silence(self) -> None:
        """Waits until the run has recorded nothing for a while, and so waits itself."""
        metrics = self.run / "metrics.jsonl"
        wait_until(
            lambda: time.time() - metrics.stat().st_mtime > LIVENESS_SECONDS / 4, "the run waits"
        )

    def finish(self) -> list[Finished]:
        """Waits for all processes, and checks what must hold after any fault."""
        results = [finish(process) for process in (*self.processes, self.standby)]
        assert not any("Traceback" in result.errors for result in results), results
        check_left_whole(self.run, self.iterations)
        return results


@contextmanager
def spread(folder: Path, iterations: int, *flags: str) -> Iterator[Spread]:
    """Starts a run on four machines; the workers come last, so that all see it begin."""
    assert run_here("credentials", "new", "run.cred", cwd=folder).status == 0
    with namespaces.machines(4) as machines:
        run, log = folder / "run", folder / "standby.log"
        where = ["--master-addr", f"{machines[0].address},{machines[3].address}"]
        where += ["--master-port", "29500", "--credentials", "run.cred"]
        train = [*MDGAN, "train", *QUIET, *where, "--out", str(run), "--world-size", "4", *flags]
        train += ["--liveness-timeout", f"{LIVENESS_SECONDS:g}", "--checkpoint-interval", "10"]
        train += ["--iterations", str(iterations), "--swap-interval", "0"]

        def start(machine: Machine, *command: str) -> Process:
            return start_process([*machine.prefix, *command], folder)

        server = start(machines[0], *train, "--ranks", "0")
        wait_until((run / "run.json").exists, "the server is there")
        watch = [*MDGAN, "standby", str(run), *where]
        told = ["bash", "-c", f'exec "$@" 2> >(tee {log} >&2)', "bash", *watch]
        standby = start(machines[3], *told)
        wait_until(
            lambda: log.exists() and "standing by" in log.read_text(), "the standby is there"
        )
        workers = [
            start(machines[1], *train, "--ranks", "1,2"),
            start(machines[2], *train, "--ranks", "3"),
        ]
        # What reaches workers 1 and 2 sets the pace: some twenty iterations a second.
        namespaces.limit_bandwidth(machines[1], 200)
        yield Spread(machines, [server, *workers], standby, run, iterations)


def test_a_cable_is_out_for_a_moment(tmp_path: Path) -> None:
    """What was sent meanwhile is sent again by TCP: no worker is lost, nothing is done twice."""
    with spread(tmp_path, 100) as running:
        running.wait_for(20)
        namespaces.pull_cable(running.machines[2])
        running.wait_for_silence()
        namespaces.plug_in(running.machines[2])
        results = running.finish()
    assert [result.status for result in results] == [0, 0, 0, 0]
    assert read_events(running.run, "lost") == read_events(running.run, "resumed") == []
    assert [steps(running.run, worker) for worker in (1, 2, 3)] == [100, 100, 100]


def test_a_cable_is_out_for_longer_than_the_liveness_timeout(tmp_path: Path) -> None:
    """The others go on, and the worker comes back by itself with what it has learnt."""
    with spread(tmp_path, 400) as running:
        running.wait_for(20)
        namespaces.pull_cable(running.machines[2])
        running.wait_for_event("lost")
        running.wait_for(read_metrics(running.run)[-1]["iteration"] + 10)
        namespaces.plug_in(running.machines[2])
        running.wait_for_event("joined")
        results = running.finish()
    assert [result.status for result in results] == [0, 0, 0, 0]
    (lost,), (joined,) = read_events(running.run, "lost"), read_events(running.run, "joined")
    assert lost["workers"] == joined["workers"] == [3]
    assert lost["reason"].endswith(f"it was silent for {LIVENESS_SECONDS:g} s")
    assert "rank 3 is back" in results[2].errors
    missed = joined["iteration"] - lost["iteration"]
    assert missed >= 10
    # Its discriminator has learnt as often as it took part, so it is neither new nor a copy.
    assert steps(running.run, 1) == steps(running.run, 2) == 400
    assert abs(steps(running.run, 3) - (400 - missed)) <= 2


def test_the_servers_cable_is_out_and_a_standby_takes_over(tmp_path: Path) -> None:
    with spread(tmp_path, 300) as running:
        running.wait_for(25)
        namespaces.pull_cable(running.machines[0])
        running.wait_for_event("resumed")
        (resumed,) = read_events(running.run, "resumed")
        running.wait_for(resumed["iteration"] + 20)
        namespaces.plug_in(running.machines[0])
        old, *others = running.finish()
    assert old.status == 3, old
    assert "generation 2 has taken over" in old.errors
    assert [result.status for result in others] == [0, 0, 0]
    # Each worker kept what it had learnt: it was not reset to a checkpoint, nor is it a copy.
    (attendance,) = read_events(running.run, "attendance")
    for worker in (1, 2, 3):
        before = steps(running.run, worker) - attendance["workers"][str(worker)]["answered"]
        assert 25 <= before <= 25 + 10
    # The old server wrote what it noticed before, and nothing since.
    names = [record.get("event") for record in read_records(running.run)]
    assert "lost" not in names[names.index("resumed") :]


def test_a_slow_cable_makes_a_worker_late_and_no_more(tmp_path: Path) -> None:
    with spread(tmp_path, 100, "--deadline", "0.4") as running:
        running.wait_for(10)
        namespaces.limit_bandwidth(running.machines[2], 8)
        results = running.finish()
    assert [result.status for result in results] == [0, 0, 0, 0]
    assert read_events(running.run, "lost") == []
    assert {tuple(late["workers"]) for late in read_events(running.run, "late")} == {(3,)}
    (attendance,) = read_events(running.run, "attendance")
    assert attendance["workers"]["3"]["late"] > 0
    assert attendance["workers"]["1"]["answered"] == 100
