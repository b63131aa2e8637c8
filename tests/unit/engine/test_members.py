"""Who is here, and who owes what."""

import pytest

from tests.unit.engine.test_membership import hello, join, make_roster


def test_who_is_missing_who_is_absent_and_who_is_here() -> None:
    roster = make_roster(5)
    assert roster.missing() == roster.absent() == [1, 2, 3, 4, 5]
    assert roster.workers() == []
    join(roster, 4, 3)
    join(roster, 1, ready=False)
    assert roster.missing() == [2, 5]
    assert roster.absent() == [1, 2, 5], "who is arriving cannot take part yet"
    assert roster.workers() == [1, 3, 4]
    assert roster.hosts() == {1: [1], 4: [3, 4]}
    assert roster.taking_part() == {4: [3, 4]}
    assert list(roster.hosts()) == [1, 4]
    assert roster.host_of() == {1: 1, 3: 4, 4: 4}


def test_being_admitted_is_not_being_here() -> None:
    roster = make_roster(2)
    roster.admit(hello(1, 2))
    assert roster.missing() == [1, 2]
    assert roster.workers() == []
    roster.arrived(1)
    assert roster.taking_part() == {}


def test_a_lost_host_takes_its_workers_along_once() -> None:
    roster = make_roster()
    join(roster, 1, 2)
    join(roster, 3)
    assert roster.lose(1) == [1, 2]
    assert roster.lose(1) == []
    assert roster.lose(77) == []
    assert roster.workers() == [3]
    assert roster.hosts() == {3: [3]}
    assert roster.member(1) is None


def test_the_mean_shard_size_is_over_those_who_are_here() -> None:
    roster = make_roster()
    join(roster, 1, 2, samples=10)
    join(roster, 3, samples=40)
    join(roster, 4, samples=1000)
    roster.lose(4)
    assert not roster.has_begun
    roster.begin()
    assert roster.has_begun
    assert roster.mean_shard_size == 20.0


def test_nobody_has_a_mean_shard_size_of_zero() -> None:
    roster = make_roster()
    roster.begin()
    assert roster.mean_shard_size == 0.0


def test_who_was_sent_batches_is_busy_until_it_has_answered() -> None:
    roster = make_roster()
    for rank in (1, 2, 3):
        join(roster, rank)
    roster.begin()
    roster.iteration = 5
    roster.owe({1: [1], 2: [2]}, 5)
    assert roster.free() == {3: [3]}
    assert roster.taking_part() == {1: [1], 2: [2], 3: [3]}
    assert roster.paid(1, 5)
    assert not roster.paid(1, 5), "twice is once too often"
    assert not roster.paid(2, 4)
    assert not roster.paid(3, 5)
    assert not roster.paid(9, 5)
    assert roster.free() == {1: [1], 3: [3]}
    assert roster.late() == set()
    roster.iteration = 6
    assert roster.late() == {2}
    assert roster.paid(2, 5)
    assert roster.late() == set()


def test_who_comes_back_owes_nothing() -> None:
    roster = make_roster()
    join(roster, 1)
    roster.owe({1: [1]}, 5)
    roster.lose(1)
    join(roster, 1)
    assert roster.free() == {1: [1]}


@pytest.mark.parametrize("listens", [None, ["127.0.0.1", 4000]])
def test_where_hosts_hand_out_discriminators(listens: list[object] | None) -> None:
    roster = make_roster()
    said = {**hello(1), "listens": listens}
    roster.admit(said)
    roster.joined(1, said)
    assert roster.addresses() == {1: listens}


def test_holdings_of_all_or_of_some() -> None:
    roster = make_roster()
    join(roster, 1, 2, samples=10)
    join(roster, 3, samples=40)
    first = {"samples": 10, "classes": [9, 1]}
    third = {"samples": 40, "classes": [39, 1]}
    assert roster.holdings() == {"1": first, "2": first, "3": third}
    assert roster.holdings([3]) == {"3": third}
    assert roster.holdings([9]) == {"9": {"samples": 0, "classes": []}}
