"""`--stale 1`: the next batches leave before the feedback is in."""

from collections.abc import Callable

import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import BATCHES
from mdgan.messages import Kind
from tests.unit.families.mdgan.played import (
    answer_of,
    feedback_of,
    generated_by_a_copy,
    generator_after,
    weights,
)
from tests.unit.families.mdgan.stage import Stage
from tests.unit.gan import small

MakeStage = Callable[..., Stage]
KAPPA = 2


def stale_generator(pauses: set[int], answered: list[list[int]]) -> Tensor:
    """Reference: feedback meets the very module, copied, that made the batches."""
    learner = small.make_learner()
    made: list[tuple[torch.nn.Module, Tensor]] = []

    for i, present in enumerate(answered, 1):
        if not made:
            made.append(generated_by_a_copy(learner))
        if i not in pauses and i < len(answered):
            made.append(generated_by_a_copy(learner))
        module, x = made.pop(0)
        feedbacks = {worker: feedback_of(worker, i) for worker in present}
        output_gradient = aggregate(feedbacks, assign([1, 2], KAPPA), KAPPA)
        gradients = torch.autograd.grad(x, list(module.parameters()), output_gradient)
        learner.put_gradients(gradients)
        learner.step()
    return weights(learner.model)


def test_the_next_batches_are_there_before_anybody_has_answered(stage: MakeStage) -> None:
    made = stage(iterations=4, stale=1)
    hosts = made.begin_with((1,), (2,))
    for host in hosts:
        host.take(BATCHES, 1)
    for i in range(1, 5):
        for host in hosts:
            if i < 4:
                host.take(BATCHES, i + 1)
        for host in hosts:
            host.send(answer_of(host.number, i))
    made.finished(*hosts)
    assert made.has_learnt(stale_generator(set(), [[1, 2]] * 4))
    assert not made.has_learnt(generator_after([[1, 2]] * 4))
    assert made.events("attendance")[0]["workers"] == {"1": {"answered": 4}, "2": {"answered": 4}}


def test_an_answer_to_the_next_iteration_waits_for_its_turn(stage: MakeStage) -> None:
    made = stage(iterations=3, stale=1)
    fast, slow = made.begin_with((1,), (2,))
    for i in (1, 2):
        fast.answer(i)  # twice, while the other has not answered once
    slow.take(BATCHES, 2)
    for i in (1, 2):
        slow.send(answer_of(2, i))
    made.finished(fast, slow)
    assert made.has_learnt(stale_generator(set(), [[1, 2]] * 3))


def test_nothing_leaves_ahead_of_a_swap_or_a_checkpoint(stage: MakeStage) -> None:
    made = stage(iterations=6, stale=1, swap_interval=2, checkpoints=3)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    for host in hosts:
        told = [kind for kind in host.told() if kind in ("BATCHES", "SWAP", "CHECKPOINT")]
        orders = [(m.kind, m.iteration) for m in host.seen if m.kind in told]
        last_batches = 0
        for kind, iteration in orders:
            if kind == "BATCHES":
                last_batches = iteration
            else:
                assert iteration == last_batches, orders
        assert {i for kind, i in orders if kind == "SWAP"} == {2, 4}
        assert {i for kind, i in orders if kind == "CHECKPOINT"} >= {3}
    assert made.has_learnt(stale_generator({2, 3, 4}, [[1, 2]] * 6))


def test_who_is_late_gets_no_more_batches(stage: MakeStage) -> None:
    made = stage(iterations=5, stale=1, deadline=(0.2, 0.0), quorum=0.5)
    one, slow = made.begin_with((1,), (2,))
    slow.take(BATCHES, 2)
    for i in range(1, 6):
        one.answer(i)
    made.finished(one)
    assert slow.take(Kind.STOP)
    assert slow.iterations() == [1, 2]
