"""The server dies at each step of its work, and another one takes over."""

import json
import signal
from pathlib import Path

import pytest

from mdgan.families.mdgan.settings import MDGAN as ENTRY
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.faults import FAULTS
from mdgan.records.audit_log import verify
from tests.chaos.staging import QUIET, check_left_whole, fault, stage
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    Finished,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    run_here,
    start,
)

EVERY = 10
SEQUENCE = [
    *QUIET,
    "--world-size",
    "3",
    "--checkpoint-interval",
    str(EVERY),
    "--swap-interval",
    "5",
]


def check_goes_on(folder: Path, phases: list[str]) -> None:
    """Kills the server in one phase after the other; each time a new one goes on.

    The last generator is, bit by bit, that of an undisturbed run.
    """
    iterations = 20 * len(phases) + 20
    flags = [*SEQUENCE, "--iterations", str(iterations)]
    begin = ["train", *flags, "--out", "struck"]
    for number, phase in enumerate(phases, 1):
        # At a swap, at a checkpoint, or in the middle of nowhere, after the checkpoint before.
        struck = kill(folder, begin, f"server:kill@{phase}:{20 * number}")
        assert struck.status == 128 + signal.SIGKILL, struck
        assert "rank 0 was killed by signal 9" in struck.errors
        begin = ["train", "--resume", "struck"]
    assert kill(folder, begin, "").status == 0
    check_left_whole(folder / "struck", iterations)
    resumed = [event["iteration"] for event in read_events(folder / "struck", "resumed")]
    assert len(resumed) == len(phases)
    for number, iteration in enumerate(resumed, 1):
        assert iteration <= 20 * number
    memory = ["train", *flags, "--transport", "memory", "--out", "whole"]
    assert run_here(*memory, cwd=folder).status == 0
    assert generator_bytes(folder / "struck") == generator_bytes(folder / "whole")


def kill(folder: Path, command: list[str], faults: str) -> Finished:
    return finish(start([*MDGAN, *command], folder, **{FAULTS: faults}))


@pytest.mark.slow
def test_server_is_killed_at_every_phase(tmp_path: Path) -> None:
    check_goes_on(tmp_path, [*ENTRY.phases(MDGANSettings())[0]])


@claim("goes-on", "a standby replaces a server that dies")
@claim("audit-log", "Each line holds the SHA-256 of the line before")
def test_a_standby_takes_over(tmp_path: Path) -> None:
    """At most the iterations since the last checkpoint are lost, and no worker starts again."""
    flags = ["--checkpoint-interval", "10", "--swap-interval", "0", "--liveness-timeout", "30"]
    # By then all workers have answered; what is still on its way to them would be lost with it.
    # The first checkpoint is whole then, on slow disks, too.
    events = [fault("server:kill@step:128")]
    staged = stage(tmp_path, events, *flags, workers=3, iterations=160, standby=True)
    (row,) = staged.rows
    assert row.iteration == 128
    assert row.lost in range(8, 129, 10), "a slow disk may have left out checkpoints before"
    # Long before it would have been taken for dead because of its silence.
    assert row.noticed_seconds is not None
    assert row.noticed_seconds < 15
    log = verify(staged.run)
    assert (log.trouble, log.entries >= 4) == ("", True)
    # Its own count of steps shows that no discriminator began anew, nor from the checkpoint.
    for worker in (1, 2, 3):
        assert staged.steps(worker) == 160 + row.lost


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["swap", "write"])
def test_a_standby_takes_over_and_a_second_one_from_it(tmp_path: Path, phase: str) -> None:
    flags = ["--checkpoint-interval", "10", "--swap-interval", "5", "--liveness-timeout", "3"]
    events = [fault(f"server:kill@{phase}:20"), fault(f"server:kill@{phase}:40")]
    staged = stage(tmp_path, events, *flags, workers=3, iterations=600, standby=True)
    for row in staged.rows:
        assert row.iteration is not None
        assert row.lost > 0
    assert staged.rows[0].iteration == 20
    assert (staged.run / "generation-3.json").exists()


@pytest.mark.slow
def test_halts_shorter_than_liveness_lose_no_worker(tmp_path: Path) -> None:
    flags = ["--checkpoint-interval", "50", "--liveness-timeout", "6", "--swap-interval", "5"]
    events = [fault("server:stop@wait:20", 3.0), fault("host-1:stop@swap:40", 2.0)]
    staged = stage(tmp_path, events, *flags, workers=3, iterations=60, standby=True)
    assert [row.iteration for row in staged.rows] == [20, 40]
    for name in ("lost", "resumed", "joined"):
        assert staged.events(name) == []
    assert all(swap["exact"] for swap in staged.events("swap"))


@pytest.mark.slow
def test_an_old_server_that_wakes_up_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    flags = ["--checkpoint-interval", "10", "--swap-interval", "5", "--liveness-timeout", "2"]
    halted = fault("server:stop@step:25", 10.0)
    # Long enough for the old server to wake up while the new one trains.
    staged = stage(tmp_path, [halted], *flags, workers=2, iterations=1500, standby=True)
    (row,) = staged.rows
    assert row.lost in (5, 15, 25), "a slow disk may have left out the checkpoint before"
    old = staged.played.actors[0]
    assert old.status == 3, old.lines
    assert old.said("generation 2 has taken over")
    assert not old.said("Traceback")
    # All that lies in the folder is of the new server, in order.
    assert read_events(staged.run, "lost") == []
    seconds = [record["seconds"] for record in read_metrics(staged.run)]
    assert seconds == sorted(seconds)
    assert json.loads((staged.run / "generation-2.json").read_text())
