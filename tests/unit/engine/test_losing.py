"""A host is lost at each point of an iteration, and the others continue."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.messages import Kind
from mdgan.storage.checkpoints import worker_file
from mdgan.storage.state_file import write_state
from tests.claims.registry import claim
from tests.processes import wait_until
from tests.toy_family import ANSWER, ASK
from tests.unit.engine.learners import same_state
from tests.unit.engine.played import (
    Played,
    answer_all,
    answer_of,
    copied,
    generator_after,
    state_of,
)
from tests.unit.engine.stage import Stage, begun

MakeStage = Callable[..., Stage]


@claim("goes-on", "A worker that dies, hangs or leaves does not stop the others")
def test_before_its_answer_from_many_hosts_to_one(stage: MakeStage) -> None:
    made, hosts = begun(stage, (1,), (2,), (3,), (4, 5), num_workers=5, iterations=4)
    for i in (1, 2, 3):
        dying = hosts.pop()
        dying.take(ASK, i)
        dying.die()
        answer_all(hosts, i)
    answer_all(hosts, 4)
    made.finished(*hosts)
    assert made.has_learnt(generator_after([[1, 2, 3], [1, 2], [1], [1]]))
    lost = [(event["iteration"], event["workers"]) for event in made.events("lost")]
    assert lost[:3] == [(1, [4, 5]), (2, [3]), (3, [2])]
    assert made.attendance()["3"] == {"answered": 1, "lost": 1}


def test_after_its_answer_which_counts(stage: MakeStage) -> None:
    made, (one, two, three) = begun(stage, (1,), (2,), (3,), num_workers=3, iterations=2)
    three.answer(1)
    three.die()
    answer_all([one, two], 1, 2)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2, 3], [1, 2]]))


def test_before_every_worker_has_come(stage: MakeStage) -> None:
    made = stage(iterations=1)
    gone = made.play(2)
    made.begin(gone)
    gone.die()
    one = made.play(1).ready()
    made.wait_for_event("lost")
    two = made.play(2).ready()
    answer_all([one, two], 1)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2]]))


def test_while_arriving(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=2)
    one.answer(1)
    newcomer = made.play(3).lacks_everything()
    order = one.take(Kind.COPY)  # who is free gives
    newcomer.die()
    one.send(messages.state(order.iteration, {1: copied()}, "copy", 3))
    two.send(answer_of(2, iteration=1))
    answer_all([one, two], 2)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2]] * 2))
    assert not made.events("joined")


@pytest.mark.parametrize("how", ["dies", "is shut out", "leaves"])
def test_while_giving_a_copy(stage: MakeStage, how: str) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=3, strikes=1)
    one.take(ASK, 1)
    two.take(ASK, 1)
    newcomer = made.play(3).lacks_everything()  # 3 % 2 = 1: worker 2 is to give
    two.take(Kind.COPY)
    if how == "leaves":
        two.send(messages.leave(1))
    elif how == "is shut out":
        two.send(messages.Message(ANSWER, 1, {"workers": []}, {}))
    else:
        two.die()
    one.give_copy(5)
    adopted = newcomer.adopts()
    assert adopted.keys() == {3}
    assert same_state(adopted[3], copied(5))
    newcomer.ready()
    one.send(answer_of(1, iteration=1))
    answer_all([one, newcomer], 2, 3)
    made.finished(one, newcomer)
    assert made.has_learnt(generator_after([[1], [1, 3], [1, 3]]))


def test_a_giver_that_hangs_is_not_waited_for(stage: MakeStage) -> None:
    made, (one, hung) = begun(stage, (1,), (2,), num_workers=2, iterations=4, deadline=(0.1, 0.0))
    one.answer(1)
    one.take(ASK, 2)  # now rank 2 is late
    newcomer = made.play(3).lacks_everything()
    one.give_copy()
    newcomer.adopts()
    one.send(answer_of(1, iteration=2))
    assert "COPY" not in hung.message_kinds()


def test_while_a_checkpoint_is_open(stage: MakeStage) -> None:
    made, (one, dies) = begun(stage, (1,), (2,), iterations=3, checkpoints=2, to_server=True)
    answer_all([one, dies], 1, 2)
    dies.take(Kind.CHECKPOINT, 2)
    one.save(2)
    assert 2 not in made.checkpoints.committed(), "rank 2 may yet save its worker"
    dies.die()
    assert made.wait_for_checkpoint(2).workers == (1,)
    one.answer(3)
    made.finished(one)


# All of them.


@pytest.mark.parametrize("patience", [0.0, 0.2])
def test_and_no_worker_comes(stage: MakeStage, patience: float) -> None:
    made, hosts = begun(stage, (1,), (2,), iterations=3, checkpoints=2, patience=patience)
    answer_all(hosts, 1)
    for host in hosts:
        host.take(ASK, 2)
        host.die()
    error = made.over()
    assert isinstance(error, AllWorkersLost)
    assert "all workers are gone at iteration 2" in str(error)
    assert f"{patience:g} s" in str(error)
    manifest = made.checkpoints.newest()[0]
    assert manifest is not None
    assert manifest.iteration == 1
    assert made.status()["state"] == "failed"
    assert made.has_learnt(generator_after([[1, 2]]))


def test_and_one_comes_back(stage: MakeStage) -> None:
    made = stage(iterations=2)
    for host in made.begin_with((1,), (2,)):
        host.take(ASK, 1)
        host.die()
    made.wait_for_event("lost", 2)
    again = made.play(1).lacks_everything()
    assert again.adopts() == {}, "no worker holds a model any more"
    again.ready()
    answer_all([again], 1, 2)
    made.finished(again)
    assert made.events("joined")[0]["workers"] == [1]


def test_and_a_host_that_comes_back_is_told_of_the_last_checkpoint(stage: MakeStage) -> None:
    made, hosts = begun(stage, (1,), (2,), iterations=3, checkpoints=2)
    answer_all(hosts, 1, 2)
    records = {}
    for host in hosts:
        worker = host.number
        folder, name = made.checkpoints.folder_of(2), worker_file(worker)
        records[worker] = write_state(folder, name, state_of(worker)).as_record()
        host.take(Kind.CHECKPOINT, 2)
        host.send(messages.checkpointed(2, {worker: records[worker]}))
    assert made.wait_for_checkpoint(2).workers == (1, 2)
    assert made.play(3).welcome["checkpoint"] is None, "as long as others live it gets a copy"
    for host in hosts:
        host.die()
    wait_until(lambda: made.admission.checkpoint is not None, "the server sees it")
    again = [made.play(1), made.play(2)]
    for host in again:
        told = host.welcome["checkpoint"]
        assert {n: told["files"][str(n)] for n in records} == records
        assert told["iteration"] == 2
        host.ready()
    again[0].take(ASK, 3)
    assert made.play(4).welcome["checkpoint"] is None, "others live again"
    again[0].send(answer_of(1, iteration=3))
    made.finished(*again)


def saved_and_lost(made: Stage) -> Played:
    """The only host has saved its worker with the server, and died."""
    one: Played
    (one,) = made.begin_with((1,))
    answer_all([one], 1, 2)
    one.save(2, model_seed=7)
    made.wait_for_checkpoint(2)
    one.die()
    made.wait_for_event("lost")
    return one


def test_and_another_host_gets_no_more_than_a_copy(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=3, checkpoints=2, to_server=True)
    saved_and_lost(made)
    other = made.play(1).lacks_everything()
    for times in (1, 2):  # nor by coming back with the key that it now has the rank with
        assert same_state(other.adopts()[1], copied(7))
        other.die()
        made.wait_for_event("lost", 1 + times)
        other = made.play(1, key=other.hello["key"]).lacks_everything()
    other.adopts()
    other.ready()
    made.finished(other)


def test_and_the_server_gives_back_what_it_keeps(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=3, checkpoints=2, to_server=True)
    one = saved_and_lost(made)
    again = made.play(1, key=one.hello["key"]).lacks_everything()
    assert same_state(again.adopts()[1], state_of(1, 7))
    again.ready()
    made.finished(again)


# Hosts that leave, and what they leave behind for when they come back.


def leave(made: Stage, host: Played, state: Mapping[str, Tensor]) -> None:
    """A host of one worker leaves while the others are asked, and leaves a state behind."""
    others = {1: state_of(1, 9)}  # which it does not carry
    host.send(messages.state(1, {**others, host.number: state}, "leave"))
    host.send(messages.leave(1))
    made.wait_for_event("left")


@claim("goes-on", "A worker that dies, hangs or leaves does not stop the others")
def test_leaving_is_no_loss(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=2)
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
    made, (one, two) = begun(stage, (1,), (2,), iterations=3, to_server=True)
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
    assert "COPY" not in one.message_kinds()


def test_another_host_with_its_rank_gets_a_copy_instead(stage: MakeStage) -> None:
    """A whole state tells which samples its worker has seen, and what it has learnt from them."""
    made, (one, two) = begun(stage, (1,), (2,), iterations=2, to_server=True)
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
    made, (one, two) = begun(stage, (1,), (2,), iterations=2, to_server=True)
    one.take(ASK, 1)
    leave(made, two, state_of(2, 9))
    assert made.saving.kept.state_for(2) is not None
    successor = made.play(2).ready()
    made.wait_for_event("joined")
    assert made.saving.kept.state_for(2) is None
    one.send(answer_of(1, iteration=1))
    made.finished(one, successor)


def test_what_was_left_and_does_not_fit_gives_way_to_a_copy(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=2, to_server=True)
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
