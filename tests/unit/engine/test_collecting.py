"""How long the server waits for which answers, and what it does with them."""

import time
from collections.abc import Callable
from math import inf
from statistics import median

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan import messages
from mdgan.engine.server.collecting import Deadline
from mdgan.engine.settings import DeadlineRule
from mdgan.messages import Kind
from mdgan.timeouts import Timeouts
from tests.toy_family import ANSWER, ASK
from tests.unit.engine.hand_clock import HandClock
from tests.unit.engine.played import (
    LONG,
    answer_all,
    answer_of,
    change_of,
    generator_after,
    reply_all,
)
from tests.unit.engine.stage import Stage, begun

MakeStage = Callable[..., Stage]
DEADLINE = 0.1


def test_without_a_limit_the_server_waits_for_every_worker() -> None:
    given = Deadline(DeadlineRule(1.5, 0.0), 0.5, Timeouts())
    deadline, factor = (
        Deadline(None, 0.1, Timeouts()),
        Deadline(DeadlineRule(0.0, 3.0), 0.5, Timeouts()),
    )
    assert factor.limit_seconds() == inf, "it knows nothing yet"
    for each in (deadline, given):
        each.times.append(100.0)
    assert given.limit_seconds() == 1.5
    assert deadline.limit_seconds() == inf
    assert [deadline.least(n) for n in (0, 1, 7)] == [0, 1, 7]


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=60), st.floats(0.5, 9))
def test_a_factor_is_of_the_median(times: list[float], factor: float) -> None:
    deadline = Deadline(DeadlineRule(0.0, factor), 0.5, Timeouts())
    for answer_seconds in times:
        deadline.times.append(answer_seconds)
    assert deadline.limit_seconds() == pytest.approx(factor * median(times))


def test_what_is_long_past_is_forgotten() -> None:
    deadline = Deadline(DeadlineRule(0.0, 2.0), 0.5, Timeouts())
    for answer_seconds in 1000 * [100.0] + 1000 * [1.0]:
        deadline.times.append(answer_seconds)
    assert deadline.limit_seconds() == 2.0


@pytest.mark.parametrize(
    ("quorum", "num_live", "least"),
    [
        (0.5, 10, 5),
        (0.5, 9, 5),
        (0.5, 1, 1),
        (0.01, 10, 1),
        (1.0, 10, 10),
        (0.75, 4, 3),
        (0.76, 4, 4),
        (0.5, 0, 0),
    ],
)
def test_the_quorum_is_of_those_who_live(quorum: float, num_live: int, least: int) -> None:
    assert Deadline(DeadlineRule(1.0, 0.0), quorum, Timeouts()).least(num_live) == least
    assert Deadline(DeadlineRule(0.0, 2.0), quorum, Timeouts()).least(num_live) == least


def test_a_late_answer_is_discarded_and_its_worker_takes_part_again(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=4, deadline=(4 * DEADLINE, 0.0), quorum=0.6)
    one, two, slow = made.begin_with((1,), (2,), (3,))
    answer_all([one, two], 1, 2)
    one.take(ASK, 3)
    two.take(ASK, 3)
    slow.answer(1)
    reply_all([one, two], 3)
    for host in (one, two, slow):
        host.answer(4)
    made.finished(one, two, slow)
    assert made.has_learnt(generator_after([[1, 2], [1, 2], [1, 2], [1, 2, 3]]))
    assert slow.iterations() == [1, 4]
    (back,) = made.events("back")
    assert (back["workers"], back["missed"]) == ([3], 2)
    assert 0 < back["late_seconds"] < LONG
    assert made.attendance()["3"] == {"late": 1, "answered": 1}


def test_a_quorum_keeps_the_server_waiting(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=1, deadline=(DEADLINE, 0.0), quorum=0.75)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    one, two, three, four = hosts
    begin = time.monotonic()
    answer_all([one, two], 1)
    assert one.link.receive(3 * DEADLINE) is None, "two of four are no quorum of three"
    three.answer(1)
    made.finished(one, two, three)
    assert time.monotonic() - begin < LONG
    assert made.has_learnt(generator_after([[1, 2, 3]]))
    assert four.take(Kind.STOP)


def test_newcomers_do_not_raise_the_quorum_of_an_iteration_under_way(stage: MakeStage) -> None:
    made, (one, hung) = begun(stage, (1,), (2,), iterations=1, deadline=(DEADLINE, 0.0), quorum=0.5)
    one.take(ASK)
    newcomers = [made.play(n).ready() for n in (3, 4, 5)]
    made.wait_for_event("joined", 3)
    one.send(answer_of(1, iteration=1))
    made.finished(one, *newcomers)
    assert made.has_learnt(generator_after([[1]]))
    assert hung.take(Kind.STOP)


def test_a_factor_learns_the_usual_answer_time(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=4, deadline=(0.0, 1000.0))
    answer_all([one, two], 1, 2, 3)
    one.answer(4)  # and rank 2 does not: some milliseconds are usual, so it is soon late
    made.finished(one)
    assert made.has_learnt(generator_after([[1, 2], [1, 2], [1, 2], [1]]))
    assert made.events("late")[0]["iteration"] == 4


