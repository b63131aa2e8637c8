"""`--updates arrival` over real processes: no worker waits for another one."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.processes import (
    finish,
    generator_bytes,
    read_events,
    read_status,
    run,
    run_here,
    training,
    wait_until,
)

pytestmark = pytest.mark.slow
ARRIVAL = ["train", "--updates", "arrival", "--threads", "1", "--batch-size", "8"]
OFTEN = ["--log-interval", "1", "--sample-interval", "0"]


def answers(folder: Path) -> dict[str, int]:
    """Worker → how many of its answers were used."""
    counts = read_events(folder, "attendance")[-1]["workers"]
    return {worker: told.get("answered", 0) for worker, told in counts.items()}


def swaps(folder: Path) -> list[dict[str, Any]]:
    return sorted(read_events(folder, "swap"), key=lambda event: int(event["iteration"]))


@pytest.mark.parametrize("flags", [["--workers-per-host", "2"], ["--transport", "memory"]])
def test_as_many_answers_as_steps_and_every_swap_is_whole(tmp_path: Path, flags: list[str]) -> None:
    rhythm = ["--swap-interval", "7", "--checkpoint-interval", "10", "--iterations", "40"]
    ended = run(*ARRIVAL, *OFTEN, *rhythm, *flags, "--out", "run", cwd=tmp_path)
    assert ended.status == 0, ended
    assert read_status(tmp_path / "run")["iteration"] == 40
    assert sum(answers(tmp_path / "run").values()) == 4 * 40
    assert [swap["iteration"] for swap in swaps(tmp_path / "run")] == [7, 14, 21, 28, 35]
    assert all(swap["exact"] for swap in swaps(tmp_path / "run"))


def test_in_one_process_answers_come_in_turn_and_bits_repeat(tmp_path: Path) -> None:
    for out in ("first", "second"):
        flags_of_run = [*ARRIVAL, "--iterations", "30", "--transport", "memory", "--out", out]
        assert run_here(*flags_of_run, cwd=tmp_path).status == 0
    assert generator_bytes(tmp_path / "first") == generator_bytes(tmp_path / "second")


def test_one_process_that_halts_holds_up_no_other(tmp_path: Path) -> None:
    endless = ["--iterations", "100000", "--checkpoint-interval", "100000", "--swap-interval", "0"]
    running = training(tmp_path, *ARRIVAL, *OFTEN, *endless, "--world-size", "4")
    begun = len(running.metrics())
    slow = running.hosts()[2]
    os.kill(slow, signal.SIGSTOP)
    wait_until(lambda: running.has_reached(begun + 200), "200 iterations without worker 3")
    rows = running.metrics()[-100:]
    assert all("3" not in row["by_worker"] for row in rows), "it has stopped"
    os.kill(slow, signal.SIGCONT)
    wait_until(lambda: "3" in running.metrics()[-1]["by_worker"], "worker 3 answers again")
    running.process.send_signal(signal.SIGINT)
    ended = finish(running.process)
    assert ended.status == 130, ended
    assert not read_events(running.folder, "lost")
    counts = answers(running.folder)
    assert counts["1"] + counts["2"] > counts["3"] + 3 * 190
    staleness = [row["staleness"].get("3", [0, 0])[1] for row in running.metrics()]
    assert max(staleness) >= 3 * 190, "its answer was used, old as it was"


def test_a_worker_is_killed_and_the_others_go_on(tmp_path: Path) -> None:
    flags = ["--world-size", "4", "--iterations", "600", "--swap-interval", "10"]
    running = training(tmp_path, *ARRIVAL, *OFTEN, *flags)
    os.kill(running.hosts()[1], signal.SIGKILL)
    ended = finish(running.process)
    assert ended.status == 0, ended
    (lost,) = read_events(running.folder, "lost")
    assert lost["workers"] == [2]
    after = [row for row in running.metrics() if row["iteration"] > lost["iteration"] + 1]
    assert after
    assert all("2" not in row["by_worker"] for row in after)


@pytest.mark.parametrize("size", ["2", "4"])
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, size: str) -> None:
    flags = [*OFTEN, "--world-size", size, "--swap-interval", "5", "--seed", "3"]
    running = training(tmp_path, *ARRIVAL, *flags, "--iterations", "100000")
    running.process.send_signal(signal.SIGINT)
    ended = finish(running.process)
    assert ended.status == 130, ended
    last = read_status(running.folder)["iteration"] + 20
    more = ["--iterations", str(last)]
    again = run("train", "--resume", "run", *more, cwd=tmp_path)
    assert again.status == 0, again
    assert read_status(running.folder)["iteration"] == last
    if size == "2":  # one worker: bit for bit, as if it had never been stopped
        whole = run_here(
            *ARRIVAL, *flags, *more, "--transport", "memory", "--out", "whole", cwd=tmp_path
        )
        assert whole.status == 0, whole
        assert generator_bytes(running.folder) == generator_bytes(tmp_path / "whole")
    else:
        assert [swap["iteration"] for swap in swaps(running.folder)] == [*range(5, last, 5)]
