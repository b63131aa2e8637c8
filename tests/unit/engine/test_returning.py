"""Which hosts may come back, and which rank the server promises to a newcomer."""

import threading

import pytest

from tests.unit.engine.test_membership import HOUR, hello, join, make_members, refused, welcomed


def promised(members: Membership) -> int:
    rank = welcomed(members.admit({"purpose": "ask"}))["rank"]
    assert isinstance(rank, int)
    return rank


def test_with_its_key_a_host_comes_back_before_its_loss_is_known() -> None:
    members = make_members()
    said = join(members, 1, 2)
    assert "joined already" in refused(members.admit(hello(1, 2)))
    assert "joined already" in refused(members.admit({**said, "key": ""}))
    assert "joined already" in refused(members.admit({**said, "key": said["key"] + "0"}))
    assert "joined already" in refused(members.admit({**said, "key": "\u00e9"}))
    for _ in range(2):  # and again, if the answer to the first was lost
        welcomed(members.admit(said))


def test_an_empty_key_does_not_let_a_host_in_twice() -> None:
    members = make_members()
    said = {**hello(1), "key": ""}
    welcomed(members.admit(said))
    assert "joined already" in refused(members.admit(said))


def test_with_its_key_a_host_does_not_come_back_as_another() -> None:
    members = make_members()
    said = join(members, 1, 2)
    join(members, 3)
    more = {**hello(1, 2, 3), "key": said["key"]}
    assert "joined already" in refused(members.admit(more))
    fewer = {**hello(1), "key": said["key"]}
    assert "joined already" in refused(members.admit(fewer))


def test_a_link_that_never_came_about_frees_its_ranks() -> None:
    members = make_members()
    members.admit(hello(1, 2))
    assert members.lose(1) == []
    welcomed(members.admit(hello(2)))


def test_the_loss_of_the_link_before_does_not_free_the_ranks_of_the_new_one() -> None:
    members = make_members()
    said = join(members, 1)
    welcomed(members.admit(said))
    members.lose(1)
    members.joined(1, said)
    assert "joined already" in refused(members.admit(hello(1)))


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_who_has_seen_no_later_server_is_welcome(generation: int) -> None:
    welcomed(make_members().admit({**hello(1), "generation": generation}))


def test_who_has_seen_a_later_server_fences_this_one() -> None:
    members = make_members()
    refusal = refused(members.admit({**hello(1), "generation": 5}))
    assert refusal == "a server of generation 5 has taken over"
    refused(members.admit({**hello(1), "generation": 4}))
    assert members.fenced_by == 5


def test_foreigners_cannot_fence() -> None:
    members = make_members()
    refused(members.admit({**hello(1, batch_size=9), "generation": 5}))
    assert members.fenced_by == 0


def test_while_no_worker_trains_newcomers_are_told_of_the_checkpoint() -> None:
    members = make_members(iteration=40)
    members.checkpoint = {"iteration": 40, "files": {}}
    assert welcomed(members.admit(hello(1)))["checkpoint"] == members.checkpoint
    assert welcomed(members.admit(hello(2)))["checkpoint"] == members.checkpoint
    members.begin()
    assert welcomed(members.admit(hello(3)))["checkpoint"] is None


# Ranks for newcomers that ask.


def test_a_promised_rank_is_given_once() -> None:
    members = make_members()
    join(members, 1)
    join(members, 2, 4)
    members.begin()
    assert [promised(members) for _ in range(3)] == [3, 5, 6]
    welcomed(members.admit(hello(5)))
    assert promised(members) == 7


def test_many_who_ask_at_once_get_ranks_of_their_own() -> None:
    members = make_members()
    ranks: list[int] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(10)
        ranks.append(promised(members))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(ranks) == list(range(1, 9))


def test_a_newcomer_with_a_promised_rank_may_join_before_training_begins() -> None:
    members = make_members(1)
    assert promised(members) == 1
    assert promised(members) == 2
    welcomed(members.admit(hello(2)))
    refused(members.admit(hello(3)))


def test_the_rank_of_who_left_is_free_at_once() -> None:
    members = make_members()
    for rank in (1, 2, 3):
        join(members, rank)
    members.begin()
    members.left(members.lose(2))
    assert promised(members) == 2


