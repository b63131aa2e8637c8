"""ParaGAN from the command line: the same bits everywhere, and refusals of one line."""

import itertools
import os
import signal
from pathlib import Path

import pytest

import mdgan
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.collective import Collective
from tests import namespaces
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


def train_in_memory(folder: Path, name: str, *flags: str) -> bytes:
    """Trains in this process."""
    return ended_well(run_here(*IN_MEMORY, *flags, "--out", name, cwd=folder), folder / name, 8)


def spread(folder: Path, name: str, *flags: str) -> bytes:
    """Trains with processes."""
    return ended_well(run(*QUICK, *flags, "--out", name, cwd=folder), folder / name, 8)


def test_one_worker_equals_standalone(tmp_path: Path) -> None:
    alone = ["standalone", *QUICK[3:], "--local-steps", "2", "--out", "alone"]
    theirs = ended_well(run_here(*alone, cwd=tmp_path), tmp_path / "alone", 8)
    assert train_in_memory(tmp_path, "ours", "--world-size", "2", "--local-steps", "2") == theirs


WITHOUT_BUFFERS = """

def Generator():
    return nn.Sequential(nn.Linear(Z_DIM, 64), nn.Tanh(), nn.Unflatten(1, SHAPE))


def Discriminator():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
"""


@pytest.mark.parametrize(
    "more",
    [pytest.param("", marks=pytest.mark.slow), WITHOUT_BUFFERS],
    ids=["digits", "without buffers"],
)
def test_common_memory_gives_the_bits_of_the_star(tmp_path: Path, more: str) -> None:
    digits = (REPOSITORY / "datasets" / "digits.py").read_text()
    (tmp_path / "own.py").write_text(digits + more)
    flags = ["--dataset", "own", "--datasets-dir", ".", "--world-size", "3"]
    shared = spread(tmp_path, "shared", *flags, "--all-reduce", "shared")
    assert shared == train_in_memory(tmp_path, "star", *flags, "--all-reduce", "star")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sngan", "biggan"])
def test_common_memory_holds_buffers_that_change_in_each_pass(
    tmp_path: Path, architecture: str
) -> None:
    flags = ["--architecture", architecture, "--width", "4", "--world-size", "3"]
    shared = spread(tmp_path, "shared", *flags, "--all-reduce", "shared")
    assert shared == train_in_memory(tmp_path, "star", *flags, "--all-reduce", "star")


DIRECT = ["--all-reduce", "direct"]


@pytest.mark.parametrize(
    "more",
    [[], pytest.param(["--workers-per-host", "2"], marks=pytest.mark.slow)],
    ids=["apart", "two a host"],
)
def test_hosts_that_add_up_give_the_bits_of_the_star(tmp_path: Path, more: list[str]) -> None:
    flags = ["--local-steps", "2", "--generator-optimizer", "adam:clip_norm=0.5"]
    direct = spread(tmp_path, "direct", *flags, *DIRECT, *more)
    assert direct == train_in_memory(tmp_path, "star", *flags)
    assert run_here("report", "direct", cwd=tmp_path).status == 0


@pytest.mark.parametrize("part", ["trade", pytest.param("gather", marks=pytest.mark.slow)])
def test_a_group_that_breaks_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """One member fails once, in the middle of a sum, and leaves the group."""
    works = getattr(Collective, part)
    calls = itertools.count()

    def fails_once(self: Collective, *arguments: object, **named: object) -> bool:
        if next(calls) == 13:
            self.close()
        return bool(works(self, *arguments, **named))

    monkeypatch.setattr(Collective, part, fails_once)
    flags = ["--workers-per-host", "1", *DIRECT, "--out", "direct"]
    result = run_here(*IN_MEMORY, *flags, cwd=tmp_path)
    assert "group broke: the server adds up" in result.errors
    assert ended_well(result, tmp_path / "direct", 8) == train_in_memory(tmp_path, "star")


def test_hosts_that_would_step_otherwise_leave_it_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = messages.member
    monkeypatch.setattr(messages, "member", lambda i, place, _: tells(i, place, "another chip"))
    flags = ["--workers-per-host", "1", *DIRECT, "--out", "direct"]
    result = run_here(*IN_MEMORY, *flags, cwd=tmp_path)
    assert result.errors.count("another chip: gradients go through the server") == 1
    assert ended_well(result, tmp_path / "direct", 8) == train_in_memory(tmp_path, "star")


FIRST_ASYNC = ["--updates", "async", "--set", "image_buffer=2", "--set", "sync_after=5"]
FIRST_ASYNC += ["--set", "generator_batch_size=12"]


APART = ["--updates", "async", "--generator-ranks", "1..2", "--set", "image_buffer=2"]
APART += ["--set", "generator_batch_size=12"]


