"""Who may come back, and which ranks whoever asks is given."""

import threading

import pytest

from mdgan.engine.server.membership import Membership
from tests.unit.engine.test_membership import HOUR, hello, join, make_roster, refused, welcomed


def promised(roster: Membership) -> int:
    rank = welcomed(roster.admit({"purpose": "ask"}))["rank"]
    assert isinstance(rank, int)
    return rank


def test_with_its_key_a_host_comes_back_before_its_loss_is_known() -> None:
    roster = make_roster()
    said = join(roster, 1, 2)
    assert "joined already" in refused(roster.admit(hello(1, 2)))
    assert "joined already" in refused(roster.admit({**said, "key": ""}))
    assert "joined already" in refused(roster.admit({**said, "key": said["key"] + "0"}))
    assert "joined already" in refused(roster.admit({**said, "key": "\u00e9"}))
    for _ in range(2):  # and again, if the answer to the first was lost
        welcomed(roster.admit(said))


def test_nobody_comes_in_with_an_empty_key_twice() -> None:
    roster = make_roster()
    said = {**hello(1), "key": ""}
    welcomed(roster.admit(said))
    assert "joined already" in refused(roster.admit(said))


def test_with_its_key_a_host_does_not_come_back_as_another() -> None:
    roster = make_roster()
    said = join(roster, 1, 2)
    join(roster, 3)
    more = {**hello(1, 2, 3), "key": said["key"]}
    assert "joined already" in refused(roster.admit(more))
    fewer = {**hello(1), "key": said["key"]}
    assert "joined already" in refused(roster.admit(fewer))


def test_a_link_that_never_came_about_frees_its_ranks() -> None:
    roster = make_roster()
    roster.admit(hello(1, 2))
    assert roster.lose(1) == []
    welcomed(roster.admit(hello(2)))


def test_the_loss_of_the_link_before_does_not_free_the_ranks_of_the_new_one() -> None:
    roster = make_roster()
    said = join(roster, 1)
    welcomed(roster.admit(said))
    roster.lose(1)
    roster.joined(1, said)
    assert "joined already" in refused(roster.admit(hello(1)))


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_who_has_seen_no_later_server_is_welcome(generation: int) -> None:
    welcomed(make_roster().admit({**hello(1), "generation": generation}))


def test_who_has_seen_a_later_server_fences_this_one() -> None:
    roster = make_roster()
    refusal = refused(roster.admit({**hello(1), "generation": 5}))
    assert refusal == "a server of generation 5 has taken over"
    refused(roster.admit({**hello(1), "generation": 4}))
    assert roster.fenced_by == 5


def test_foreigners_cannot_fence() -> None:
    roster = make_roster()
    refused(roster.admit({**hello(1, batch_size=9), "generation": 5}))
    assert roster.fenced_by == 0


def test_while_nobody_trains_newcomers_are_told_of_the_checkpoint() -> None:
    roster = make_roster(iteration=40)
    roster.checkpoint = {"iteration": 40, "files": {}}
    assert welcomed(roster.admit(hello(1)))["checkpoint"] == roster.checkpoint
    assert welcomed(roster.admit(hello(2)))["checkpoint"] == roster.checkpoint
    roster.begin()
    assert welcomed(roster.admit(hello(3)))["checkpoint"] is None


# Ranks for whoever asks.


def test_a_promised_rank_is_given_once() -> None:
    roster = make_roster()
    join(roster, 1)
    join(roster, 2, 4)
    roster.begin()
    assert [promised(roster) for _ in range(3)] == [3, 5, 6]
    welcomed(roster.admit(hello(5)))
    assert promised(roster) == 7


def test_many_who_ask_at_once_get_ranks_of_their_own() -> None:
    roster = make_roster()
    ranks: list[int] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(10)
        ranks.append(promised(roster))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(ranks) == list(range(1, 9))


def test_whoever_was_promised_a_rank_may_come_before_training_begins() -> None:
    roster = make_roster(1)
    assert promised(roster) == 1
    assert promised(roster) == 2
    welcomed(roster.admit(hello(2)))
    refused(roster.admit(hello(3)))


def test_the_rank_of_who_left_is_free_at_once() -> None:
    roster = make_roster()
    for rank in (1, 2, 3):
        join(roster, rank)
    roster.begin()
    roster.left(roster.lose(2))
    assert promised(roster) == 2


@pytest.mark.parametrize(("return_seconds", "rank"), [(HOUR, 4), (0.0, 2)])
def test_the_rank_of_who_was_lost_is_kept_for_a_while(return_seconds: float, rank: int) -> None:
    roster = make_roster(return_seconds=return_seconds)
    for worker in (1, 2, 3):
        join(roster, worker)
    roster.begin()
    roster.lose(2)
    assert promised(roster) == rank
    welcomed(roster.admit(hello(2)))  # itself may come back all the time


def test_the_rank_of_who_came_back_is_not_given_away() -> None:
    roster = make_roster(return_seconds=0.0)
    join(roster, 1)
    roster.lose(1)
    join(roster, 1)
    assert promised(roster) == 2


def test_the_rank_of_who_was_shut_out_is_never_given() -> None:
    roster = make_roster(return_seconds=0.0)
    join(roster, 1)
    join(roster, 2)
    roster.begin()
    assert roster.shut_out(2) == 2
    roster.lose(2)
    assert promised(roster) == 3
    assert roster.admit(hello(2)) == "rank 2 was shut out"
    assert roster.admit(hello(5, 2)) == "rank 2 was shut out"


def test_of_a_host_with_a_liar_the_others_stay_and_come_back() -> None:
    roster = make_roster()
    said = join(roster, 1, 2)
    roster.begin()
    assert roster.shut_out(2) == 1
    assert roster.hosts() == {1: [1]}
    roster.lose(1)
    assert roster.admit(hello(1, 2)) == "rank 2 was shut out"
    welcomed(roster.admit(said))
    roster.joined(1, said)
    assert roster.hosts() == {1: [1]}
    assert roster.shut_out(1) == 1
    roster.lose(1)
    assert roster.admit(said) == "rank 1 was shut out"


def test_who_is_gone_can_be_shut_out_too() -> None:
    roster = make_roster()
    join(roster, 1)
    roster.lose(1)
    assert roster.shut_out(1) is None
    assert roster.admit(hello(1)) == "rank 1 was shut out"
