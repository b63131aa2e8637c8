"""Which ranks run where: by flags, under torchrun, Slurm and Ray."""

import stat
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.launch.given import Given
from mdgan.launch.ranks import LocalRanks, local_ranks, parse_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.task import (
    NEEDED,
    LaunchedTask,
    address_of_node,
    first_node,
    task_of_slurm,
    task_of_torchrun,
    tasks_per_node,
)
from tests.marks import examples

quick = settings(deadline=None, max_examples=examples(60))
TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "3",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "5",
}
OF_TORCHRUN = ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]


def one_line(error: pytest.ExceptionInfo[BadInput]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) == 1, text
    return text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is no rank"),
        ("1,,2", "'' is no rank"),
        ("one", "'one' is no rank"),
        ("1-3", "'1-3' is no rank"),
        ("..3", "'..3' is no rank"),
        ("3..", "'3..' is no rank"),
        ("4..2", "4..2 runs backwards; write 2..4"),
        ("10", "rank 10 is outside 0..9 (--world-size 10)"),
        ("-2..3", "rank -2 is outside 0..9"),
        ("0..99999999999999999999", "rank 99999999999999999999 is outside"),
        ("1,1", "rank 1 is given twice"),
        ("0..3,2..5", "rank 2 is given twice"),
    ],
)
def test_ranks_that_make_no_sense_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_ranks(text, 10)
    assert one_line(caught).startswith(f"--ranks {text}: {reason}")


@quick
@given(st.sets(st.integers(0, 30), min_size=1), st.data())
def test_ranks_are_read_as_they_are_written(ranks: set[int], data: st.DataObject) -> None:
    parts, left = [], sorted(ranks)
    while left:
        run = 1
        while run < len(left) and left[run] == left[0] + run and data.draw(st.booleans()):
            run += 1
        parts.append(str(left[0]) if run == 1 else f"{left[0]}..{left[run - 1]}")
        left = left[run:]
    shuffled = data.draw(st.permutations(parts))
    comma = data.draw(st.sampled_from([",", " , "]))
    assert parse_ranks(comma.join(shuffled), 31) == sorted(ranks)


@pytest.mark.parametrize(
    ("launch", "serves", "hosts", "complete"),
    [
        ({}, True, ((1,), (2,), (3,), (4,), (5,)), True),
        ({"workers_per_host": 2}, True, ((1, 2), (3, 4), (5,)), True),
        ({"workers_per_host": 9}, True, ((1, 2, 3, 4, 5),), True),
        ({"transport": "memory"}, True, ((1, 2, 3, 4, 5),), True),
        ({"transport": "memory", "workers_per_host": 3}, True, ((1, 2, 3), (4, 5)), True),
        ({"ranks": "0"}, True, (), False),
        ({"ranks": "5,4,3,2,1,0", "workers_per_host": 5}, True, ((1, 2, 3, 4, 5),), True),
        ({"ranks": "2..5", "workers_per_host": 2}, False, ((2, 3), (4, 5)), False),
        ({"ranks": "1,2,4,5", "workers_per_host": 3}, False, ((1, 2), (4, 5)), False),
        ({"ranks": "0,1,3,5", "workers_per_host": 2}, True, ((1,), (3,), (5,)), False),
    ],
)
def test_workers_share_processes_in_runs_of_consecutive_ranks(
    launch: dict[str, Any], serves: bool, hosts: tuple[tuple[int, ...], ...], complete: bool
) -> None:
    result = local_ranks(RunSettings(world_size=6), LaunchSettings(**launch), None)
    assert result == LocalRanks(serves=serves, hosts=hosts, complete=complete)
    assert result.num_processes == len(hosts) + serves
    assert result.workers() == [worker for host in hosts for worker in host]


def test_the_variables_of_torchrun_are_read() -> None:
    assert task_of_torchrun({}) is None
    assert task_of_torchrun({"WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}) is None
    task = LaunchedTask("torchrun", 2, 4, 3, 1, "10.0.0.1", 29400, True, "5")
    assert task_of_torchrun(TORCHRUN) == task
    needed = {name: TORCHRUN[name] for name in ("RANK", *OF_TORCHRUN)}
    alone = LaunchedTask("torchrun", 2, 4, 1, 0, "10.0.0.1", 29400)
    assert task_of_torchrun(needed) == alone


@pytest.mark.parametrize("missing", [["WORLD_SIZE"], ["MASTER_ADDR"], ["MASTER_PORT"], OF_TORCHRUN])
def test_missing_variables_are_named(missing: list[str]) -> None:
    environment = {name: value for name, value in TORCHRUN.items() if name not in missing}
    with pytest.raises(BadInput, match=f"does, but {', '.join(missing)} is not; set") as caught:
        task_of_torchrun(environment)
    one_line(caught)


@pytest.mark.parametrize(
    "name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"]
)
@pytest.mark.parametrize("value", ["", "two", "1.5", "1\nx"])
def test_a_variable_that_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadInput, match="must be numbers") as caught:
        task_of_torchrun({**TORCHRUN, name: value})
    one_line(caught)


