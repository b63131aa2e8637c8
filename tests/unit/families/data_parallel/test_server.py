"""Workers that are lost within an iteration cost their share of it, and no more."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.engine.stages.contract import pack_answers
from mdgan.families.data_parallel.messages import TRAIN, gradient_form, read_train
from mdgan.families.data_parallel.step import Reduction, reductions
from mdgan.families.data_parallel.vectors import BUFFERS, DISCRIMINATOR, GENERATOR
from mdgan.gan.exact_sum import average
from mdgan.interface import register
from mdgan.messages import Message
from tests.registered import forget_registered  # noqa: F401 - a fixture for every test here
from tests.unit.engine.played import Played
from tests.unit.families.data_parallel.replicas import ReplicaStage, all_values, make_reference
from tests.unit.gan import small

OF_DISCRIMINATOR, OF_GENERATOR = reductions(0)
EVERYTHING = {GENERATOR, DISCRIMINATOR, BUFFERS}


def gradient_of(worker: int, reduction: Reduction) -> Tensor:
    """What a worker played by hand answers."""
    shape = make_reference().vector(reduction).shape
    random = torch.Generator().manual_seed(worker)
    return torch.randn(shape, generator=random).abs()


def answer(host: Played) -> set[str]:
    """Answers the next question; returns the names of the weights that came with it."""
    question = host.take(TRAIN)
    host.send(answer_to(question))
    return set(question.tensors)


def answer_to(question: Message) -> Message:
    asked = read_train(question, small.CPU)
    reduction, shares = asked.reduction, asked.shares
    gradient = {worker: gradient_of(worker, reduction) for worker in shares}
    losses = {worker: torch.tensor([0.5, 0.25]) for worker in shares}
    form = gradient_form(reduction, next(iter(gradient.values())).shape)
    return pack_answers(question.iteration, gradient, losses, dict.fromkeys(gradient, 0), form)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ReplicaStage]:
    made = ReplicaStage(tmp_path / "run", num_workers=2, iterations=2, return_seconds=0.0)
    yield made
    made.network.server.close()


def expected(
    *groups: tuple[Reduction, tuple[int, ...]], scales: Sequence[float] | None = None
) -> Tensor:
    """The reference after steps with the means of some workers' gradients, at scaled rates."""
    reference = make_reference()
    for (reduction, workers), scale in zip(groups, scales or [1.0] * len(groups), strict=True):
        gradient = {n: gradient_of(n, reduction) for n in workers}
        reference.at(1, {GENERATOR: scale, DISCRIMINATOR: scale})
        reference.step(reduction, average(gradient, [], dict.fromkeys(workers, 0.5)))
    return all_values(reference.models)


def test_weights_travel_once_and_gradients_are_averaged(stage: ReplicaStage) -> None:
    hosts = stage.begin_with((1,), (2,))
    came = [[answer(host) for host in hosts] for _ in range(4)]
    assert came[0] == [EVERYTHING] * 2
    assert came[1] == [{DISCRIMINATOR}] * 2
    assert came[2] == [{GENERATOR, BUFFERS}] * 2
    assert came[3] == [{DISCRIMINATOR}] * 2
    stage.finished(*hosts)
    steps = [(reduction, (1, 2)) for reduction in (OF_DISCRIMINATOR, OF_GENERATOR) * 2]
    assert torch.equal(all_values(stage.reference.models), expected(*steps))
    assert [record["workers"] for record in stage.metrics()] == [2, 2]


def test_a_worker_that_dies_costs_its_share_of_one_iteration(stage: ReplicaStage) -> None:
    first, second = stage.begin_with((1,), (2,))
    answer(first), answer(second)  # its gradient of the discriminator counts
    second.take(TRAIN)
    second.die()
    for _ in range(3):
        answer(first)
    stage.finished(first)
    steps = [(OF_DISCRIMINATOR, (1, 2)), (OF_GENERATOR, (1,))]
    steps += [(OF_DISCRIMINATOR, (1,)), (OF_GENERATOR, (1,))]
    assert torch.equal(all_values(stage.reference.models), expected(*steps))


@pytest.mark.parametrize(("rule", "two_fold", "one_fold"), [("linear", 2, 1), ("tripled", 6, 3)])
def test_learning_rates_follow_when_a_worker_goes(
    tmp_path: Path, rule: str, two_fold: float, one_fold: float
) -> None:
    register.scaling_rule("tripled")(lambda ratio: 3 * ratio)
    b = small.BATCH_SIZE
    stage = ReplicaStage(tmp_path / "run", iterations=3, lr_scaling=rule, reference_batch_size=b)
    first, second = stage.begin_with((1,), (2,))
    for _ in range(2):
        answer(first), answer(second)
    second.take(TRAIN)  # the second iteration was shared out between two
    second.die()
    for _ in range(4):
        answer(first)
    stage.finished(first)
    two = [(reduction, (1, 2)) for reduction in reductions(0)]
    one = [(reduction, (1,)) for reduction in reductions(0)]
    ours = all_values(stage.reference.models)
    scales = [two_fold] * 4 + [one_fold] * 2
    assert torch.equal(ours, expected(*two, *one, *one, scales=scales))
    assert not torch.equal(ours, expected(*two, *one, *one, scales=[two_fold] * 6))


def test_an_iteration_goes_on_with_newcomers_when_all_are_lost(stage: ReplicaStage) -> None:
    hosts = stage.begin_with((1,), (2,))
    for host in hosts:
        answer(host)
    for host in hosts:
        host.take(TRAIN)
        host.die()
    newcomer = stage.play(7).lacks_everything()
    newcomer.take("ADOPT", None)
    newcomer.ready()
    assert answer(newcomer) == EVERYTHING  # the step of the discriminator is not taken twice
    answer(newcomer), answer(newcomer)
    stage.finished(newcomer)
    steps = [(OF_DISCRIMINATOR, (1, 2)), (OF_GENERATOR, (7,))]
    steps += [(OF_DISCRIMINATOR, (7,)), (OF_GENERATOR, (7,))]
    assert torch.equal(all_values(stage.reference.models), expected(*steps))
