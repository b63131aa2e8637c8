"""A host is gone, at each point of an iteration; the others go on."""

from collections.abc import Callable

import pytest

from mdgan import messages
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.messages import Kind
from mdgan.storage.checkpoints import worker_file
from mdgan.storage.state_file import write_state
from tests.processes import wait_until
from tests.toy_family import ANSWER, ASK
from tests.unit.engine.played import answer_of, generator_after
from tests.unit.engine.stage import Stage, copied, make_worker, same_state

MakeStage = Callable[..., Stage]


def test_before_its_first_answer(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=2)
    one, two, three = made.begin_with((1,), (2,), (3,))
    three.take(ASK, 1)
    three.die()
    for i in (1, 2):
        one.answer(i)
        two.answer(i)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2], [1, 2]]))
    (lost,) = made.events("lost")
    assert (lost["iteration"], lost["workers"]) == (1, [3])
    assert made.attendance()["3"] == {"lost": 1}


def test_after_its_answer_which_counts(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=2)
    one, two, three = made.begin_with((1,), (2,), (3,))
    three.answer(1)
    three.die()
    for i in (1, 2):
        one.answer(i)
        two.answer(i)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2, 3], [1, 2]]))


def test_with_all_its_workers(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=2)
    one, both, four = made.begin_with((1,), (2, 3), (4,))
    both.take(ASK, 1)
    both.die()
    for i in (1, 2):
        four.answer(i)
        one.answer(i)
    made.finished(one, four)
    assert made.has_learnt(generator_after([[1, 4], [1, 4]]))
    assert made.events("lost")[0]["workers"] == [2, 3]
    assert [record["workers"] for record in made.metrics()] == [2, 2]


def test_from_many_to_one(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=4)
    hosts = made.begin_with((1,), (2,), (3,), (4,))
    for i in (1, 2, 3):
        dying = hosts.pop()
        dying.take(ASK, i)
        dying.die()
        for host in hosts:
            host.answer(i)
    hosts[0].answer(4)
    made.finished(*hosts)
    left = [[1, 2, 3], [1, 2], [1], [1]]
    assert made.has_learnt(generator_after(left))


def test_before_every_worker_has_come(stage: MakeStage) -> None:
    made = stage(iterations=1)
    gone = made.play(2)
    made.begin(gone)
    gone.die()
    one, two = made.play(1).ready(), None
    made.wait_for_event("lost")
    two = made.play(2).ready()
    one.answer(1)
    two.answer(1)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2]]))


def test_while_arriving(stage: MakeStage) -> None:
    made = stage(iterations=2)
    one, two = made.begin_with((1,), (2,))
    one.answer(1)
    newcomer = made.play(3).lacks_everything()
    order = one.take(Kind.COPY)  # who is free gives
    newcomer.die()
    one.send(
        messages.state(
            order.iteration,
            {1: copied()},
            "copy",
            order.fields["taker"],
        )
    )
    two.send(answer_of(2, iteration=1))
    one.answer(2)
    two.answer(2)
    made.finished(one, two)
    assert made.has_learnt(generator_after([[1, 2]] * 2))
    assert not made.events("joined")


@pytest.mark.parametrize("how", ["dies", "is shut out", "leaves"])
def test_while_giving_a_copy(stage: MakeStage, how: str) -> None:
    made = stage(iterations=3, strikes=1)
    one, two = made.begin_with((1,), (2,))
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
    order = one.take(Kind.COPY)
    assert order.fields == {"worker": 1, "taker": 3}
    state = copied(5)
    one.send(messages.state(order.iteration, {1: state}, "copy", 3))
    adopted = messages.by_worker(newcomer.take(Kind.ADOPT))
    assert adopted.keys() == {3}
    assert same_state(adopted[3], state)
    newcomer.ready()
    one.send(answer_of(1, iteration=1))
    for i in (2, 3):
        one.answer(i)
        newcomer.answer(i)
    made.finished(one, newcomer)
    assert made.has_learnt(generator_after([[1], [1, 3], [1, 3]]))


def test_a_giver_that_hangs_is_not_waited_for(stage: MakeStage) -> None:
    made = stage(num_workers=2, iterations=4, deadline=(0.1, 0.0))
    one, hung = made.begin_with((1,), (2,))
    one.answer(1)
    one.take(ASK, 2)  # now rank 2 is late
    newcomer = made.play(3).lacks_everything()
    order = one.take(Kind.COPY)
    state = copied()
    one.send(messages.state(order.iteration, {1: state}, "copy", 3))
    newcomer.take(Kind.ADOPT)
    one.send(answer_of(1, iteration=2))
    assert "COPY" not in hung.told()


