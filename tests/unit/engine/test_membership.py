"""Who may come in."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdgan.engine.hello import make_hello
from tests.processes import wait_until

IDENTITY: dict[str, Any] = {"version": "1.2", "batch_size": 10, "kappa": "auto", "swap": None}
TOLD: dict[str, Any] = {"generation": 3, "run": "digits-1"}
MALFORMED = "its hello is malformed; use the same version of mdgan everywhere"
HOUR = 3600.0


def make_members(
    num_workers: int = 4, *, return_seconds: float = HOUR, iteration: int = 0
) -> Membership:
    return Membership(range(1, num_workers + 1), IDENTITY, TOLD, return_seconds, iteration)


def hello(*workers: int, samples: int = 100, **differences: Any) -> dict[str, Any]:
    """What arrives, after a journey as JSON, from a host that carries some workers."""
    said = make_hello(
        workers[0] if workers else 1,
        {worker: [samples - 1, 1] for worker in workers},
        {**IDENTITY, **differences},
    )
    content: dict[str, Any] = json.loads(json.dumps(said))
    return content


def welcomed(answer: Mapping[str, Any] | str) -> Mapping[str, Any]:
    assert isinstance(answer, Mapping), answer
    return answer


def refused(answer: Mapping[str, Any] | str) -> str:
    assert isinstance(answer, str), answer
    assert len(answer.splitlines()) == 1
    return answer


def join(
    members: Membership, *workers: int, samples: int = 100, ready: bool = True
) -> dict[str, Any]:
    said = hello(*workers, samples=samples)
    welcomed(members.admit(said))
    members.joined(workers[0], said)
    if ready:
        members.arrived(workers[0])
    return said


def test_a_hello_says_who_and_how_many() -> None:
    said = make_hello(3, {3: [20, 30], 4: [0, 0, 60]}, IDENTITY)
    key = said.pop("key")
    assert said == {
        "purpose": "join",
        "host": 3,
        "workers": [3, 4],
        "num_samples": {"3": 50, "4": 60},
        "class_counts": {"3": [20, 30], "4": [0, 0, 60]},
        "identity": IDENTITY,
        "generation": 0,
    }
    assert len(key) == 32
    assert key != make_hello(3, {3: [1]}, IDENTITY)["key"]


def test_equal_hosts_are_welcome() -> None:
    members = make_members(iteration=7)
    for workers in ((1, 2), (4,), (3,)):
        told = welcomed(members.admit(hello(*workers)))
        assert told == {**TOLD, "iteration": 7, "checkpoint": None}


def test_who_watches_and_who_asks_is_told_what_it_needs() -> None:
    members = make_members()
    assert members.admit({"purpose": "watch"}) == TOLD
    told = welcomed(members.admit({"purpose": "ask"}))
    assert told == {**TOLD, "identity": IDENTITY, "rank": 1}


def test_a_guest_gets_a_rank_that_its_certificate_names() -> None:
    members, asks = make_members(), {"purpose": "ask", "ranks": [7, 9]}
    assert [welcomed(members.admit(asks))["rank"] for _ in range(2)] == [7, 9]
    assert members.admit(asks) == (
        "every rank that its certificate names is taken; wait, or issue another"
    )


def test_ranks_that_will_come_back_to_a_new_server_are_not_given_away() -> None:
    def promised() -> object:
        return welcomed(members.admit({"purpose": "ask"}))["rank"]

    members = make_members(return_seconds=0.2)
    members.checkpoint = {"iteration": 50, "files": {}}
    assert promised() == 5
    welcomed(members.admit({**hello(1), "generation": 1}))
    members.joined(1, hello(1))
    members.begin()  # without the others, which may still come
    assert promised() == 6
    wait_until(lambda: promised() in (2, 3, 4), "they have not come in time")


@pytest.mark.parametrize("purpose", [None, "", "ASK", 3, ["join"], {}])
def test_another_purpose_is_none(purpose: object) -> None:
    assert make_members().admit({**hello(1), "purpose": purpose}) == MALFORMED
    assert make_members().admit({}) == MALFORMED


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("batch_size", 32, "10"),
        ("kappa", 3, "auto"),
        ("swap", "pairs", "None"),
    ],
)
def test_a_difference_is_named_with_both_values(name: str, theirs: Any, ours: str) -> None:
    members = make_members()
    refusal = refused(members.admit(hello(3, 4, **{name: theirs})))
    assert f"rank 3 has {name} = {theirs}" in refusal
    assert f"rank 0 has {name} = {ours}" in refusal
    welcomed(members.admit(hello(3, 4)))  # a refusal does not take the place


def test_another_version_is_told_what_to_install() -> None:
    refusal = refused(make_members().admit(hello(3, 4, version="1.1")))
    assert "rank 3 runs mdgan 1.1, rank 0 runs mdgan 1.2" in refusal
    assert "install the same version on every machine" in refusal


def test_a_difference_without_end_is_cut_short() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for endless in ("9" * 10**6, nested):
        said = hello(3)
        said["identity"]["batch_size"] = endless
        assert len(refused(make_members().admit(said))) < 300


def test_a_setting_that_is_missing_there_is_a_difference() -> None:
    said = hello(1)
    del said["identity"]["batch_size"]
    assert "batch_size = None" in refused(make_members().admit(said))


def test_a_value_of_another_type_is_a_difference() -> None:
    refused(make_members().admit(hello(1, batch_size="10")))


@pytest.mark.parametrize("worker", [0, -1, 5, 99])
def test_a_rank_outside_the_world_is_refused_before_training_begins(worker: int) -> None:
    members = make_members()
    assert members.admit(hello(worker)) == f"rank {worker} is outside 1..4"
    assert members.admit(hello(1, worker)) == f"rank {worker} is outside 1..4"
    welcomed(members.admit(hello(1)))


def test_once_training_has_begun_any_rank_may_come() -> None:
    members = make_members()
    members.begin()
    welcomed(members.admit(hello(77)))
    assert members.admit(hello(0)) == "rank 0 is outside 1..4"


def test_no_rank_is_above_the_most_that_the_user_allows() -> None:
    members = Membership(range(1, 5), IDENTITY, TOLD, HOUR, most_ranks=6)
    members.begin()
    for generation in (0, 2):
        refusal = refused(members.admit({**hello(5, 7), "generation": generation}))
        assert refusal == "rank 7 is outside 1..6; rank 0 allows more with --max-world-size"
    asked = [members.admit({"purpose": "ask"}) for _ in range(7)]
    assert [welcomed(told)["rank"] for told in asked[:6]] == [1, 2, 3, 4, 5, 6]
    assert asked[6] == "all of the 6 ranks are taken; rank 0 allows more with --max-world-size"
    named = {"purpose": "ask", "ranks": [7, 9]}
    assert "every rank that its certificate names is taken" in refused(members.admit(named))


def test_who_was_with_an_earlier_server_may_come_whatever_its_rank() -> None:
    """A checkpoint knows nothing of workers that came after it."""
    members = make_members()
    welcomed(members.admit({**hello(9), "generation": 2}))
    assert refused(members.admit(hello(8))) == "rank 8 is outside 1..4"


def test_a_run_that_goes_on_takes_newcomers_from_the_start() -> None:
    """Its server before may have promised a rank just before it died."""
    members = make_members()
    members.checkpoint = {"iteration": 50, "files": {}}
    welcomed(members.admit(hello(8)))
    assert members.admit(hello(0)) == "rank 0 is outside 1..4"


def test_where_no_worker_is_expected_a_refusal_still_has_words() -> None:
    members = make_members(0)
    assert members.admit(hello(1)) == "rank 1 is outside 1..0"


def test_a_rank_that_is_there_already_is_refused() -> None:
    members = make_members()
    members.admit(hello(1, 2))
    assert "rank 2 has joined already" in refused(members.admit(hello(2, 3)))
    welcomed(members.admit(hello(3)))  # a refusal does not take the place


@pytest.mark.parametrize("workers", [[1, 1], [1, 2, 1]])
def test_a_rank_twice_in_one_host_is_refused(workers: list[int]) -> None:
    said = {**hello(1, 2), "workers": workers}
    refused(make_members().admit(said))


# What is no hello.


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
        {"workers": [10**30]},
        {"host": 2},
        {"host": None},
        {"identity": None},
        {"identity": "1.2"},
        {"identity": ["version"]},
        {"num_samples": None},
        {"num_samples": [100]},
        {"num_samples": {"1": None}},
        {"num_samples": {"one": 100}},
        {"num_samples": {"1": float("inf")}},
        {"num_samples": {"1": 10**400}},
        {"num_samples": {"1": -1}},
        {"num_samples": {}},
        {"num_samples": {"1": 100, "2": 100}},
        {"class_counts": None},
        {"class_counts": {"1": 100}},
        {"class_counts": {"1": ["many"]}},
        {"class_counts": {"1": [-1]}},
        {"class_counts": {}},
        {"listens": 7},
        {"listens": ["127.0.0.1", 4000]},
        {"generation": None},
        {"generation": "later"},
        {"generation": []},
    ],
    ids=str,
)
def test_a_malformed_hello_is_refused(damage: dict[str, Any]) -> None:
    members = make_members()
    assert members.admit({**hello(1), **damage}) == MALFORMED
    welcomed(members.admit(hello(1)))
    members.begin()
    assert members.fenced_by == 0


@pytest.mark.parametrize(
    "name",
    ["host", "workers", "identity", "num_samples", "class_counts", "generation", "key"],
)
def test_a_hello_with_something_missing_is_refused(name: str) -> None:
    said = hello(1)
    del said[name]
    assert make_members().admit(said) == MALFORMED


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1, 2, 10**400])
    | st.floats()
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = (
    *("purpose", "host", "workers", "num_samples", "class_counts", "identity", "generation"),
    *("key", "listens"),
)


@settings(deadline=None, max_examples=300)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, json_values)), st.booleans())
@example({"key": "\ud800"}, True)
def test_whatever_is_said_there_is_an_answer_and_training_begins(
    said: dict[str, Any], begun: bool
) -> None:
    members = make_members()
    join(members, 1)
    if begun:
        members.begin()
    answer = members.admit({**hello(1), **said})
    assert isinstance(answer, Mapping | str)
    members.begin()
    assert members.mean_shard_size == 100.0
    json.dumps(members.holdings())


def test_of_many_who_want_the_same_place_one_gets_it() -> None:
    members = make_members(8)
    answers: list[Mapping[str, Any] | str] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(10)
        answers.append(members.admit(hello(1, 2)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(answers) == 8
    assert sum(isinstance(answer, Mapping) for answer in answers) == 1