@pytest.mark.parametrize(("return_seconds", "rank"), [(HOUR, 4), (0.0, 2)])
def test_the_rank_of_who_was_lost_is_kept_for_a_while(return_seconds: float, rank: int) -> None:
    members = make_members(return_seconds=return_seconds)
    said = {worker: join(members, worker) for worker in (1, 2, 3)}
    members.begin()
    members.lose(2)
    assert promised(members) == rank
    welcomed(members.admit(said[2]))  # itself may come back all the time


def test_a_rank_that_was_lost_is_kept_for_its_host() -> None:
    members = make_members(return_seconds=30.0)
    said = {worker: join(members, worker) for worker in (1, 2, 3)}
    members.begin()
    members.lose(2)
    kept = "rank 2 is kept for the host that was lost with it, for another 30 s; try again then"
    for other in (hello(2), hello(5, 2), {**hello(2), "key": ""}, {**hello(2), "key": "0" * 32}):
        assert refused(members.admit(other)).startswith(kept)
    welcomed(members.admit(hello(5)))  # a refusal takes no rank
    welcomed(members.admit(said[2]))


def test_with_its_own_certificate_a_host_gets_its_rank_back_at_once() -> None:
    members = make_members()
    join(members, 1)
    said = {**hello(2), "certificate": "alice's"}
    welcomed(members.admit(said))
    members.joined(2, said)
    members.arrived(2)
    members.begin()
    members.lose(2)
    assert "is kept for" in refused(members.admit({**hello(2), "certificate": "bob's"}))
    assert "is kept for" in refused(members.admit({**hello(2), "certificate": ""}))
    welcomed(members.admit({**hello(2), "certificate": "alice's"}))


def test_a_rank_that_training_waits_for_is_not_kept() -> None:
    members = make_members()
    for rank in (1, 2, 3):
        join(members, rank)
    members.lose(1)
    join(members, 1)  # before training begins it waits for all
    members.begin()
    members.lose(1), members.lose(2)
    members.waits_for = lambda rank: rank == 2
    assert "rank 1 is kept" in refused(members.admit(hello(1)))
    welcomed(members.admit(hello(2)))
    members.lose(2), members.lose(3)
    welcomed(members.admit(hello(1)))  # no host is left


def test_a_promise_is_no_way_around_it() -> None:
    members = make_members(1)
    join(members, 1)
    members.begin()
    assert promised(members) == 2
    join(members, 2)
    members.lose(2)
    assert "rank 2 is kept" in refused(members.admit(hello(2)))


def test_the_rank_of_who_came_back_is_not_given_away() -> None:
    members = make_members(return_seconds=0.0)
    join(members, 1)
    members.lose(1)
    join(members, 1)
    assert promised(members) == 2


def test_the_rank_of_who_was_shut_out_is_never_given() -> None:
    members = make_members(return_seconds=0.0)
    join(members, 1)
    join(members, 2)
    members.begin()
    assert members.shut_out(2) == 2
    members.lose(2)
    assert promised(members) == 3
    assert members.admit(hello(2)) == "rank 2 was shut out"
    assert members.admit(hello(5, 2)) == "rank 2 was shut out"


def test_of_a_host_with_a_liar_the_others_stay_and_come_back() -> None:
    members = make_members()
    said = join(members, 1, 2)
    members.begin()
    assert members.shut_out(2) == 1
    assert members.hosts() == {1: [1]}
    members.lose(1)
    assert members.admit(hello(1, 2)) == "rank 2 was shut out"
    welcomed(members.admit(said))
    members.joined(1, said)
    assert members.hosts() == {1: [1]}
    assert members.shut_out(1) == 1
    members.lose(1)
    assert members.admit(said) == "rank 1 was shut out"


def test_who_is_gone_can_be_shut_out_too() -> None:
    members = make_members()
    join(members, 1)
    members.lose(1)
    assert members.shut_out(1) is None
    assert members.admit(hello(1)) == "rank 1 was shut out"


def test_a_newcomer_gets_a_rank_that_training_waits_for_though_its_worker_may_return() -> None:
    members = make_members(return_seconds=HOUR)
    for host in (1, 2, 3):
        members.joined(host, join(members, host))
    members.begin()
    members.lose(1), members.lose(2)
    assert promised(members) == 4, "both ranks are kept"
    members.waits_for = lambda rank: rank == 2
    assert promised(members) == 2
    assert promised(members) == 5, "it was promised already"