def test_while_a_checkpoint_is_open(stage: MakeStage) -> None:
    made = stage(iterations=3, checkpoints=2, to_server=True)
    one, dies = made.begin_with((1,), (2,))
    for i in (1, 2):
        one.answer(i)
        dies.answer(i)
    dies.take(Kind.CHECKPOINT, 2)
    one.take(Kind.CHECKPOINT, 2)
    one.send(messages.state(2, {1: make_worker(1).state()}, "checkpoint"))
    assert 2 not in made.checkpoints.committed(), "rank 2 may yet save its worker"
    dies.die()
    assert made.wait_for_checkpoint(2).workers == (1,)
    one.answer(3)
    made.finished(one)


def test_all_of_them_and_no_worker_comes(
    stage: MakeStage, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage(iterations=3, checkpoints=2, patience=0.2)
    one, two = made.begin_with((1,), (2,))
    for host in (one, two):
        host.answer(1)
    for host in (one, two):
        host.take(ASK, 2)
        host.die()
    error = made.over()
    assert isinstance(error, AllWorkersLost)
    assert "all workers are gone at iteration 2" in str(error)
    assert "0.2 s" in str(error)
    manifest = made.checkpoints.newest()[0]
    assert manifest is not None
    assert manifest.iteration == 1
    assert made.status()["state"] == "failed"
    assert made.has_learnt(generator_after([[1, 2]]))


def test_without_patience_the_end_comes_at_once(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=2, patience=0.0)
    (one,) = made.begin_with((1,))
    one.take(ASK)
    one.die()
    assert isinstance(made.over(), AllWorkersLost)


def test_all_of_them_and_one_comes_back(stage: MakeStage) -> None:
    made = stage(iterations=2)
    one, two = made.begin_with((1,), (2,))
    for host in (one, two):
        host.take(ASK, 1)
        host.die()
    made.wait_for_event("lost", 2)
    again = made.play(1).lacks_everything()
    assert again.take(Kind.ADOPT).tensors == {}, "no worker holds a discriminator any more"
    again.ready()
    again.answer(1)
    again.answer(2)
    made.finished(again)
    assert made.events("joined")[0]["workers"] == [1]


def test_all_of_them_and_a_host_that_comes_back_is_told_of_the_last_checkpoint(
    stage: MakeStage,
) -> None:
    made = stage(iterations=3, checkpoints=2)
    hosts = made.begin_with((1,), (2,))
    for i in (1, 2):
        for host in hosts:
            host.answer(i)
    records = {}
    for host in hosts:
        worker = host.number
        folder, name = made.checkpoints.folder_of(2), worker_file(worker)
        stored = write_state(folder, name, make_worker(worker).state())
        records[str(worker)] = stored.as_record()
        host.take(Kind.CHECKPOINT, 2)
        host.send(messages.checkpointed(2, {worker: records[str(worker)]}))
    assert made.wait_for_checkpoint(2).workers == (1, 2)
    assert made.play(3).welcome["checkpoint"] is None, "as long as others live it gets a copy"
    for host in hosts:
        host.die()
    made.wait_for_event("lost", 2)
    wait_until(lambda: made.admission._checkpoint is not None, "the server sees that all are gone")
    again = [made.play(1), made.play(2)]
    for host in again:
        told = host.welcome["checkpoint"]
        assert {name: told["files"][name] for name in records} == records
        assert told["iteration"] == 2
        host.ready()
    again[0].take(ASK, 3)
    assert made.play(4).welcome["checkpoint"] is None, "others live again"
    again[0].send(answer_of(1, iteration=3))
    made.finished(*again)


def test_all_of_them_and_another_host_gets_no_more_than_a_copy(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=3, checkpoints=2, to_server=True)
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.answer(2)
    one.take(Kind.CHECKPOINT, 2)
    whole = make_worker(1, model_seed=7).state()
    one.send(messages.state(2, {1: whole}, "checkpoint"))
    made.wait_for_checkpoint(2)
    one.die()
    made.wait_for_event("lost")
    other = made.play(1).lacks_everything()
    for _ in range(2):  # nor by coming back with the key that it now has the rank with
        adopted = messages.by_worker(other.take(Kind.ADOPT))
        assert same_state(adopted[1], copied(7))
        other.die()
        made.wait_for_event("lost")
        other = made.play(1, key=other.hello["key"]).lacks_everything()
    other.take(Kind.ADOPT)
    other.ready()
    made.finished(other)


def test_all_of_them_and_the_server_gives_back_what_it_keeps(stage: MakeStage) -> None:
    made = stage(num_workers=1, iterations=3, checkpoints=2, to_server=True)
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.answer(2)
    one.take(Kind.CHECKPOINT, 2)
    state = make_worker(1, model_seed=7).state()
    one.send(messages.state(2, {1: state}, "checkpoint"))
    made.wait_for_checkpoint(2)
    one.die()
    made.wait_for_event("lost")
    again = made.play(1, key=one.hello["key"]).lacks_everything()
    adopted = messages.by_worker(again.take(Kind.ADOPT))
    assert adopted[1].keys() == state.keys()
    assert same_state(adopted[1], state)
    again.ready()
    made.finished(again)
