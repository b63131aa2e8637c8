"""The server's list: present hosts, answers they owe, and the fate of answers."""

import pytest

from mdgan.engine.server import peers as module
from mdgan.engine.server.peers import Peers
from mdgan.observe import attendance
from mdgan.transport.base import RELAY
from tests.unit.engine.alone import Notes, hello, join, joined, make_peers
from tests.unit.observe.conftest import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(attendance, "time", made)
    return made


def test_who_is_missing_who_is_absent_and_who_is_there() -> None:
    peers = make_peers(5)
    assert peers.missing() == peers.absent() == [1, 2, 3, 4, 5]
    assert peers.workers() == []
    join(peers, 4, 3)
    join(peers, 1, ready=False)
    peers.admission.admit(hello(2))  # its link is not open yet
    assert peers.missing() == [2, 5]
    assert peers.absent() == [1, 2, 5], "who is arriving cannot take part yet"
    assert peers.workers() == [1, 3, 4]
    assert list(peers.hosts().items()) == [(1, [1]), (4, [3, 4])]
    assert peers.taking_part() == {4: [3, 4]}
    assert peers.host_of() == {1: 1, 3: 4, 4: 4}


def test_a_lost_host_takes_its_workers_along_once() -> None:
    notes = Notes()
    peers = make_peers(notes=notes)
    join(peers, 1, 2)
    join(peers, 3)
    assert not peers.losses_to_handle()
    for host in (1, 1, 77):
        peers.lose(host, "its cable is cut")
    assert [peers.losses_to_handle() for _ in range(2)] == [True, False]
    assert peers.hosts() == {3: [3]}
    assert peers.member(1) is None
    assert notes.lines == ["lost rank(s) 1, 2: its cable is cut; 1 left"]


def test_the_mean_shard_size_is_over_those_who_are_there() -> None:
    peers = make_peers()
    join(peers, 1, 2, samples=10)
    join(peers, 3, samples=40)
    join(peers, 4, samples=1000)
    peers.lose(4, "gone")
    assert not peers.has_begun
    peers.begin()
    assert peers.has_begun
    assert peers.mean_shard_size == 20.0
    alone = make_peers()
    alone.begin()
    assert alone.mean_shard_size == 0.0


def test_who_was_asked_is_busy_until_it_has_answered() -> None:
    peers, _ = joined(4, 1, 2, 3)
    peers.at(5)
    peers.owe({1: [1], 2: [2]}, 5)
    assert peers.free() == {3: [3]}
    assert peers.free(besides=5) == peers.taking_part() == {1: [1], 2: [2], 3: [3]}
    assert peers.paid(1, 5) == [1]
    for host, iteration in ((1, 5), (2, 4), (3, 5), (9, 5)):
        assert peers.paid(host, iteration) is None, "once is enough"
    assert peers.free() == {1: [1], 3: [3]}
    assert peers.overdue() == set()
    peers.at(6)
    assert peers.overdue() == {2}
    assert peers.paid(2, 5) == [2]
    assert peers.overdue() == set()


def test_a_host_answers_several_questions_of_an_iteration_in_their_order() -> None:
    peers = make_peers()
    join(peers, 1, 2)
    peers.owe({1: [2]}, 5)
    peers.owe({1: [1]}, 5)
    assert peers.busy() == {1: [1, 2]}
    assert peers.paid(1, 5) == [2]
    assert peers.busy() == {1: [1]}
    assert peers.free() == {}
    assert peers.paid(1, 5) == [1]
    assert peers.paid(1, 5) is None
    assert peers.busy() == {}


def test_who_comes_back_owes_nothing() -> None:
    peers = make_peers()
    join(peers, 1)
    peers.owe({1: [1]}, 5)
    peers.lose(1, "gone")
    join(peers, 1)
    assert peers.free() == {1: [1]}