@pytest.mark.parametrize(
    ("name", "value"), [("RANK", "-1"), ("RANK", "4"), ("WORLD_SIZE", "0"), ("WORLD_SIZE", "-3")]
)
def test_a_process_outside_torchruns_own_world_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=name):
        task_of_torchrun({**TORCHRUN, name: value})


def torchrun(process: int, num_processes: int = 4) -> LaunchedTask:
    result = task_of_torchrun({**TORCHRUN, "RANK": str(process), "WORLD_SIZE": str(num_processes)})
    assert result is not None
    return result


@pytest.mark.parametrize("carried", [None, 2, 5])
def test_torchruns_processes_make_a_whole_world(carried: int | None) -> None:
    world_size = torchrun(0).world_size(carried or 1)
    assert world_size == 1 + 3 * (carried or 1)
    run = RunSettings(world_size=world_size)
    launch = LaunchSettings(workers_per_host=carried)
    results = [local_ranks(run, launch, torchrun(process)) for process in range(4)]
    assert [ranks.serves for ranks in results] == [True, False, False, False]
    assert all(ranks.num_processes == 1 and not ranks.complete for ranks in results)
    workers = [worker for ranks in results for worker in ranks.workers()]
    assert workers == list(range(1, world_size))


@pytest.mark.parametrize(
    ("launch", "world_size", "reason"),
    [
        ({"ranks": "0..3"}, 4, "--ranks 0..3: torchrun says"),
        ({"transport": "memory"}, 4, "--transport memory: needs one process"),
        ({"cores": "0"}, 4, "--cores 0: torchrun starts every process"),
        ({}, 5, "--world-size 5: torchrun started 4 processes, which makes 4 ranks"),
        ({"workers_per_host": 2}, 4, "which makes 7 ranks with --workers-per-host 2"),
    ],
)
def test_flags_that_contradict_torchrun_are_refused(
    launch: dict[str, Any], world_size: int, reason: str
) -> None:
    with pytest.raises(BadInput) as caught:
        local_ranks(RunSettings(world_size=world_size), LaunchSettings(**launch), torchrun(1))
    assert reason in one_line(caught)


SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_STEP_NODELIST": "n[1-3]",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURMD_NODENAME": "n3",
}

FIRST = {**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1"}


def read(environment: dict[str, str], **flags: object) -> LaunchedTask | None:
    return task_of_slurm(environment, flags, address_of=lambda name: name)


def task(environment: dict[str, str], **flags: object) -> LaunchedTask:
    result = read(environment, **flags)
    assert result is not None
    return result


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(BadInput) as caught:
        read(environment)
    text = str(caught.value)
    assert text.isprintable(), text
    assert len(text) < 400
    return text


def test_a_task_of_slurm_is_told_what_a_process_of_torchrun_is() -> None:
    assert task(SLURM) == LaunchedTask(
        *("Slurm", 3, 4, 1, 0, "n1", 23456), attempt="1", cores=8, prints_together=True
    )
    # Tasks on one node share its cores unless Slurm was asked for some.
    assert (task(FIRST).processes_here, task(FIRST).cores) == (2, 4)
    assert task({**FIRST, "SLURM_CPUS_PER_TASK": "3"}).cores == 3


def test_an_address_that_the_user_gives_wins() -> None:
    elsewhere = {**FIRST, "SLURMD_NODENAME": "n3"}
    text = refusal(elsewhere)
    assert "SLURM_PROCID 0 runs on n3, not on n1" in text
    assert "--master-addr" in text
    given = task(elsewhere, master_addr="10.0.0.9", master_port=4000)
    assert (given.master_addr, given.master_port) == ("10.0.0.9", 4000)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # A job script has the variables of the job, but none of a step.
        {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"},
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},  # srun --pty bash
    ],
)
def test_without_several_tasks_slurm_starts_no_ranks(environment: dict[str, str]) -> None:
    assert read(environment) is None


