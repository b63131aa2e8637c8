"""Who is here, and who owes what."""

import pytest

from mdgan.transport.base import RELAY
from tests.unit.engine.test_membership import hello, join, make_members


def test_who_is_missing_who_is_absent_and_who_is_here() -> None:
    members = make_members(5)
    assert members.missing() == members.absent() == [1, 2, 3, 4, 5]
    assert members.workers() == []
    join(members, 4, 3)
    join(members, 1, ready=False)
    assert members.missing() == [2, 5]
    assert members.absent() == [1, 2, 5], "who is arriving cannot take part yet"
    assert members.workers() == [1, 3, 4]
    assert members.hosts() == {1: [1], 4: [3, 4]}
    assert members.taking_part() == {4: [3, 4]}
    assert list(members.hosts()) == [1, 4]
    assert members.host_of() == {1: 1, 3: 4, 4: 4}


def test_being_admitted_is_not_being_here() -> None:
    members = make_members(2)
    members.admit(hello(1, 2))
    assert members.missing() == [1, 2]
    assert members.workers() == []
    members.arrived(1)
    assert members.taking_part() == {}


def test_a_lost_host_takes_its_workers_along_once() -> None:
    members = make_members()
    join(members, 1, 2)
    join(members, 3)
    assert members.lose(1) == [1, 2]
    assert members.lose(1) == []
    assert members.lose(77) == []
    assert members.workers() == [3]
    assert members.hosts() == {3: [3]}
    assert members.member(1) is None


def test_the_mean_shard_size_is_over_those_who_are_here() -> None:
    members = make_members()
    join(members, 1, 2, samples=10)
    join(members, 3, samples=40)
    join(members, 4, samples=1000)
    members.lose(4)
    assert not members.has_begun
    members.begin()
    assert members.has_begun
    assert members.mean_shard_size == 20.0


def test_without_workers_the_mean_shard_size_is_zero() -> None:
    members = make_members()
    members.begin()
    assert members.mean_shard_size == 0.0


def test_who_was_sent_batches_is_busy_until_it_has_answered() -> None:
    members = make_members()
    for rank in (1, 2, 3):
        join(members, rank)
    members.begin()
    members.iteration = 5
    members.owe({1: [1], 2: [2]}, 5)
    assert members.free() == {3: [3]}
    assert members.taking_part() == {1: [1], 2: [2], 3: [3]}
    assert members.paid(1, 5)
    assert not members.paid(1, 5), "twice is once too often"
    assert not members.paid(2, 4)
    assert not members.paid(3, 5)
    assert not members.paid(9, 5)
    assert members.free() == {1: [1], 3: [3]}
    assert members.late() == set()
    members.iteration = 6
    assert members.late() == {2}
    assert members.paid(2, 5)
    assert members.late() == set()


def test_a_host_answers_several_questions_of_an_iteration_in_their_order() -> None:
    members = make_members()
    join(members, 1, 2)
    members.owe({1: [2]}, 5)
    members.owe({1: [1]}, 5)
    assert members.busy() == {1: [1, 2]}
    assert members.paid(1, 5) == [2]
    assert members.busy() == {1: [1]}
    assert members.free() == {}
    assert members.paid(1, 5) == [1]
    assert members.paid(1, 5) is None
    assert members.busy() == {}


def test_who_comes_back_owes_nothing() -> None:
    members = make_members()
    join(members, 1)
    members.owe({1: [1]}, 5)
    members.lose(1)
    join(members, 1)
    assert members.free() == {1: [1]}


@pytest.mark.parametrize("listens", [None, "127.0.0.1:4000", RELAY])
def test_where_hosts_hand_out_discriminators(listens: str | None) -> None:
    members = make_members()
    said = {**hello(1), "listens": listens}
    members.admit(said)
    members.joined(1, said)
    assert members.addresses() == {1: listens}


def test_holdings_of_all_or_of_some() -> None:
    members = make_members()
    join(members, 1, 2, samples=10)
    join(members, 3, samples=40)
    first = {"samples": 10, "classes": [9, 1]}
    third = {"samples": 40, "classes": [39, 1]}
    assert members.holdings() == {"1": first, "2": first, "3": third}
    assert members.holdings([3]) == {"3": third}
    assert members.holdings([9]) == {"9": {"samples": 0, "classes": []}}
