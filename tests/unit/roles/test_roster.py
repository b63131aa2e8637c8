import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.roles.roster import Roster, make_hello

IDENTITY: dict[str, Any] = {"version": "1.2", "batch_size": 10, "kappa": "auto", "swap": None}
MALFORMED = "its hello is malformed; use the same version of mdgan everywhere"


def hello(*workers: int, samples: int = 100, **differences: Any) -> dict[str, Any]:
    """What arrives, after a journey as JSON, from a host that carries some workers."""
    said = make_hello(
        workers[0] if workers else 1,
        {worker: [samples - 1, 1] for worker in workers},
        {**IDENTITY, **differences},
    )
    content: dict[str, Any] = json.loads(json.dumps(said))
    return content


def test_a_hello_says_who_where_and_how_many() -> None:
    assert make_hello(3, {3: [20, 30], 4: [0, 0, 60]}, IDENTITY) == {
        "host": 3,
        "workers": [3, 4],
        "num_samples": {"3": 50, "4": 60},
        "class_counts": {"3": [20, 30], "4": [0, 0, 60]},
        "identity": IDENTITY,
    }


def test_equal_hosts_are_welcome() -> None:
    roster = Roster(4, IDENTITY)
    assert roster.admit(hello(1, 2)) is None
    assert roster.admit(hello(4)) is None
    assert roster.admit(hello(3)) is None


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("version", "1.1", "1.2"),
        ("batch_size", 32, "10"),
        ("kappa", 3, "auto"),
        ("swap", "pairs", "None"),
    ],
)
def test_a_difference_is_named_with_both_values(name: str, theirs: Any, ours: str) -> None:
    roster = Roster(4, IDENTITY)
    refusal = roster.admit(hello(3, 4, **{name: theirs}))
    assert refusal is not None
    assert f"rank 3 has {name} = {theirs}" in refusal
    assert f"rank 0 has {name} = {ours}" in refusal
    assert "\n" not in refusal
    assert roster.admit(hello(3, 4)) is None, "a refusal must not take the place"


def test_a_setting_that_is_missing_there_is_a_difference() -> None:
    said = hello(1)
    del said["identity"]["batch_size"]
    refusal = Roster(4, IDENTITY).admit(said)
    assert refusal is not None
    assert "batch_size = None" in refusal


def test_a_value_of_another_type_is_a_difference() -> None:
    assert Roster(4, IDENTITY).admit(hello(1, batch_size="10")) is not None


@pytest.mark.parametrize("worker", [0, -1, 5, 99])
def test_a_rank_outside_the_world_is_refused(worker: int) -> None:
    roster = Roster(4, IDENTITY)
    assert roster.admit(hello(worker)) == f"rank {worker} is outside 1..4"
    assert roster.admit(hello(1, worker)) == f"rank {worker} is outside 1..4"
    assert roster.admit(hello(1)) is None, "a refusal must not take the place of rank 1"


def test_a_rank_that_is_there_already_is_refused() -> None:
    roster = Roster(4, IDENTITY)
    roster.admit(hello(1, 2))
    refusal = roster.admit(hello(2, 3))
    assert refusal is not None
    assert "rank 2 has joined already" in refusal
    assert roster.admit(hello(3)) is None, "a refusal must not take the place of rank 3"


def test_a_rank_twice_in_one_host_is_refused() -> None:
    said = {**hello(1), "workers": [1, 1]}
    assert Roster(4, IDENTITY).admit(said) is not None


def test_nobody_may_join_after_the_close() -> None:
    roster = Roster(4, IDENTITY)
    roster.admit(hello(1))
    roster.close()
    assert roster.admit(hello(2)) == "training has begun without it"


@pytest.mark.parametrize(
    "damage",
    [
        {"workers": None},
        {"workers": 3},
        {"workers": ["one"]},
        {"workers": [None]},
        {"workers": [[1]]},
        {"workers": []},
        {"workers": [float("inf")]},
        {"identity": None},
        {"identity": "1.2"},
        {"identity": ["version"]},
        {"num_samples": None},
        {"num_samples": [100]},
        {"num_samples": {"1": None}},
        {"num_samples": {"one": 100}},
        {"num_samples": {"1": float("inf")}},
        {"class_counts": None},
        {"class_counts": {"1": 100}},
        {"class_counts": {"1": ["many"]}},
    ],
)
def test_a_malformed_hello_is_refused(damage: dict[str, Any]) -> None:
    roster = Roster(4, IDENTITY)
    assert roster.admit({**hello(1), **damage}) == MALFORMED
    assert roster.admit(hello(1)) is None


@pytest.mark.parametrize("name", ["workers", "identity", "num_samples", "class_counts"])
def test_a_hello_with_something_missing_is_refused(name: str) -> None:
    said = hello(1)
    del said[name]
    assert Roster(4, IDENTITY).admit(said) == MALFORMED


def test_a_hello_from_another_version_with_malformed_workers_does_not_stop_the_acceptor() -> None:
    assert Roster(4, IDENTITY).admit({**hello(version="0.1"), "workers": []}) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=80)
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("workers", "num_samples", "class_counts", "identity"), json_values),
    )
)
def test_whatever_is_said_there_is_an_answer(said: dict[str, Any]) -> None:
    answer = Roster(4, IDENTITY).admit({**hello(1), **said})
    assert answer is None or isinstance(answer, str)


def join(roster: Roster, *workers: int, samples: int = 100) -> None:
    assert roster.admit(hello(*workers, samples=samples)) is None
    roster.joined(workers[0], list(workers))


def test_who_is_absent_who_is_here_and_where() -> None:
    roster = Roster(5, IDENTITY)
    assert roster.absent() == [1, 2, 3, 4, 5]
    assert roster.workers() == []
    join(roster, 4, 3)
    join(roster, 1)
    assert roster.absent() == [2, 5]
    assert roster.workers() == [1, 3, 4]
    assert roster.hosts() == {1: [1], 4: [3, 4]}
    assert list(roster.hosts()) == [1, 4]
    assert roster.host_of() == {1: 1, 3: 4, 4: 4}


def test_being_admitted_is_not_being_here() -> None:
    roster = Roster(2, IDENTITY)
    roster.admit(hello(1, 2))
    assert roster.absent() == [1, 2]
    assert roster.workers() == []


def test_a_lost_host_takes_its_workers_along_once() -> None:
    roster = Roster(4, IDENTITY)
    join(roster, 1, 2)
    join(roster, 3)
    assert roster.lose(1) == [1, 2]
    assert roster.lose(1) == []
    assert roster.lose(77) == []
    assert roster.workers() == [3]
    assert roster.hosts() == {3: [3]}
    assert roster.host_of() == {3: 3}


def test_the_mean_shard_size_is_over_those_who_are_here() -> None:
    roster = Roster(4, IDENTITY)
    join(roster, 1, 2, samples=10)
    join(roster, 3, samples=40)
    join(roster, 4, samples=1000)
    roster.lose(4)
    roster.close()
    assert roster.mean_shard_size == 20.0


def test_nobody_has_a_mean_shard_size_of_zero() -> None:
    roster = Roster(4, IDENTITY)
    roster.close()
    assert roster.mean_shard_size == 0.0


def test_of_many_who_want_the_same_place_one_gets_it() -> None:
    roster = Roster(8, IDENTITY)
    answers: list[str | None] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(10)
        answers.append(roster.admit(hello(1, 2)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(answers) == 8
    assert answers.count(None) == 1