@pytest.mark.parametrize("listens", [None, "127.0.0.1:4000", RELAY])
def test_where_hosts_hand_out_discriminators(listens: str | None) -> None:
    peers, own_hello = make_peers(), {**hello(1), "listens": listens}
    peers.admission.admit(own_hello)
    peers.joined(1, own_hello)
    assert peers.addresses() == {1: listens}


# What became of answers.


def refuse(peers: Peers, worker: int) -> None:
    peers.strikes.refuse(worker)
    peers.refused(worker, "NaN or Inf")


def test_everything_is_counted_by_worker() -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, notes=notes)
    peers.attendance.answered([1, 2])
    peers.attendance.answered([2])
    peers.attendance.late(3, [1])
    peers.at(4)
    refuse(peers, 2)
    peers.lose(1, "gone")
    peers.attendance.tell_counts(5)
    (counts,) = notes.events("attendance")
    assert counts["workers"] == {
        "1": {"answered": 1, "late": 1, "lost": 1},
        "2": {"answered": 2, "refused": 1},
    }
    (refused,) = notes.events("refused")
    assert (refused["iteration"], refused["worker"], refused["strikes"]) == (4, 2, 1)


def test_refusals_that_are_no_strikes_are_told_less_and_less_often() -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, notes=notes)
    peers.strikes.excuse([2])
    for i in range(1, 101):
        peers.at(i)
        refuse(peers, 2)
    peers.at(101)
    refuse(peers, 1)
    events = [event["iteration"] for event in notes.events("refused")]
    assert events == [1, 2, 4, 8, 16, 32, 64, 101]


def test_who_has_used_up_its_strikes_is_shut_out_excused_before_or_not() -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, 3, notes=notes, strikes=2)
    refuse(peers, 1)
    peers.strikes.excuse([1])  # too late: it has a strike
    refuse(peers, 1)
    peers.strikes.excuse([2])
    refuse(peers, 2)
    assert peers.strikes.unusable == {1, 2}
    peers.strikes.accept(2)
    refuse(peers, 2)
    assert peers.workers() == [2, 3]
    (out,) = notes.events("shut out")
    assert (out["workers"], out["reason"]) == ([1], "2 unusable answers, the last: NaN or Inf")


def test_a_short_delay_is_recorded_and_not_told(clock: Clock) -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, notes=notes)
    peers.attendance.late(3, [1, 2])
    clock.now += 0.5
    peers.attendance.tell_of_absent()
    peers.at(5)
    peers.attendance.back([1])
    assert not notes.lines
    (back,) = notes.events("back")
    assert (back["workers"], back["missed"], back["late_seconds"]) == ([1], 2, 0.5)


def test_a_long_delay_is_told_once_and_so_is_its_end(clock: Clock) -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, notes=notes)
    peers.attendance.late(3, [1])
    clock.now += 1.5
    peers.attendance.tell_of_absent()
    peers.attendance.tell_of_absent()
    peers.at(40)
    peers.attendance.back([1])
    peers.attendance.tell_of_absent()
    peers.attendance.late(41, [1])
    clock.now += 0.5
    peers.attendance.back([1])
    assert notes.lines == [
        "rank 1 has not answered since iteration 3; training goes on without it",
        "rank 1 answers again; it missed 37 iterations",
    ]


@pytest.mark.parametrize("how", ["lost", "left", "shut out"])
def test_a_late_worker_that_goes_is_no_longer_missed(clock: Clock, how: str) -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 2, notes=notes)
    peers.attendance.late(3, [1, 2])
    if how == "lost":
        peers.lose(1, "gone")
    elif how == "left":
        peers.leave(1)
    else:
        peers.shut_out(1, "it lies")
    assert peers.losses_to_handle()
    clock.now += 1.5
    peers.attendance.tell_of_absent()
    lines = [line for line in notes.lines if "has not answered" in line]
    assert len(lines) == 1
    assert lines[0].startswith("rank 2 ")
