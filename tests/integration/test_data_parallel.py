"""ParaGAN from the command line: the same bits everywhere, and refusals of one line."""

import os
import signal
from pathlib import Path

import pytest

import mdgan
from tests.processes import (
    MDGAN,
    REPOSITORY,
    ended_well,
    finish,
    generator_bytes,
    read_events,
    read_metrics,
    run,
    run_here,
    start,
    training,
    wait_until,
)

QUICK = [
    *("train", "--algorithm", "paragan", "--iterations", "8", "--batch-size", "8"),
    *("--threads", "1", "--sample-interval", "0", "--eval-interval", "0"),
]
IN_MEMORY = [*QUICK, "--transport", "memory"]


def here(folder: Path, name: str, *flags: str) -> bytes:
    """Trains in this process."""
    return ended_well(run_here(*IN_MEMORY, *flags, "--out", name, cwd=folder), folder / name, 8)


def spread(folder: Path, name: str, *flags: str) -> bytes:
    """Trains with processes."""
    return ended_well(run(*QUICK, *flags, "--out", name, cwd=folder), folder / name, 8)


def test_one_worker_equals_standalone(tmp_path: Path) -> None:
    alone = ["standalone", *QUICK[3:], "--local-steps", "2", "--out", "alone"]
    theirs = ended_well(run_here(*alone, cwd=tmp_path), tmp_path / "alone", 8)
    assert here(tmp_path, "ours", "--world-size", "2", "--local-steps", "2") == theirs


FIRST_ASYNC = ["--updates", "async", "--set", "image_buffer=2", "--set", "sync_after=5"]
FIRST_ASYNC += ["--set", "generator_batch_size=12"]


APART = ["--updates", "async", "--generator-ranks", "1..2", "--set", "image_buffer=2"]
APART += ["--set", "generator_batch_size=12"]