SPREAD = [
    pytest.param([], id="sync", marks=pytest.mark.slow),
    pytest.param(FIRST_ASYNC, id="async", marks=pytest.mark.slow),
    pytest.param([*FIRST_ASYNC, *DIRECT], id="direct"),
    pytest.param(APART, id="apart, lag 2"),
    pytest.param(APART[:4], id="apart, lag 1", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("flags", SPREAD)
def test_any_spread_and_any_stop_give_the_same_generator(tmp_path: Path, flags: list[str]) -> None:
    together = train_in_memory(tmp_path, "memory", *flags)
    one_each = ["--workers-per-host", "1"]
    assert train_in_memory(tmp_path, "apart", *flags, *one_each) == together
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
    assert train_in_memory(tmp_path, "lag-0", *flags) == train_in_memory(tmp_path, "serial")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--workers-per-host", "3"], FIRST_ASYNC, APART], ids=str)
def test_processes_give_the_same_generator(tmp_path: Path, flags: list[str]) -> None:
    together = train_in_memory(tmp_path, "memory", *flags)
    assert spread(tmp_path, "processes", *flags) == together
    assert run_here("report", "processes", cwd=tmp_path).status == 0


CASES = [
    ("--lr-scaling cubic", ["--lr-scaling cubic", "none, linear, sqrt"]),
    ("--updates async --generator-ranks 3..1", ["3..1: runs backwards; write 1..3"]),
    ("--updates async --generator-ranks 0..1", ["rank 0 is the server"]),
    ("--updates async --generator-ranks two", ["--generator-ranks two", "such as 1..2"]),
    (
        "--updates async --generator-ranks 1..3 --global-batch-size 2",
        ["--global-batch-size 2", "3 workers that train a network"],
    ),
    ("--all-reduce fast", ["'--all-reduce': 'fast' is not one of 'shared', 'star', 'direct'"]),
    ("--all-reduce direct --deadline 3", ["--deadline 3", "--all-reduce star"]),
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


def a_worker_is_replaced(folder: Path, *flags: str) -> Path:
    """Host 1 is killed, another joins, and training goes on for some iterations; the run."""
    running = training(folder, *FOR_LONG, *flags)
    wait_until(lambda: bool(read_metrics(running.folder)), "first iterations")
    os.kill(running.hosts()[0], signal.SIGKILL)
    wait_until(lambda: bool(read_events(running.folder, "lost")), "the loss is noticed")
    newcomer = start([*MDGAN, "join", "run", "--threads", "1"], folder)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "the newcomer trains")
    last = read_metrics(running.folder)[-1]["iteration"]
    wait_until(lambda: read_metrics(running.folder)[-1]["iteration"] > last + 5, "it goes on")
    running.process.terminate()
    assert finish(running.process).status == 128 + signal.SIGTERM
    assert "Traceback" not in finish(newcomer).errors
    return running.folder


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shared", "direct"])
def test_workers_die_and_join(tmp_path: Path, how: str) -> None:
    a_worker_is_replaced(tmp_path, "--all-reduce", how)


@pytest.mark.slow
@pytest.mark.skipif(
    not namespaces.available(), reason="needs root and `ip` to make network namespaces"
)
def test_machines_that_add_up_give_the_generator_of_one(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    with namespaces.machines(3) as (first, second, third):
        flags = [*QUICK, *DIRECT, "--credentials", "run.cred", "--master-addr", first.address]
        places = {first: "0,1", second: "2", third: "3,4"}
        started = [
            start([*machine.prefix, *MDGAN, *flags, "--ranks", ranks, "--out", "run"], tmp_path)
            for machine, ranks in places.items()
        ]
        ended = [finish(process) for process in started]
    assert [result.status for result in ended] == [0, 0, 0], ended
    assert "go through the server" not in ended[0].errors
    assert generator_bytes(tmp_path / "run") == train_in_memory(tmp_path, "star")


def test_workers_of_the_generator_hold_no_data(tmp_path: Path) -> None:
    flags = ["--updates", "async", "--generator-ranks", "2..3", "--partition", "sorted"]
    output = run_here(*IN_MEMORY, *flags, "--dry-run", cwd=tmp_path).output
    lines = [line.split() for line in output.splitlines() if line.startswith("  rank ")]
    held = {line[1]: line[2] for line in lines}
    assert held == {"1": "719", "2": "no", "3": "no", "4": "719"}, "of 1,438 digits"
    assert "generator alone      rank 2, 3; 16 of 2 worker(s); rate as given" in output


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
    assert train_in_memory(tmp_path, "theirs", *flags) == generator_bytes(tmp_path / "ours")
    assert manager.eval(metric="kid", n=64) > 0
    with pytest.raises(mdgan.BadInput, match="metric=beauty"):
        manager.eval(metric="beauty", n=64)
    with pytest.raises(mdgan.BadInput, match="world_size"):
        mdgan.ScalingManager({"world_size": 3}, batch_size=18, num_workers=4)
