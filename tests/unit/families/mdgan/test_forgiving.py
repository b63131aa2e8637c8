"""F2U and F2A against autograd through max and softmax, and their properties."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.engine.stages.contract import pack_answers
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.aggregation import Aggregation, combine_groups
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.aggregation_form import AggregationRule, parse_aggregation
from mdgan.gan.aggregation_rules import weights
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from mdgan.gan.losses import GENERATOR_LOSSES, Term
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.messages import Kind, Message
from tests.marks import examples
from tests.unit.families.mdgan import played
from tests.unit.families.mdgan.played import FORM, Played, feedback_of, generator_after
from tests.unit.families.mdgan.stage import Stage, make_worker
from tests.unit.gan import small
from tests.unit.gan.small import BATCH_SIZE, CPU, images, same_bits

rule_of = parse_aggregation
RULES = ["f2u", "f2a", "f2a:0.3", "f2a:25"]
quick = settings(deadline=None, max_examples=examples(24))
logits = st.floats(-30, 30, width=32)
any_logits = st.floats(width=32, allow_nan=False, allow_infinity=False)
any_lambda = st.floats(0, exclude_min=True, allow_infinity=False)


def outputs_of(workers: list[int], seed: int = 0) -> dict[int, Tensor]:
    noise = generator_for(seed, "outputs")
    return {n: 3 * torch.randn(BATCH_SIZE, generator=noise) for n in workers}


# The gradient of the generator, end to end.


def make_judges(count: int, loss: str) -> dict[int, Worker]:
    """Workers whose discriminators have learnt apart, and look at one sample at a time."""
    judges = {}
    for n in range(1, count + 1):
        judges[n] = small.make_worker(n, generator_loss=loss)
        kept = (nn.Flatten, nn.Linear, nn.LeakyReLU)
        model = nn.Sequential(*(part for part in small.make_model(n) if isinstance(part, kept)))
        judges[n].discriminator = Discriminator(model, small.adam(model, lr=2e-2))
        for step in range(8):
            judges[n].learn(Samples(images(100 * n + step)))
    return judges


def reference(
    judges: dict[int, Worker], assignment: dict[int, Assignment], kappa: int, rule: str, term: Term
) -> list[Tensor]:
    """∂/∂w of Σ_j (m_j / N) J(the judges of batch j together), by autograd through everything."""
    generator = small.make_generator()
    z = torch.randn(kappa * BATCH_SIZE, small.Z_DIM, generator=generator_for(0, "noise"))
    with RandomState(1000, CPU).in_place():
        generated = generator(z).view(kappa, BATCH_SIZE, *small.SHAPE)
    total = torch.zeros(())
    for batch in range(kappa):
        models = [w.discriminator.model for n, w in judges.items() if assignment[n].judge == batch]
        judged = torch.stack([model(generated[batch]).squeeze(1) for model in models])
        if rule == "f2u":
            together = term(judged.max(0).values)
        else:
            scale = float(rule.partition(":")[2] or 1)
            shares = torch.exp(scale * judged) / torch.exp(scale * judged).sum(0)
            each = torch.stack([torch.stack([term(logit) for logit in row]) for row in judged])
            together = (shares.detach() * each).sum(0).mean()
        total = total + len(models) / len(judges) * together
    return list(torch.autograd.grad(total, list(generator.parameters())))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", GENERATOR_LOSSES)
@pytest.mark.parametrize(("num_workers", "kappa"), [(5, 2), (2, 1)])
def test_the_generator_gets_the_gradient_of_what_the_rule_says(
    rule: str, loss: str, num_workers: int, kappa: int
) -> None:
    judges = make_judges(num_workers, loss)
    learner, assignment = small.make_learner(), assign(list(judges), kappa)
    generated = learner.generate(kappa)
    said = {n: judge.feedback(generated[assignment[n].judge]) for n, judge in judges.items()}
    feedbacks = {n: judgement.feedback for n, judgement in said.items()}
    gradient_found = gradient(
        learner, rule, feedbacks, {n: own.outputs for n, own in said.items()}, assignment, kappa
    )
    wanted = reference(judges, assignment, kappa, rule, GENERATOR_LOSSES[loss])
    for ours, theirs in zip(gradient_found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)

    twin = small.make_learner()
    twin.generate(kappa)
    by_mean = twin.gradients(mean_feedback(feedbacks, assignment, kappa))
    apart = max(float((a - b).abs().max()) for a, b in zip(gradient_found, by_mean, strict=True))
    assert apart > 1e-4, "the rule makes no difference here"


def gradient(
    learner: GeneratorLearner,
    rule: str,
    feedbacks: dict[int, Tensor],
    outputs: dict[int, Tensor],
    assignment: dict[int, Assignment],
    kappa: int,
) -> list[Tensor]:
    aggregation, beside = Aggregation(rule_of(rule)), {messages.OUTPUTS: outputs}
    aggregation.update_gradient(learner, feedbacks, assignment, kappa, beside)
    return [p.grad for p in learner.parameters if p.grad is not None]


# Each sample's judges.


@quick
@given(st.lists(any_logits, min_size=1, max_size=6), any_lambda)
def test_whatever_is_claimed_weights_are_weights(outputs: list[float], scale: float) -> None:
    """Also where λ D_n(x) is beyond any number."""
    for rule in (AggregationRule("f2u", 0), AggregationRule("f2a", scale)):
        result = weights(rule, torch.tensor(outputs)[:, None])
        assert (result >= 0).all()
        assert float(result.sum()) == pytest.approx(1)
        assert float(result[outputs.index(max(outputs))]) == float(result.max())


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_of_equally_forgiving_judges_f2u_hears_the_lowest_rank(order: list[int]) -> None:
    assignment = assign([1, 2, 3], 1)
    outputs = {1: torch.zeros(BATCH_SIZE), 2: torch.ones(BATCH_SIZE), 3: torch.ones(BATCH_SIZE)}
    outputs[3][-1] = 2.0
    combination = combine_groups(
        rule_of("f2u"), {n: images(n) for n in order}, assignment, 1, {n: outputs[n] for n in order}
    )[0]
    assert torch.equal(combination[:-1], images(2)[:-1])
    assert torch.equal(combination[-1], images(3)[-1])


@pytest.mark.parametrize("rule", RULES)
@quick
@given(num_workers=st.integers(1, 9), seed=st.integers(0, 2**32), scale=st.floats(1e-9, 1e9))
def test_with_one_judge_a_batch_it_is_the_mean_bit_for_bit(
    rule: str, num_workers: int, seed: int, scale: float
) -> None:
    workers = list(range(1, num_workers + 1))
    assignment, outputs = assign(workers, num_workers), outputs_of(workers, seed)
    feedbacks = {n: scale * images(seed + n) for n in workers}
    feedbacks[1][0] = -0.0
    combination = combine_groups(rule_of(rule), feedbacks, assignment, num_workers, outputs)
    assert same_bits(combination, mean_feedback(feedbacks, assignment, num_workers))


# At the server.


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
    return played.weights(learner.model)


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