SPREAD = [
    pytest.param([], id="sync"),
    pytest.param(FIRST_ASYNC, id="async"),
    pytest.param(APART, id="apart, lag 2"),
    pytest.param(APART[:4], id="apart, lag 1", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("flags", SPREAD)
def test_any_spread_and_any_stop_give_the_same_generator(tmp_path: Path, flags: list[str]) -> None:
    together = here(tmp_path, "memory", *flags)
    one_each = ["--workers-per-host", "1"]
    if "--generator-ranks" not in flags:
        one_each += ["--all-reduce", "ring"]
    assert here(tmp_path, "apart", *flags, *one_each) == together
    stopped = [*IN_MEMORY, *flags, "--iterations", "3", "--out", "half"]
    assert run_here(*stopped, cwd=tmp_path).status == 0
    resumed = ["train", "--resume", "half", "--iterations", "8", "--transport", "memory"]
    assert ended_well(run_here(*resumed, cwd=tmp_path), tmp_path / "half", 8) == together


def test_what_becomes_of_data_that_are_not_shared_is_said_once(tmp_path: Path) -> None:
    line = "--partition none: every worker trains on its own data"
    flags = ["--partition", "none", "--iterations", "1", "--out", "run"]
    assert run_here(*IN_MEMORY, *flags, cwd=tmp_path).errors.count(line) == 1
    longer = ["train", "--resume", "run", "--iterations", "2", "--transport", "memory"]
    resumed = run_here(*longer, cwd=tmp_path)
    assert resumed.status == 0
    assert line not in resumed.errors


def test_a_lag_of_0_is_synchronous(tmp_path: Path) -> None:
    flags = ["--updates", "async", "--set", "image_buffer=0"]
    assert here(tmp_path, "lag-0", *flags) == here(tmp_path, "serial")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--workers-per-host", "3"], FIRST_ASYNC, APART], ids=str)
def test_processes_give_the_same_generator(tmp_path: Path, flags: list[str]) -> None:
    together = here(tmp_path, "memory", *flags)
    assert spread(tmp_path, "processes", *flags) == together
    assert run_here("report", "processes", cwd=tmp_path).status == 0


CASES = [
    ("--participation 0.5", ["--participation 0.5", "gradients of all workers"]),
    ("--kappa 3", ["--kappa 3", "use 1 or 2"]),
    ("--global-batch-size 3", ["--global-batch-size 3", "4 workers"]),
    ("--global-batch-size 0", ["--global-batch-size 0", "at least 1"]),
    ("--lr-scaling cubic", ["--lr-scaling cubic", "none, linear, sqrt"]),
    ("--set reference_batch_size=8", ["--set reference_batch_size=8", "--lr-scaling linear"]),
    ("--set image_buffer=2", ["--set image_buffer=2", "add that"]),
    ("--set image_buffer=-1", ["--set image_buffer=-1", "at least 0"]),
    ("--set sync_after=5", ["--set sync_after=5", "--updates async"]),
    ("--updates async --local-steps 2", ["--local-steps 2", "--discriminator-batch-size"]),
    (
        "--global-batch-size 8 --set generator_batch_size=4",
        ["--set generator_batch_size=4", "--global-batch-size 8", "one of them"],
    ),
    ("--swap-interval 3", ["--swap-interval 3: paragan has no use"]),
    ("--generator-ranks 1..2", ["--generator-ranks 1..2", "add that"]),
    ("--updates async --generator-ranks 3..1", ["3..1: runs backwards; write 1..3"]),
    ("--updates async --generator-ranks 0..1", ["rank 0 is the server"]),
    ("--updates async --generator-ranks two", ["--generator-ranks two", "such as 1..2"]),
    ("--updates async --generator-ranks 1..4", ["1..4: leaves no worker for the discriminator"]),
    ("--updates async --generator-ranks 1..9", ["rank 9 is outside 1..4 (--world-size 5)"]),
    (
        "--updates async --generator-ranks 1..2 --set sync_after=3",
        ["--set sync_after=3", "one of the two"],
    ),
    (
        "--updates async --generator-ranks 1..2 --set image_buffer=0",
        ["--set image_buffer=0", "1 or more"],
    ),
    ("--updates async --generator-ranks 1..2 --kappa 2", ["--kappa 2", "leave it out"]),
    (
        "--updates async --generator-ranks 1..3 --global-batch-size 2",
        ["--global-batch-size 2", "3 workers that train a network"],
    ),
    ("--all-reduce tree", ["--all-reduce", "'tree'", "'star', 'ring'"]),
    ("--all-reduce ring --world-size 2", ["--all-reduce ring", "single worker", "more workers"]),
    ("--all-reduce fast --deadline 3x", ["--deadline 3x", "--all-reduce fast", "leave it out"]),
    (
        "--all-reduce ring --updates async --generator-ranks 1..2",
        ["--all-reduce ring", "--generator-ranks 1..2", "one of the two"],
    ),
]


@pytest.mark.parametrize(("flags", "parts"), CASES, ids=[case[0] for case in CASES])
def test_what_makes_no_sense_is_refused(tmp_path: Path, flags: str, parts: list[str]) -> None:
    result = run_here(*QUICK, *flags.split(), "--out", "run", cwd=tmp_path)
    assert result.status == 2, result
    assert result.errors.startswith("mdgan: ")
    assert result.errors.count("\n") == 1, result
    assert all(part in result.errors for part in parts), result
    assert not (tmp_path / "run").exists()


FOR_LONG = [*QUICK, "--iterations", "1000000", "--checkpoint-interval", "10"]
FOR_LONG += ["--log-interval", "1"]


@pytest.mark.slow
def test_a_server_that_was_killed(tmp_path: Path) -> None:
    running = training(tmp_path, *FOR_LONG)
    made = running.folder / "checkpoints"
    wait_until(lambda: len(list(made.glob("*/manifest.json"))) > 1, "two checkpoints")
    os.kill(running.server(), signal.SIGKILL)
    assert finish(running.process).status == 128 + signal.SIGKILL
    end = read_metrics(running.folder)[-1]["iteration"] + 7
    flags = ["--iterations", str(end), "--transport", "memory"]
    resumed = run_here("train", "--resume", "run", *flags, cwd=tmp_path)
    ours = ended_well(resumed, running.folder, end)
    whole = run_here(*QUICK, *flags, "--out", "whole", cwd=tmp_path)
    assert ended_well(whole, tmp_path / "whole", end) == ours


def a_worker_is_replaced(folder: Path, *flags: str, more: int = 5) -> Path:
    """Host 1 is killed, another joins, and training goes on for some iterations; the run."""
    running = training(folder, *FOR_LONG, *flags)
    wait_until(lambda: bool(read_metrics(running.folder)), "first iterations")
    os.kill(running.hosts()[0], signal.SIGKILL)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "the loss is noticed")
    newcomer = start([*MDGAN, "join", "run", "--threads", "1"], folder)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "the newcomer trains")
    last = read_metrics(running.folder)[-1]["iteration"]
    wait_until(lambda: read_metrics(running.folder)[-1]["iteration"] > last + more, "it goes on")
    running.process.terminate()
    assert finish(running.process).status == 128 + signal.SIGTERM
    assert "Traceback" not in finish(newcomer).errors
    return running.folder


