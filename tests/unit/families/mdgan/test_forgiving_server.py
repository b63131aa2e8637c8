"""Runs with f2u and f2a: outputs travel, and the server believes none that says nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mdgan.engine.answers import pack_answers
from mdgan.families.mdgan.aggregation import combine_groups
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK
from mdgan.families.mdgan.settings import parse_aggregation
from mdgan.messages import Kind, Message
from tests.unit.families.mdgan.played import FORM, Played, feedback_of, generator_after, weights
from tests.unit.families.mdgan.stage import Stage, make_worker
from tests.unit.gan import small

MakeStage = Callable[..., Stage]
OUTPUTS = torch.linspace(-3, 3, small.BATCH_SIZE)
BAD_OUTPUTS = [
    (None, "outputs of shape [0], not [5]"),
    (OUTPUTS, "outputs of shape [0], not [5]"),  # not a row a worker
    (OUTPUTS[None].double(), "outputs of torch.float64, not torch.float32"),
    (torch.full((1, small.BATCH_SIZE), torch.nan), "NaN or Inf among its outputs"),
]


def answer(made: Stage, host: Played, iteration: int) -> Message:
    """A whole answer to the batches of an iteration, which must come."""
    judge = host.take(BATCHES, iteration).fields["judge"]
    judged = {int(worker): place for worker, place in judge.items()}
    return pack_answers(
        iteration,
        {worker: feedback_of(worker, iteration) for worker in judged},
        dict.fromkeys(judged, torch.zeros(2)),
        judged,
        made.form,
        {"outputs": dict.fromkeys(judged, OUTPUTS)},
    )


@pytest.mark.parametrize("rule", ["f2u", "f2a"])
def test_useless_outputs_are_a_strike_and_harm_nobody(stage: MakeStage, rule: str) -> None:
    count = len(BAD_OUTPUTS)
    made = stage(iterations=count, strikes=count, aggregation=rule)
    one, liar = made.begin_with((1,), (2,))
    for i, (outputs, _) in enumerate(BAD_OUTPUTS, start=1):
        honest = answer(made, liar, i)
        tensors = {name: tensor for name, tensor in honest.tensors.items() if name != "outputs"}
        if outputs is not None:
            tensors["outputs"] = outputs
        liar.send(Message(FEEDBACK, i, honest.fields, tensors))
        one.send(answer(made, one, i))
    assert liar.take(Kind.STOP).fields["shut_out"] is True
    made.finished(one)
    assert [event["reason"] for event in made.events("refused")] == [why for _, why in BAD_OUTPUTS]
    # Only rank 1 counts: one judge a batch, which is the mean.
    assert made.has_learnt(generator_after([[1]] * count, [[1, 2]] * count))


def test_a_sum_in_place_of_answers_is_a_strike_for_all_in_it(stage: MakeStage) -> None:
    made = stage(num_workers=4, iterations=1, kappa=1, aggregation="f2u")
    one, liar = made.begin_with((1,), (2, 3, 4))
    liar.take(BATCHES)
    feedbacks = {worker: feedback_of(worker, 1) for worker in (2, 3, 4)}
    losses, judged = dict.fromkeys(feedbacks, torch.zeros(2)), dict.fromkeys(feedbacks, 0)
    summed = pack_answers(1, feedbacks, losses, judged, FORM)
    assert summed.fields["summed"] == [[2, 3, 4]]
    liar.send(summed)
    one.send(answer(made, one, 1))
    made.finished(one, liar)
    assert {event["worker"] for event in made.events("refused")} == {2, 3, 4}
    assert [record["workers"] for record in made.metrics()] == [1]


def trained_here(rule: str, iterations: int) -> Tensor:
    """The generator after the same training without messages, with three workers and κ = 1."""
    learner, workers = small.make_learner(), {rank: make_worker(rank) for rank in (1, 2, 3)}
    assignment = assign(list(workers), 1)
    for _ in range(iterations):
        generated = learner.generate(1)[0]
        feedbacks, outputs = {}, {}
        for rank, worker in workers.items():
            worker.learn(generated)
            feedbacks[rank], _, outputs[rank] = worker.feedback(generated)
        aggregated = parse_aggregation(rule)
        learner.backward(combine_groups(aggregated, feedbacks, assignment, 1, outputs))
        learner.step()
    return weights(learner.model)


@pytest.mark.parametrize("rule", ["f2u", "f2a", "f2a:30"])
def test_hosts_tell_the_server_all_that_the_rule_needs(stage: MakeStage, rule: str) -> None:
    made = stage(num_workers=3, iterations=4, kappa=1, aggregation=rule)
    made.host([1, 2])
    made.host([3])
    made.begin()
    made.finished()
    assert not made.events("refused")
    assert made.has_learnt(trained_here(rule, 4))
    assert not made.has_learnt(trained_here("f2a:1e-6", 4))
