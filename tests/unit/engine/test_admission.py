"""Which hosts may join or return, and which rank the server promises to a newcomer."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdgan.engine.server.peers import Peers
from tests.marks import examples
from tests.processes import wait_until
from tests.unit.engine.alone import IDENTITY, WELCOME, hello, join, make_peers, refused, welcomed

MALFORMED = "its hello is malformed; use the same version of mdgan everywhere"
CHECKPOINT = {"iteration": 50, "files": {}}
Admit = Callable[[Mapping[str, Any]], Mapping[str, Any] | str]


def admit_alone(**how: Any) -> Admit:
    return make_peers(**how).admission.admit


def promised(peers: Peers) -> int:
    rank = welcomed(peers.admission.admit({"purpose": "ask"}))["rank"]
    assert isinstance(rank, int)
    return rank


def at_once(work: Callable[[], None]) -> None:
    """Eight threads do it at the same time."""
    start = threading.Barrier(8)

    def run() -> None:
        start.wait(10)
        work()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)


def test_who_joins_watches_or_asks_is_told_what_it_needs() -> None:
    admit = admit_alone(iteration=7)
    for workers in ((1, 2), (4,), (3,)):
        assert admit(hello(*workers)) == {**WELCOME, "iteration": 7, "checkpoint": None}
    assert admit({"purpose": "watch"}) == WELCOME
    assert admit({"purpose": "ask"}) == {**WELCOME, "identity": IDENTITY, "rank": 5}


def test_a_guest_gets_a_rank_that_its_certificate_names() -> None:
    admit, asks = admit_alone(), {"purpose": "ask", "ranks": [7, 9]}
    assert [welcomed(admit(asks))["rank"] for _ in range(2)] == [7, 9]
    assert admit(asks) == "every rank that its certificate names is taken; wait, or issue another"
    asks["certificate"] = "alice's"  # by which it is known when it asks again
    assert [welcomed(admit(asks))["rank"] for _ in range(3)] == [7, 9, 7]


def test_ranks_that_will_come_back_to_a_new_server_are_not_given_away() -> None:
    peers = make_peers(return_seconds=0.2, checkpoint=CHECKPOINT)
    peers.admission.on_their_way = range(1, 5)
    assert promised(peers) == 5
    own_hello = {**hello(1), "generation": 1}
    welcomed(peers.admission.admit(own_hello))
    peers.joined(1, own_hello)
    peers.begin()  # without the others, which may still come
    assert promised(peers) == 6
    wait_until(lambda: promised(peers) in (2, 3, 4), "they have not come in time")


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [("batch_size", 32, "10"), ("kappa", 3, "auto"), ("swap", "pairs", "None")],
)
def test_a_difference_is_named_with_both_values(name: str, theirs: Any, ours: str) -> None:
    admit = admit_alone()
    refusal = refused(admit(hello(3, 4, **{name: theirs})))
    assert f"rank 3 has {name} = {theirs}" in refusal
    assert f"rank 0 has {name} = {ours}" in refusal
    welcomed(admit(hello(3, 4)))  # a refusal does not take the place


def test_what_is_no_value_of_the_same_setting_is_a_difference() -> None:
    refusal = refused(admit_alone()(hello(3, 4, version="1.1")))
    assert "rank 3 runs mdgan 1.1, rank 0 runs mdgan 1.2" in refusal
    assert "install the same version on every machine" in refusal
    own_hello = hello(1)
    del own_hello["identity"]["batch_size"]
    assert "batch_size = None" in refused(admit_alone()(own_hello))
    refused(admit_alone()(hello(1, batch_size="10")))
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for endless in ("9" * 10**6, nested):
        own_hello["identity"]["batch_size"] = endless
        assert len(refused(admit_alone()(own_hello))) < 300


@pytest.mark.parametrize("worker", [0, -1, 5, 99])
def test_a_rank_outside_the_world_is_refused_before_training_begins(worker: int) -> None:
    admit = admit_alone()
    assert admit(hello(worker)) == f"rank {worker} is outside 1..4"
    assert admit(hello(1, worker)) == f"rank {worker} is outside 1..4"
    welcomed(admit(hello(1)))
    assert admit_alone(num_workers=0)(hello(1)) == "rank 1 is outside 1..0"


def test_once_training_has_begun_any_rank_may_come() -> None:
    peers = make_peers()
    peers.begin()
    welcomed(peers.admission.admit(hello(77)))
    assert peers.admission.admit(hello(0)) == "rank 0 is outside 1..4"


def test_no_rank_is_above_the_most_that_the_user_allows() -> None:
    peers = make_peers(most_ranks=6)
    peers.begin()
    admit = peers.admission.admit
    for generation in (0, 2):
        refusal = refused(admit({**hello(5, 7), "generation": generation}))
        assert refusal == "rank 7 is outside 1..6; rank 0 allows more with --set max_world_size=N"
    arguments = [admit({"purpose": "ask"}) for _ in range(7)]
    assert [welcomed(told)["rank"] for told in arguments[:6]] == [1, 2, 3, 4, 5, 6]
    more = "rank 0 allows more with --set max_world_size=N"
    assert arguments[6] == f"all of the 6 ranks are taken; {more}"
    named = {"purpose": "ask", "ranks": [7, 9]}
    assert "every rank that its certificate names is taken" in refused(admit(named))


def test_newcomers_of_before_may_come_whatever_their_ranks() -> None:
    """A checkpoint knows nothing of workers that came after it, nor of a promise just before."""
    admit = admit_alone()
    welcomed(admit({**hello(9), "generation": 2}))
    assert refused(admit(hello(8))) == "rank 8 is outside 1..4"
    goes_on = admit_alone(checkpoint=CHECKPOINT)
    welcomed(goes_on(hello(8)))
    assert goes_on(hello(0)) == "rank 0 is outside 1..4"


def test_a_rank_that_is_there_already_is_refused() -> None:
    admit = admit_alone()
    admit(hello(1, 2))
    assert "rank 2 has joined already" in refused(admit(hello(2, 3)))
    welcomed(admit(hello(3)))  # a refusal does not take the place


@pytest.mark.parametrize("workers", [[1, 1], [1, 2, 1]])
def test_a_rank_twice_in_one_host_is_refused(workers: list[int]) -> None:
    refused(admit_alone()({**hello(1, 2), "workers": workers}))


def test_of_many_who_want_the_same_place_one_gets_it() -> None:
    admit, answers = admit_alone(num_workers=8), list[Any]()
    at_once(lambda: answers.append(admit(hello(1, 2))))
    assert len(answers) == 8
    assert sum(isinstance(answer, Mapping) for answer in answers) == 1


# What is no hello.


DAMAGES: dict[str, list[Any]] = {
    "purpose": [None, "", "ASK", 3, ["join"], {}],
    "workers": [None, 3, ["one"], [None], [[1]], [], [1e999], [10**30]],
    "host": [2, None],
    "identity": [None, "1.2", ["version"]],
    "num_samples": [
        *(None, [100], {}, {"1": 100, "2": 100}, {"one": 100}),
        *({"1": None}, {"1": 1e999}, {"1": 10**400}, {"1": -1}),
    ],
    "class_counts": [None, {}, {"1": 100}, {"1": ["many"]}, {"1": [-1]}],
    "listens": [7, ["127.0.0.1", 4000]],
    "generation": [None, "later", []],
}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, values in DAMAGES.items() for wrong in values]
)
def test_a_malformed_hello_is_refused(name: str, wrong: Any) -> None:
    admission = make_peers().admission
    assert admission.admit({**hello(1), name: wrong}) == MALFORMED
    welcomed(admission.admit(hello(1)))
    assert not admission.heard_of_successor()


@pytest.mark.parametrize(
    "name", ["host", "workers", "identity", "num_samples", "class_counts", "generation", "key"]
)
def test_a_hello_with_something_missing_is_refused(name: str) -> None:
    own_hello = hello(1)
    del own_hello[name]
    assert admit_alone()(own_hello) == MALFORMED


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


@settings(deadline=None, max_examples=examples(40))
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, json_values)), st.booleans())
@example({"key": "\ud800"}, True)
def test_whatever_is_said_there_is_an_answer_and_training_begins(
    said: dict[str, Any], begun: bool
) -> None:
    peers = make_peers()
    join(peers, 1)
    if begun:
        peers.begin()
    answer = peers.admission.admit({**hello(1), **said})
    assert isinstance(answer, Mapping | str)
    peers.begin()
    assert peers.mean_shard_size == 100.0
    json.dumps(peers.holdings())


# Hosts that return.


def test_with_its_key_a_host_comes_back_before_its_loss_is_known() -> None:
    peers = make_peers()
    hellos = join(peers, 1, 2)
    admit = peers.admission.admit
    for key in (hello(1)["key"], "", hellos["key"] + "0", "\u00e9"):
        assert "joined already" in refused(admit({**hellos, "key": key}))
    for _ in range(2):  # and again, if the answer to the first was lost
        welcomed(admit(hellos))
    join(peers, 3)
    for workers in ((1, 2, 3), (1,)):  # but not as another
        assert "joined already" in refused(admit({**hello(*workers), "key": hellos["key"]}))


def test_an_empty_key_does_not_let_a_host_in_twice() -> None:
    admit, own_hello = admit_alone(), {**hello(1), "key": ""}
    welcomed(admit(own_hello))
    assert "joined already" in refused(admit(own_hello))


def test_a_link_that_never_came_about_frees_its_ranks() -> None:
    peers = make_peers()
    peers.admission.admit(hello(1, 2))
    peers.lose(1, "gone")
    welcomed(peers.admission.admit(hello(2)))


def test_the_loss_of_the_link_before_does_not_free_the_ranks_of_the_new_one() -> None:
    peers = make_peers()
    hellos = join(peers, 1)
    welcomed(peers.admission.admit(hellos))
    peers.lose(1, "gone")
    peers.joined(1, hellos)
    assert "joined already" in refused(peers.admission.admit(hello(1)))


def test_who_has_seen_a_later_server_fences_this_one_unless_it_is_of_another_run() -> None:
    admission = make_peers().admission
    welcomed(admission.admit({**hello(2), "generation": WELCOME["generation"]}))
    refused(admission.admit({**hello(1, batch_size=9), "generation": 5}))
    assert not admission.heard_of_successor()
    refusal = refused(admission.admit({**hello(1), "generation": 5}))
    assert refusal == "a server of generation 5 has taken over"
    assert [admission.heard_of_successor() for _ in range(2)] == [True, False]
