"""Which ranks newcomers get, and which ranks the server keeps for lost hosts."""

import pytest

from tests.unit.engine.alone import HOUR, hello, join, joined, make_peers, refused, welcomed
from tests.unit.engine.test_admission import CHECKPOINT, at_once, promised


def test_while_no_worker_trains_newcomers_are_told_of_the_checkpoint() -> None:
    peers = make_peers(iteration=50, checkpoint=CHECKPOINT)
    admit = peers.admission.admit
    assert [welcomed(admit(hello(n)))["checkpoint"] for n in (1, 2)] == [CHECKPOINT] * 2
    peers.begin()
    assert welcomed(admit(hello(3)))["checkpoint"] is None
    with peers.admission.awaiting(CHECKPOINT, lambda _: False):
        assert welcomed(admit(hello(4)))["checkpoint"] == CHECKPOINT
    assert welcomed(admit(hello(5)))["checkpoint"] is None


# Ranks for newcomers that ask.


def test_a_promised_rank_is_given_once() -> None:
    peers = make_peers()
    join(peers, 1)
    join(peers, 2, 4)
    peers.begin()
    assert [promised(peers) for _ in range(3)] == [3, 5, 6]
    welcomed(peers.admission.admit(hello(5)))
    assert promised(peers) == 7


def test_many_who_ask_at_once_get_ranks_of_their_own() -> None:
    peers, ranks = make_peers(), list[int]()
    at_once(lambda: ranks.append(promised(peers)))
    assert sorted(ranks) == list(range(1, 9))


def test_a_newcomer_with_a_promised_rank_may_join_before_training_begins() -> None:
    peers = make_peers(1)
    assert [promised(peers), promised(peers)] == [1, 2]
    welcomed(peers.admission.admit(hello(2)))
    refused(peers.admission.admit(hello(3)))


def test_the_rank_of_who_left_is_free_at_once() -> None:
    peers, _ = joined(4, 1, 2, 3)
    peers.leave(2)
    assert promised(peers) == 2


@pytest.mark.parametrize(("return_seconds", "rank"), [(HOUR, 4), (0.0, 2)])
def test_the_rank_of_who_was_lost_is_kept_for_a_while(return_seconds: float, rank: int) -> None:
    peers, hellos = joined(4, 1, 2, 3, return_seconds=return_seconds)
    peers.lose(2, "gone")
    assert promised(peers) == rank
    welcomed(peers.admission.admit(hellos[2]))  # itself may come back all the time


def test_a_rank_that_was_lost_is_kept_for_its_host() -> None:
    peers, hellos = joined(4, 1, 2, 3, return_seconds=30.0)
    peers.lose(2, "gone")
    kept = "rank 2 is kept for the host that was lost with it, for another 30 s; try again then"
    for other in (hello(2), hello(5, 2), {**hello(2), "key": ""}, {**hello(2), "key": "0" * 32}):
        assert refused(peers.admission.admit(other)).startswith(kept)
    welcomed(peers.admission.admit(hello(5)))  # a refusal takes no rank
    welcomed(peers.admission.admit(hellos[2]))


def test_with_its_own_certificate_a_host_gets_its_rank_back_at_once() -> None:
    peers = make_peers()
    join(peers, 1)
    own_hello = {**hello(2), "certificate": "alice's"}
    welcomed(peers.admission.admit(own_hello))
    peers.joined(2, own_hello)
    peers.arrived(2)
    peers.begin()
    peers.lose(2, "gone")
    for certificate in ("bob's", ""):
        other = {**hello(2), "certificate": certificate}
        assert "is kept for" in refused(peers.admission.admit(other))
    welcomed(peers.admission.admit({**hello(2), "certificate": "alice's"}))


def test_a_rank_that_training_waits_for_is_not_kept() -> None:
    peers, _ = joined(4, 1, 2, 3)
    for host in (1, 2):
        peers.lose(host, "gone")
    assert promised(peers) == 4, "both ranks are kept"
    with peers.admission.awaiting(None, lambda rank: rank == 2):
        assert "rank 1 is kept" in refused(peers.admission.admit(hello(1)))
        assert promised(peers) == 2
        assert promised(peers) == 5, "it was promised already"
        welcomed(peers.admission.admit(hello(2)))
    for host in (2, 3):
        peers.lose(host, "gone")
    welcomed(peers.admission.admit(hello(1)))  # no host is left


def test_before_training_begins_it_waits_for_all() -> None:
    peers = make_peers()
    for rank in (1, 2):
        join(peers, rank)
    peers.lose(1, "gone")
    join(peers, 1)


def test_a_promise_is_no_way_around_it() -> None:
    peers, _ = joined(1, 1)
    assert promised(peers) == 2
    join(peers, 2)
    peers.lose(2, "gone")
    assert "rank 2 is kept" in refused(peers.admission.admit(hello(2)))


def test_the_rank_of_who_came_back_is_not_given_away() -> None:
    peers = make_peers(return_seconds=0.0)
    join(peers, 1)
    peers.lose(1, "gone")
    join(peers, 1)
    assert promised(peers) == 2


# Who is shut out.


def test_the_rank_of_who_was_shut_out_is_never_given() -> None:
    peers, _ = joined(4, 1, 2, return_seconds=0.0)
    peers.shut_out(2, "it lies")
    assert promised(peers) == 3
    for workers in ((2,), (5, 2)):
        assert peers.admission.admit(hello(*workers)) == "rank 2 was shut out"
    peers.lose(1, "gone")
    peers.shut_out(1, "it lied before it went")
    assert peers.admission.admit(hello(1)) == "rank 1 was shut out"


def test_of_a_host_with_a_liar_the_others_stay_and_come_back() -> None:
    peers = make_peers()
    hellos = join(peers, 1, 2)
    peers.begin()
    peers.shut_out(2, "it lies")
    assert peers.hosts() == {1: [1]}
    peers.lose(1, "gone")
    assert peers.admission.admit(hello(1, 2)) == "rank 2 was shut out"
    welcomed(peers.admission.admit(hellos))
    peers.joined(1, hellos)
    assert peers.hosts() == {1: [1]}
    peers.shut_out(1, "it lies, too")
    assert not peers.hosts()
    assert peers.admission.admit(hellos) == "rank 1 was shut out"