def test_who_is_busy_for_too_long_is_lost(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock(monkeypatch)
    made, (one, hung) = begun(stage, (1,), (2,), iterations=1, answer=0.4)
    clock.after_answer(made, one, 2, 0.5)
    made.finished(one)
    assert made.has_learnt(generator_after([[1]]))
    (lost,) = made.events("lost")
    assert (lost["workers"], lost["reason"]) == ([2], "no answer in 0.4 s; strike 1")
    assert hung.lost()


def test_who_is_late_for_too_long_is_lost_while_too_few_are_free(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=2, deadline=(0.05, 0.0), quorum=0.6, answer=0.6)
    one, two, hung = made.begin_with((1,), (2,), (3,))
    answer_all([one, two], 1)
    one.take(ASK, 2)
    two.take(ASK, 2)
    two.die()
    one.send(answer_of(1, iteration=2))
    made.finished(one)
    assert {tuple(event["workers"]) for event in made.events("lost")} >= {(2,)}
    assert made.status()["state"] == "finished"
    assert hung.number == 3


def test_unusable_feedback_is_a_strike_and_harms_no_other_worker(stage: MakeStage) -> None:
    made, (one, liar) = begun(stage, (1,), (2,), iterations=3, strikes=2)
    bad = change_of(2, 1).clone()
    bad[0, 0] = torch.nan
    for i in (1, 2):
        one.answer(i)
        liar.answer(i, changes={2: bad})
    stop = liar.take(Kind.STOP)
    one.answer(3)
    made.finished(one)
    assert stop.fields["shut_out"] is True
    assert "NaN or Inf" in stop.fields["reason"]
    assert made.has_learnt(generator_after([[1]] * 3))
    assert [event["strikes"] for event in made.events("refused")] == [1, 2]
    (out,) = made.events("shut out")
    assert (out["workers"], out["iteration"]) == ([2], 2)
    assert made.attendance()["2"] == {"refused": 2}


def test_an_answer_for_two_workers_counts_for_ones_own_alone(stage: MakeStage) -> None:
    made, (one, liar) = begun(stage, (1,), (2,), iterations=1)
    liar.take(ASK)
    feedback = torch.stack([1e3 * change_of(1, 1), change_of(2, 1)])
    tensors = {"answers.values": feedback, "losses": torch.zeros(2, 2)}
    liar.send(messages.Message(ANSWER, 1, {"workers": [1, 2]}, tensors))
    one.answer(1)
    made.finished(one, liar)
    assert made.has_learnt(generator_after([[1, 2]]))


def test_of_a_hosts_workers_only_the_liar_is_shut_out(stage: MakeStage) -> None:
    made, (one, both) = begun(stage, (1,), (2, 3), num_workers=3, iterations=3, strikes=1)
    one.answer(1)
    both.answer(1, changes={2: torch.full_like(change_of(2, 1), torch.nan)})
    for i in (2, 3):
        one.answer(i)
        batches = both.answer(i)
        assert batches.fields["workers"] == [3]
    made.finished(one, both)
    assert made.has_learnt(generator_after([[1, 3]] * 3))
    assert both.message_kinds().count("STOP") == 1, "its host stays for the other worker"


def test_if_no_answer_can_be_used_the_iteration_is_done_again(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=1)
    for host in (one, two):
        poison = torch.full_like(change_of(1, 1), torch.nan)
        host.answer(1, changes={host.number: poison})
    answer_all([one, two], 1)
    made.finished(one, two)
    assert made.status()["iteration"] == 1
    assert made.attendance()["1"] == {"refused": 1, "answered": 1}


def test_an_absurd_answer_in_the_first_iteration_is_found_out(stage: MakeStage) -> None:
    """What is usual is known only when all have answered, in whichever order."""
    made, hosts = begun(stage, (1,), (2,), (3,), (4,), num_workers=4, iterations=1, strikes=1)
    hosts[3].answer(1, changes={4: 1e9 * change_of(4, 1)})
    for host in hosts[:3]:
        host.answer(1)
    made.finished(*hosts[:3])
    assert made.has_learnt(generator_after([[1, 2, 3]]))
    assert made.events("shut out")[0]["workers"] == [4]
    assert [record["workers"] for record in made.metrics()] == [3]


def test_only_answers_that_are_owed_are_kept_and_not_longer_than_their_host(
    stage: MakeStage,
) -> None:
    """Of those that come before the server waits for them."""
    made = stage(deadline=(LONG, 0.0))
    hosts = {n: made.play(n).ready() for n in (1, 2)}
    made.engine.poll()
    made.peers.begin()
    for i in (1, 2):
        made.peers.owe({1: [1], 2: [2]}, i)
    for n, host in hosts.items():
        for i in (2, 2, 2, 10**6, 10**6 + 1, 1):  # of iteration 2 one is owed
            host.send(answer_of(n, iteration=i))
    assert made.engine.collector.collect(1, {1: [1], 2: [2]}).losses.keys() == {1, 2}
    made.peers.drop(1, "its link is gone")
    made.engine.handle_losses()
    answers = made.engine.collector.collect(2, {1: [1], 2: [2]})
    assert answers.losses.keys() == {2}
    assert torch.equal(answers.singles[2], change_of(2, 2))
    assert made.peers.busy() == {}