@pytest.mark.parametrize("name", [n for n in NEEDED if n not in ("SLURM_PROCID",)])
def test_a_missing_variable_is_named(name: str) -> None:
    environment = {key: value for key, value in SLURM.items() if key != name}
    if name == "SLURM_STEP_NUM_TASKS":
        assert read(environment) is None
    else:
        assert name in refusal(environment)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SLURM_PROCID", "4", "in [0, 3]"),
        ("SLURM_PROCID", "٣", "whole number"),
        ("SLURM_STEP_NUM_TASKS", "5", "makes 4 tasks, not the 5 of SLURM_STEP_NUM_TASKS"),
        ("SLURM_NODEID", "3", "in [0, 2]"),
        ("SLURM_LOCALID", "1", "in [0, 0]"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x9999999)", "must be like 2(x3),1"),
        ("SLURM_STEP_NODELIST", "--help", "must be like n[1-3],m5"),
        ("SLURM_JOB_ID", "1" * 30, "whole number"),
        ("SLURM_CPUS_ON_NODE", "0", "whole number"),
    ],
)
def test_contradictions_are_refused_in_one_line(name: str, value: str, says: str) -> None:
    text = refusal({**SLURM, name: value})
    assert name in text
    assert says in text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("n1", "n1"),
        ("n[1-3]", "n1"),
        ("n[007-010,12],m5", "n007"),
        ("gpu-a.site.org,n[1-2]", "gpu-a.site.org"),
        ("r[1-2]n[05,7]-ib", "r1n05-ib"),
    ],
)
def test_the_first_node_of_a_list(text: str, name: str) -> None:
    assert first_node(text) == name


@quick
@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 40)), min_size=1, max_size=8))
def test_tasks_per_node_are_read_as_slurm_writes_them(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
    assert tasks_per_node(text) == [count for count, times in runs for _ in range(times)]


hostile = st.one_of(
    st.text(max_size=40).filter(lambda text: "\0" not in text),
    st.text(alphabet=string.digits + "()x,[]-n", max_size=20),
    st.integers(-(10**20), 10**20).map(str),
)


@quick
@given(st.dictionaries(st.sampled_from([*NEEDED, "SLURM_CPUS_PER_TASK"]), hostile, min_size=1))
def test_whatever_the_variables_hold_is_read_or_refused_in_one_line(
    changes: dict[str, str],
) -> None:
    environment, task = {**SLURM, **changes}, None
    try:
        task = read(environment)
    except BadInput:
        refusal(environment)
    if task is not None:
        assert 0 <= task.process < task.num_processes
        assert 0 <= task.process_here < task.processes_here <= task.num_processes
        assert 1023 < task.master_port < 32768
        assert task.cores is None or task.cores >= 1


def test_flags_that_contradict_slurm_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SLURM, "SLURM_STEP_NODELIST": "localhost"}.items():
        monkeypatch.setenv(name, value)
    named = Given([{}], launcher="auto").named()
    assert named.task is not None
    assert named.draft.world_size == 4
    assert Given([{}]).named().task is None  # mdgan join, mdgan plan: each task is alone
    with pytest.raises(BadInput, match="--ranks 0: Slurm says which rank runs; leave it out"):
        local_ranks(RunSettings(world_size=4), LaunchSettings(ranks="0"), named.task)


def test_torchrun_within_a_step_of_slurm_starts_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4"}
    for name, value in {**SLURM, "SLURM_STEP_NODELIST": "localhost", **changes}.items():
        monkeypatch.setenv(name, value)
    result = Given([{}], launcher="auto").named().task
    assert result is not None
    assert (result.launcher, result.process, result.num_processes) == ("torchrun", 1, 3)
    result = Given([{}], launcher="slurm").named().task
    assert result is not None
    assert (result.launcher, result.process) == ("Slurm", 3)


@pytest.mark.parametrize("launcher", ["slurm", "torchrun"])
def test_a_launcher_that_has_not_started_this_process_is_refused(
    launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*NEEDED, "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadInput, match=rf"--launcher {launcher}: .*start it with `\w+ "):
        Given([{}], launcher=launcher).named()  # type: ignore[arg-type] # one of the two


def stub_of_scontrol(folder: Path, says: str) -> None:
    path = folder / "scontrol"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_slurm_is_asked_for_the_address_of_a_node_whose_name_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert address_of_node("localhost") == "localhost"
    stub_of_scontrol(tmp_path, "NodeName=n1 NodeAddr=127.0.0.7 NodeHostName=n1")
    assert address_of_node("no-such-node.invalid") == "127.0.0.7"
    stub_of_scontrol(tmp_path, "Node no-such-node.invalid not found")
    with pytest.raises(BadInput, match=r"no-such-node\.invalid has no address here; give --master"):
        address_of_node("no-such-node.invalid")
