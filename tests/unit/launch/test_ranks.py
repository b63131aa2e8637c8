from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.launch.ranks import LocalRanks, local_ranks, parse_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.launch.task import LaunchedTask, task_of_torchrun

quick = settings(deadline=None, max_examples=80)
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


NEEDED = ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]


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
    found = local_ranks(RunSettings(world_size=6), LaunchSettings(**launch), None)
    assert found == LocalRanks(serves=serves, hosts=hosts, complete=complete)
    assert found.num_processes == len(hosts) + serves
    assert found.workers() == [worker for host in hosts for worker in host]


def test_the_variables_of_torchrun_are_read() -> None:
    assert task_of_torchrun({}) is None
    assert task_of_torchrun({"WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}) is None
    task = LaunchedTask("torchrun", 2, 4, 3, 1, "10.0.0.1", 29400, True, "5")
    assert task_of_torchrun(TORCHRUN) == task
    needed = {name: TORCHRUN[name] for name in ("RANK", *NEEDED)}
    alone = LaunchedTask("torchrun", 2, 4, 1, 0, "10.0.0.1", 29400)
    assert task_of_torchrun(needed) == alone


@pytest.mark.parametrize("missing", [["WORLD_SIZE"], ["MASTER_ADDR"], ["MASTER_PORT"], NEEDED])
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
    found = task_of_torchrun({**TORCHRUN, "RANK": str(process), "WORLD_SIZE": str(num_processes)})
    assert found is not None
    return found


@pytest.mark.parametrize("carried", [None, 2, 5])
def test_torchruns_processes_make_a_whole_world(carried: int | None) -> None:
    world_size = torchrun(0).world_size(carried or 1)
    assert world_size == 1 + 3 * (carried or 1)
    run = RunSettings(world_size=world_size)
    launch = LaunchSettings(workers_per_host=carried)
    found = [local_ranks(run, launch, torchrun(process)) for process in range(4)]
    assert [ranks.serves for ranks in found] == [True, False, False, False]
    assert all(ranks.num_processes == 1 and not ranks.complete for ranks in found)
    workers = [worker for ranks in found for worker in ranks.workers()]
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