@pytest.mark.slow
def test_workers_die_and_join(tmp_path: Path) -> None:
    a_worker_is_replaced(tmp_path)


def test_workers_of_the_generator_hold_no_data(tmp_path: Path) -> None:
    flags = ["--updates", "async", "--generator-ranks", "2..3", "--partition", "sorted"]
    told = run_here(*IN_MEMORY, *flags, "--dry-run", cwd=tmp_path).output
    lines = [line.split() for line in told.splitlines() if line.startswith("  rank ")]
    held = {line[1]: line[2] for line in lines}
    assert held == {"1": "719", "2": "no", "3": "no", "4": "719"}, "of 1,438 digits"
    assert "generator alone      rank 2, 3; 16 of 2 worker(s); rate as given" in told


@pytest.mark.slow
def test_scores_compare_with_all_samples_though_some_workers_hold_none(tmp_path: Path) -> None:
    scored = ["--eval-interval", "8", "--set", "eval_samples=100"]
    spread(tmp_path, "run", *APART, *scored)
    (scores,) = read_events(tmp_path / "run", "scores")
    assert scores["n_real"] == 1438
    assert {row["workers"] for row in read_metrics(tmp_path / "run")} == {4}
    assert run_here("report", "run", cwd=tmp_path).status == 0


@pytest.mark.slow
@pytest.mark.parametrize("group", ["1..1", "2..4"], ids=["generator", "discriminator"])
def test_the_only_worker_of_a_group_dies_and_another_takes_its_rank(
    tmp_path: Path, group: str
) -> None:
    run = a_worker_is_replaced(tmp_path, "--updates", "async", "--generator-ranks", group)
    (joined,) = read_events(run, "joined")
    assert joined["workers"] == [1]


@pytest.mark.slow
def test_listing_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of ParaGAN's Listing 1 has the bits of the command line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    config = {"batch_size": 8, "threads": 1, "sample_interval": 0, "transport": "memory"}
    manager = mdgan.ScalingManager({**config, "out": "ours"}, batch_size=18, num_workers=4)
    with pytest.raises(mdgan.BadInput, match="nothing was trained"):
        manager.eval()
    for _ in range(2):
        manager.train(mdgan.Estimator(), steps=4, quiet=True)
    flags = ["--global-batch-size", "18", "--lr-scaling", "linear"]
    assert here(tmp_path, "theirs", *flags) == generator_bytes(tmp_path / "ours")
    assert manager.eval(metric="kid", n=64) > 0
    with pytest.raises(mdgan.BadInput, match="metric=beauty"):
        manager.eval(metric="beauty", n=64)
    with pytest.raises(mdgan.BadInput, match="world_size"):
        mdgan.ScalingManager({"world_size": 3}, batch_size=18, num_workers=4)


