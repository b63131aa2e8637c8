"""Hosts that leave, and what they leave behind for when they come back."""

from collections.abc import Callable, Mapping

import torch

from mdgan import messages
from mdgan.errors import Interrupted
from mdgan.messages import Kind
from tests.toy_family import ASK
from tests.unit.engine.played import answer_of, generator_after
from tests.unit.engine.stage import Stage, copied, make_worker, same_state

MakeStage = Callable[..., Stage]


def test_leaving_is_no_loss(stage: MakeStage) -> None:
    made = stage(iterations=2)
    one, two = made.begin_with((1,), (2,))
    two.answer(1)
    two.send(messages.leave(1))
    two.die()
    one.answer(1)
    one.answer(2)
    made.finished(one)
    assert made.has_learnt(generator_after([[1, 2], [1]]))
    (left,) = made.events("left")
    assert (left["iteration"], left["workers"]) == (1, [2])
    assert not made.events("lost")
    told = made.admission.admit({"purpose": "ask"})
    assert isinstance(told, Mapping)
    assert told["rank"] == 2


def test_who_left_gets_back_what_it_left(stage: MakeStage) -> None:
    made = stage(iterations=4, to_server=True)
    one, two = made.begin_with((1,), (2,))
    assert two.welcome["wants_states"]
    two.answer(1)
    state = make_worker(2, model_seed=9).state()
    others = make_worker(1, model_seed=9).state()
    two.send(messages.state(1, {2: state, 1: others}, "leave"))
    two.send(messages.leave(1))
    made.wait_for_event("left")
    replacement = made.play(2, key=two.hello["key"]).lacks_everything()
    adopted = messages.by_worker(replacement.take(Kind.ADOPT))
    assert adopted.keys() == {2}
    assert same_state(adopted[2], state)
    replacement.ready()
    made.wait_for_event("joined")
    one.answer(1)
    for i in (2, 3, 4):
        one.answer(i)
        replacement.answer(i)
    made.finished(one, replacement)
    assert "COPY" not in one.told()


def test_another_host_with_its_rank_gets_a_copy_instead(stage: MakeStage) -> None:
    """A whole state tells which samples its worker has seen, and what it has learnt from them."""
    made = stage(iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    two.send(messages.state(1, {2: make_worker(2, model_seed=9).state()}, "leave"))
    two.send(messages.leave(1))
    made.wait_for_event("left")
    other = made.play(2).lacks_everything()
    order = one.take(Kind.COPY)
    whole = make_worker(1, model_seed=8).state()  # more than it was asked for
    one.send(messages.state(order.iteration, {1: whole}, "copy", 2))
    adopted = messages.by_worker(other.take(Kind.ADOPT))
    assert same_state(adopted[2], copied(8))
    other.ready()
    one.send(answer_of(1, iteration=1))
    made.finished(one, other)


def test_what_was_left_is_dropped_once_its_rank_has_a_state_of_its_own(stage: MakeStage) -> None:
    made = stage(iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    two.send(messages.state(1, {2: make_worker(2, model_seed=9).state()}, "leave"))
    two.send(messages.leave(1))
    made.wait_for_event("left")
    assert made.saving.kept.state_for(2) is not None
    successor = made.play(2).ready()
    made.wait_for_event("joined")
    assert made.saving.kept.state_for(2) is None
    one.send(answer_of(1, iteration=1))
    made.finished(one, successor)


def test_what_was_left_and_does_not_fit_gives_way_to_a_copy(stage: MakeStage) -> None:
    made = stage(iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    two.send(messages.state(1, {2: {"discriminator.model.1.bias": torch.zeros(3)}}, "leave"))
    two.send(messages.leave(1))
    made.wait_for_event("left")
    successor = made.play(2, key=two.hello["key"]).lacks_everything()
    assert successor.take(Kind.ADOPT).tensors.keys() == {"2/discriminator.model.1.bias"}
    successor.lacks_everything()
    order = one.take(Kind.COPY)
    one.send(messages.state(order.iteration, {1: copied(8)}, "copy", 2))
    adopted = messages.by_worker(successor.take(Kind.ADOPT))
    assert same_state(adopted[2], copied(8))
    successor.ready()
    one.send(answer_of(1, iteration=1))
    made.finished(one, successor)


def test_of_a_host_with_one_kept_state_the_other_worker_gets_its_copied(
    stage: MakeStage,
) -> None:
    made = stage(num_workers=2, iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    state = make_worker(2, model_seed=9).state()
    two.send(messages.state(1, {2: state}, "leave"))
    two.send(messages.leave(1))
    made.wait_for_event("left")
    replacement = made.play(2, 7, key=two.hello["key"]).lacks_everything()
    adopted = messages.by_worker(replacement.take(Kind.ADOPT))
    assert same_state(adopted[2], state)
    assert same_state(adopted[7], copied(9))
    replacement.ready()
    one.send(answer_of(1, iteration=1))
    made.finished(one, replacement)


def test_a_real_host_that_is_asked_to_stop_answers_first(stage: MakeStage) -> None:
    made = stage(iterations=6, to_server=True)
    worker = make_worker(2)
    host = made.host({2: worker})
    (one,) = made.begin_with((1,))
    for i in (1, 2):
        one.answer(i)
    one.take(ASK, 3)
    host.interrupt()
    assert isinstance(made.hosts[2].over(), Interrupted)
    one.send(answer_of(1, iteration=3))
    for i in (4, 5, 6):
        one.answer(i)
    assert made.over() is None
    assert [record["workers"] for record in made.metrics()][3:] == [1, 1, 1]
    assert made.metrics()[2]["workers"] in (1, 2)
    assert made.events("left")[0]["workers"] == [2]
    assert not made.events("lost")
    kept = made.saving.kept.state_for(2)
    assert kept is not None
    assert same_state(kept, worker.state())
