"""Hosts that leave, and what they leave behind for when they come back."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.messages import Kind
from tests.toy_family import ASK
from tests.unit.engine.played import (
    Played,
    answer_all,
    answer_of,
    copied,
    generator_after,
    state_of,
)
from tests.unit.engine.stage import Stage, same_state

MakeStage = Callable[..., Stage]


def leave(made: Stage, host: Played, state: Mapping[str, Tensor]) -> None:
    """A host of one worker leaves while the others are asked, and leaves a state behind."""
    others = {1: state_of(1, 9)}  # which it does not carry
    host.send(messages.state(1, {**others, host.number: state}, "leave"))
    host.send(messages.leave(1))
    made.wait_for_event("left")


def test_leaving_is_no_loss(stage: MakeStage) -> None:
    made = stage(iterations=2)
    one, two = made.begin_with((1,), (2,))
    two.answer(1)
    two.send(messages.leave(1))
    two.die()
    answer_all([one], 1, 2)
    made.finished(one)
    assert made.has_learnt(generator_after([[1, 2], [1]]))
    (left,) = made.events("left")
    assert (left["iteration"], left["workers"]) == (1, [2])
    assert not made.events("lost")
    told = made.admission.admit({"purpose": "ask"})
    assert isinstance(told, Mapping)
    assert told["rank"] == 2


@pytest.mark.parametrize("besides", [(), (7,)])
def test_who_left_gets_back_what_it_left_and_its_other_worker_a_copy(
    stage: MakeStage, besides: tuple[int, ...]
) -> None:
    made = stage(iterations=3, to_server=True)
    one, two = made.begin_with((1,), (2,))
    assert two.welcome["wants_states"]
    two.answer(1)
    leave(made, two, state_of(2, 9))
    again = made.play(2, *besides, key=two.hello["key"]).lacks_everything()
    adopted = again.adopts()
    assert adopted.keys() == {2, *besides}
    assert same_state(adopted[2], state_of(2, 9))
    assert all(same_state(adopted[worker], copied(9)) for worker in besides)
    again.ready()
    made.wait_for_event("joined")
    one.answer(1)
    answer_all([one, again], 2, 3)
    made.finished(one, again)
    assert "COPY" not in one.told()


def test_another_host_with_its_rank_gets_a_copy_instead(stage: MakeStage) -> None:
    """A whole state tells which samples its worker has seen, and what it has learnt from them."""
    made = stage(iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    leave(made, two, state_of(2, 9))
    other = made.play(2).lacks_everything()
    order = one.take(Kind.COPY)
    whole = {1: state_of(1, 8)}  # more than it was asked for
    one.send(messages.state(order.iteration, whole, "copy", 2))
    assert same_state(other.adopts()[2], copied(8))
    other.ready()
    one.send(answer_of(1, iteration=1))
    made.finished(one, other)


def test_what_was_left_is_dropped_once_its_rank_has_a_state_of_its_own(stage: MakeStage) -> None:
    made = stage(iterations=2, to_server=True)
    one, two = made.begin_with((1,), (2,))
    one.take(ASK, 1)
    leave(made, two, state_of(2, 9))
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
    leave(made, two, {"model.bias": torch.zeros(3)})
    successor = made.play(2, key=two.hello["key"]).lacks_everything()
    assert successor.adopts()[2].keys() == {"model.bias"}
    successor.lacks_everything()
    one.give_copy(8)
    assert same_state(successor.adopts()[2], copied(8))
    successor.ready()
    one.send(answer_of(1, iteration=1))
    made.finished(one, successor)