def test_a_ring_is_refused_where_links_are_guarded(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    flags = ["--all-reduce", "ring", "--credentials", "run.cred", "--out", "run"]
    result = run_here(*QUICK, *flags, cwd=tmp_path)
    assert (result.status, result.errors.count("\n")) == (2, 1), result
    assert result.errors.startswith("mdgan: --all-reduce ring: ")
    assert "--insecure" in result.errors


def test_only_paragan_has_a_ring(tmp_path: Path) -> None:
    result = run_here("train", "--all-reduce", "ring", "--out", "run", cwd=tmp_path)
    assert result.status == 2
    assert "mdgan has no use for it" in result.errors


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--local-steps", "2"], FIRST_ASYNC], ids=["sync", "async"])
def test_processes_in_a_ring_give_the_same_generator(tmp_path: Path, flags: list[str]) -> None:
    together = here(tmp_path, "memory", *flags)
    in_a_ring = [*flags, "--all-reduce", "ring"]
    assert spread(tmp_path, "one", *in_a_ring, "--workers-per-host", "3") == together
    stopped = [*in_a_ring, "--iterations", "3", "--out", "half"]
    assert run(*QUICK, *stopped, cwd=tmp_path).status == 0
    resumed = ["train", "--resume", "half", "--iterations", "8"]
    assert ended_well(run(*resumed, cwd=tmp_path), tmp_path / "half", 8) == together
    assert run_here("report", "half", cwd=tmp_path).status == 0
    assert not read_events(tmp_path / "half", "replica")


@pytest.mark.slow
def test_a_run_changes_between_star_and_ring(tmp_path: Path) -> None:
    together = here(tmp_path, "memory")
    first = [*IN_MEMORY, "--all-reduce", "ring", "--iterations", "3", "--out", "half"]
    assert run_here(*first, cwd=tmp_path).status == 0
    for how, end in (("star", "5"), ("ring", "8")):
        resumed = ["train", "--resume", "half", "--iterations", end, "--all-reduce", how]
        result = run_here(*resumed, "--transport", "memory", cwd=tmp_path)
        assert result.status == 0, result
    assert generator_bytes(tmp_path / "half") == together


DYING = [*QUICK, "--all-reduce", "ring", "--checkpoint-interval", "1"]


@pytest.mark.slow
def test_a_member_that_dies_while_gradients_are_added_up(tmp_path: Path) -> None:
    faults = "host-2:kill@reduce:4"
    died = run(*DYING, "--out", "ring", cwd=tmp_path, MDGAN_FAULTS=faults)
    ours = ended_well(died, tmp_path / "ring", 8)
    (event,) = read_events(tmp_path / "ring", "lost")
    assert (event["workers"], event["iteration"]) == ([2], 4)
    assert "the ring broke" in died.errors
    assert [row["workers"] for row in read_metrics(tmp_path / "ring")][-1] == 3
    assert not read_events(tmp_path / "ring", "replica"), "it was built again, and all are alike"
    # The star loses as much where that worker dies before it answers.
    flags = ["--checkpoint-interval", "1", "--out", "star"]
    star = run(*QUICK, *flags, cwd=tmp_path, MDGAN_FAULTS="host-2:kill@send:4")
    assert ended_well(star, tmp_path / "star", 8) == ours


@pytest.mark.slow
def test_a_newcomer_in_a_ring(tmp_path: Path) -> None:
    run = a_worker_is_replaced(tmp_path, "--all-reduce", "ring", more=25)  # replicas are compared
    assert not read_events(run, "replica")


@pytest.mark.slow
def test_a_server_that_is_killed_while_gradients_are_added_up(tmp_path: Path) -> None:
    faults = "server:kill@reduce:5"
    died = run(*DYING, "--out", "run", cwd=tmp_path, MDGAN_FAULTS=faults)
    assert died.status == 128 + signal.SIGKILL
    resumed = run_here("train", "--resume", "run", "--transport", "memory", cwd=tmp_path)
    assert ended_well(resumed, tmp_path / "run", 8) == here(tmp_path, "whole")
