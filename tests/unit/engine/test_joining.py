"""Hosts that join or return during training."""

from collections.abc import Callable

import pytest
import torch

from mdgan import messages
from mdgan.errors import BadInput
from mdgan.messages import Kind, Message
from tests.processes import wait_until
from tests.toy_family import ASK
from tests.unit.engine.learners import make_worker, same_state
from tests.unit.engine.played import (
    answer_all,
    answer_of,
    answers_of,
    change_of,
    copied,
    generator_after,
    reply_all,
    take_all,
)
from tests.unit.engine.stage import Stage, begun

MakeStage = Callable[..., Stage]


def test_a_newcomer_gets_a_copy_and_takes_part_from_the_next_iteration(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=3)
    take_all([one, two], 1)
    newcomer = made.play(3)
    assert newcomer.welcome["iteration"] == 1
    newcomer.lacks_everything()
    two.give_copy(8)
    adopted = newcomer.adopts()
    assert adopted.keys() == {3}
    assert same_state(adopted[3], copied(8))
    newcomer.ready()
    made.wait_for_event("joined")
    reply_all([one, two], 1)
    answer_all([one, two, newcomer], 2, 3)
    made.finished(one, two, newcomer)
    assert newcomer.iterations() == [2, 3]
    answered = [[1, 2], [1, 2, 3], [1, 2, 3]]
    assert made.has_learnt(generator_after(answered))
    (joined,) = made.events("joined")
    assert (joined["iteration"], joined["workers"]) == (1, [3])
    assert joined["holdings"] == {"3": {"samples": 12, "classes": [12]}}


def test_every_worker_of_a_newcomer_that_lacks_one_gets_a_copy(stage: MakeStage) -> None:
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=1)
    one.take(ASK, 1)
    newcomer = made.play(4, 5, 6)
    newcomer.ready(5)
    one.give_copy()
    assert newcomer.adopts().keys() == {4, 6}
    one.send(answer_of(1, iteration=1))
    made.finished(one, newcomer)


def test_a_copy_that_does_not_fit_is_asked_of_another(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=1)
    take_all([one, two], 1)
    worker = make_worker(4, model_seed=1)
    made.host({4: worker})
    givers = {1: one, 2: two}
    for giver, fits in ((1, False), (2, True)):
        order = givers[giver].take(Kind.COPY)
        state = copied(8)
        if not fits:
            state = {name: tensor for name, tensor in state.items() if "bias" not in name}
        copy = messages.state(order.iteration, {giver: state}, "copy", order.fields["taker"])
        givers[giver].send(copy)
    made.wait_for_event("joined")
    reply_all([one, two], 1)
    made.finished(one, two)


def test_a_copy_that_the_server_has_not_asked_for_is_not_passed_on(stage: MakeStage) -> None:
    made, (one, liar) = begun(stage, (1,), (2,), iterations=1)
    take_all([one, liar], 1)
    newcomer = made.play(4).lacks_everything()  # 4 % 2 = 0: worker 1 is asked
    order = one.take(Kind.COPY)
    for taker in (4, 1, 99):
        liar.send(messages.state(order.iteration, {2: copied(6)}, "copy", taker))
    liar.send(answer_of(2, iteration=1))
    wait_until(lambda: made.network.server._inbox._queue.empty(), "the server has heard the liar")
    one.send(messages.state(order.iteration, {1: copied(8)}, "copy", 4))
    assert same_state(newcomer.adopts()[4], copied(8))
    one.send(answer_of(1, iteration=1))
    made.finished(one, liar, newcomer)
    assert "ADOPT" not in one.message_kinds()


def test_half_a_copy_costs_its_giver_its_place_and_not_the_newcomer(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=1)
    take_all([one, two], 1)
    newcomer = made.play(3).lacks_everything()
    order = two.take(Kind.COPY)
    two.send(messages.state(order.iteration, {}, "copy", 3))
    assert "goodbye" in two.lost()
    one.give_copy()
    assert newcomer.adopts().keys() == {3}
    one.send(answer_of(1, iteration=1))
    made.finished(one, newcomer)


def test_who_was_cut_off_comes_back_with_its_own_state_under_its_rank(stage: MakeStage) -> None:
    made = stage(iterations=4)
    made.host([2])
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.take(ASK, 2)
    made.cut(2)
    made.wait_for_event("joined")
    assert "COPY" not in one.message_kinds()
    one.send(answer_of(1, iteration=2))
    answer_all([one], 3, 4)
    made.finished(one)
    (lost,) = made.events("lost")
    assert lost["workers"] == [2]
    assert [record["workers"] for record in made.metrics()][2:] == [2, 2]


def test_who_comes_back_before_its_loss_is_known_replaces_itself(stage: MakeStage) -> None:
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=2)
    one.take(ASK, 1)
    again = made.play(1, key=one.hello["key"], generation=1)
    again.ready()
    answer_all([again], 1, 2)
    made.finished(again)
    assert made.events("lost")[0]["reason"] == "it opened a new link"
    assert made.has_learnt(generator_after([[1], [1]]))


def test_who_says_nonsense_again_and_again_is_shut_out(stage: MakeStage) -> None:
    made, (one, liar) = begun(stage, (1,), (2,), iterations=4, strikes=3)
    for strike in (1, 2, 3):
        liar.send(Message(Kind.READY, 0, {"told": 3}))
        liar.lost()
        if strike < 3:
            made.wait_for_event("lost", strike)
            liar = made.play(2, key=liar.hello["key"], generation=1).ready()
            made.wait_for_event("joined", strike)
    made.wait_for_event("shut out")
    reasons = [event["reason"] for event in made.events("lost")]
    assert [reason[-10:] for reason in reasons] == ["; strike 1", "; strike 2"]
    (event,) = made.events("shut out")
    assert event["workers"] == [2]
    assert event["reason"].startswith("strike 3: its READY message makes no sense")
    with pytest.raises(BadInput, match="rank 2 was shut out"):
        made.play(2, key=liar.hello["key"], generation=1)
    made.finished(one)


def test_a_newcomer_is_not_blamed_for_a_spoiled_copy(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=4, strikes=1)
    take_all([one, two], 1)
    newcomer = made.play(3).lacks_everything()
    two.give_copy(8)
    newcomer.adopts()
    newcomer.ready()
    made.wait_for_event("joined")
    reply_all([one, two], 1)
    for i in (2, 3):
        newcomer.take(ASK, i)
        newcomer.send(answers_of({3: torch.full_like(change_of(3, i), torch.nan)}, i))
        for host in (one, two):
            host.answer(i)
    made.finished(one, two, newcomer)
    assert not made.events("shut out")
    assert {event["strikes"] for event in made.events("refused")} == {0}


def test_a_newcomer_that_asks_again_and_again_gets_few_copies(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=1)
    givers = {1: one, 2: two}
    for host in givers.values():
        host.take(ASK, 1)
    newcomer = made.play(4).lacks_everything()
    for times in range(5):
        if times == 3:  # nor by joining again
            newcomer.die()
            newcomer = made.play(4, key=newcomer.hello["key"]).lacks_everything()
        givers[1 + times % 2].give_copy(8)  # never the same twice in a row
        newcomer.adopts()
        newcomer.lacks_everything()
    stop = newcomer.take(Kind.STOP)
    reason = "rank(s) 4 were given what they lack 5 times within 10 min and still lack it"
    assert stop.fields["reason"].startswith(reason)
    assert newcomer.lost()
    for host in givers.values():
        host.send(answer_of(host.number, iteration=1))
    made.finished(one, two)
    assert made.events("lost")[-1]["reason"].startswith(reason)
