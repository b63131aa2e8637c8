"""Workers die at each step of their work, and hang for longer and shorter than allowed."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from mdgan.families.mdgan.settings import MDGAN as ENTRY
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.faults import FAULTS
from tests.chaos.staging import QUIET, check_left_whole, fault, stage, steps
from tests.claims.registry import claim
from tests.processes import MDGAN, Training, finish, free_port, read_events, start, wait_until


def check_killed(folder: Path, phases: Sequence[str]) -> None:
    """Worker 1 stays alone: the others die one by one, each in its own phase."""
    workers = range(2, len(phases) + 2)
    faults = [f"host-{n}:kill@{phase}:{8 * n}" for n, phase in zip(workers, phases, strict=True)]
    last, size = 8 * len(phases) + 40, str(len(phases) + 2)
    flags = [*QUIET, "--world-size", size, "--iterations", str(last), "--out", "run"]
    flags += ["--swap-interval", "2", "--checkpoint-interval", "4"]
    ended = finish(start([*MDGAN, "train", *flags], folder, **{FAULTS: ";".join(faults)}))
    assert ended.status == 0, ended
    check_left_whole(folder / "run", last)
    lost = read_events(folder / "run", "lost")
    assert [event["workers"] for event in lost] == [[worker] for worker in workers]
    for worker, phase, event in zip(workers, phases, lost, strict=True):
        assert 8 * worker <= event["iteration"]
        # How far training gets while a thread writes a checkpoint is a question of the disk.
        by_thread = phase in {"write", "report"}
        assert by_thread or event["iteration"] < 8 * worker + 6
        assert event["reason"] == "its connection closed"
        assert f"rank {worker} was killed by signal 9" in ended.errors
        left = f"lost rank(s) {worker}: its connection closed; {len(workers) + 2 - worker} left"
        assert left in ended.errors
        swaps = [
            s for s in read_events(folder / "run", "swap") if s["iteration"] > event["iteration"]
        ]
        assert not any(str(worker) in swap["given"] for swap in swaps)
        whole = event["iteration"] if by_thread else 8 * worker + 8
        assert all(swap["exact"] for swap in swaps if swap["iteration"] < whole)
    (attendance,) = read_events(folder / "run", "attendance")
    assert attendance["workers"]["1"] == {"answered": last}
    # The survivor's training was not cut short by a partner that died in a swap.
    assert steps(folder / "run", 1) == last


@claim("goes-on", "A worker that dies, hangs or leaves does not stop the others")
def test_workers_are_killed_at_different_phases(tmp_path: Path) -> None:
    check_killed(tmp_path, ["swap", "local-step", "swapped", "report"])


HOST_PHASES = ENTRY.phases(MDGANSettings())[1]


@pytest.mark.slow
@pytest.mark.parametrize("phases", [HOST_PHASES[:6], HOST_PHASES[6:]])
def test_workers_are_killed_at_every_phase(tmp_path: Path, phases: Sequence[str]) -> None:
    check_killed(tmp_path, phases)


@pytest.mark.slow
def test_all_workers_but_one_are_killed_at_once(tmp_path: Path) -> None:
    events = [fault(f"host-{worker}:kill@feedback:10") for worker in (1, 2, 3, 5)]
    staged = stage(tmp_path, events, "--checkpoint-interval", "10", workers=5, iterations=40)
    assert [row.iteration for row in staged.rows] == [10] * 4
    (attendance,) = staged.events("attendance")
    assert attendance["workers"]["4"] == {"answered": 40}
    assert attendance["workers"]["1"] == {"answered": 9, "lost": 1}
    assert staged.steps(4) == 40


@pytest.mark.slow
@claim("goes-on", "A worker that dies, hangs or leaves does not stop the others")
def test_halts_shorter_than_the_deadline_longer_and_longer_than_liveness(tmp_path: Path) -> None:
    """Without swaps, each discriminator's own count of steps tells whose it is."""
    events = [
        fault("host-1:stop@feedback:20", 0.1),
        fault("host-2:stop@receive:40", 2.5),
        fault("host-3:stop@local-step:60", 6.0),
    ]
    limits = ["--deadline", "1.5", "--liveness-timeout", "4", "--swap-interval", "0"]
    flags = [*limits, "--checkpoint-interval", "100"]
    staged = stage(tmp_path, events, *flags, workers=4, iterations=800)
    short, late, lost = staged.rows
    assert "unnoticed" in short.happened
    assert late.noticed_seconds is not None, late
    assert "rank 2 late" in late.happened
    assert late.over_seconds is not None
    assert late.over_seconds > 2.5
    (gone,) = staged.events("lost")
    assert gone["workers"] == [3]
    assert gone["reason"] == "its connection closed, or it was silent for 4 s"
    (again,) = staged.events("joined")
    assert again["workers"] == [3]
    assert lost.over_seconds is not None
    assert lost.over_seconds > 6.0
    assert staged.said("rank 3 lost the server")
    # It came back with its own discriminator and no other: that has learnt with it, and only then.
    (attendance,) = staged.events("attendance")
    counts = attendance["workers"]
    assert staged.steps(4) == staged.steps(1) == 800 == counts["1"]["answered"]
    assert staged.steps(2) == counts["2"]["answered"] + counts["2"]["late"] < 800
    assert counts["3"]["answered"] <= staged.steps(3) <= counts["3"]["answered"] + 1
    assert staged.steps(3) <= 800 - (again["iteration"] - gone["iteration"])


@pytest.mark.slow
def test_a_worker_joins_while_a_swap_hangs(tmp_path: Path) -> None:
    """Worker 1 halts in the middle of a swap, and its partner waits for it, until another came."""
    flags = ["--world-size", "5", "--iterations", "60", "--swap-interval", "1", *QUIET]
    flags += ["--master-port", str(free_port()), "--out", str(tmp_path / "run")]
    command = [*MDGAN, "train", *flags, "--checkpoint-interval", "20"]
    process = start(command, tmp_path, **{FAULTS: "host-1:stop@swap:10"})
    running = Training(process, tmp_path / "run")
    wait_until(lambda: bool(halted(process.pid)), "worker 1 halts")
    here = flags[flags.index("--master-port") :]
    comer = start([*MDGAN, "join", "--threads", "1", *here], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "another joins", 90)
    (worker,) = halted(process.pid)
    os.kill(worker, signal.SIGCONT)
    results = [finish(process), finish(comer)]
    assert [result.status for result in results] == [0, 0], results
    check_left_whole(running.folder, 60)
    swaps = read_events(running.folder, "swap")
    assert [swap["iteration"] for swap in swaps] == list(range(1, 60))
    assert all(swap["exact"] for swap in swaps if swap["iteration"] != 10)
    hung = swaps[9]
    (partner,) = [taker for giver, taker in hung["moves"] if giver == 1]
    # A worker that got nothing kept its own; one that got something got all of it.
    assert set(hung["given"]) == {"1", "2", "3", "4"}
    assert set(hung["given"]) - set(hung["taken"]) <= {"1", str(partner)}
    for giver, taker in hung["moves"]:
        assert hung["taken"].get(str(taker)) in (hung["given"][str(giver)], None)
    assert min(swap["iteration"] for swap in swaps if "5" in swap["given"]) == 11


def halted(launcher: int) -> list[int]:
    """The launcher's children that a signal has halted."""
    children = psutil.Process(launcher).children()
    return [child.pid for child in children if child.status() == psutil.STATUS_STOPPED]
