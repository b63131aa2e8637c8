"""The samples of a worker's step: a batch of each kind, as in the paper, or more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.build import make_worker
from mdgan.families.mdgan.host import OneByOne
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.variants.learning_later import LearningLater
from mdgan.families.mdgan.variants.stacked import StackedWorkers
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Models
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.gan.regularizers.registry import RegularizerSettings, make_regularizers
from tests.claims.registry import claim
from tests.unit.gan import small
from tests.unit.gan.stateful import SOURCE

RANKS = (1, 2, 3)
ASSIGNED = {rank: Assignment(n % 2, (n + 1) % 2) for n, rank in enumerate(RANKS)}
"""Three workers judge two of the batches."""


def generated(iteration: int) -> Samples:
    """Five batches."""
    return Samples(torch.stack([small.images(5 * iteration + n) for n in range(5)]))


def workers() -> dict[int, Worker]:
    return {rank: small.make_worker(rank) for rank in RANKS}


def bits(worker: Worker) -> list[Tensor]:
    return [tensor for _, tensor in sorted(worker.state().items())]


@pytest.mark.parametrize("kind", [OneByOne, LearningLater])
def test_a_worker_learns_from_all_batches(kind: type[OneByOne]) -> None:
    group, twins = workers(), workers()
    together = kind(group, train_on_all=True)
    for iteration in range(3):
        batches = generated(iteration)
        trained = batches.flattened()
        answers = together.answer(batches, ASSIGNED)
        together.catch_up()
        for rank, (judge, _) in ASSIGNED.items():
            twin = twins[rank]
            if kind is LearningLater:
                twin.learn_real_half()
                wanted = twin.feedback(batches[judge])
                twin.learn(trained)
            else:
                twin.learn(trained)
                wanted = twin.feedback(batches[judge])
            assert small.same_bits(answers.feedbacks[rank], wanted.feedback)
            assert small.equal_bits(bits(group[rank]), bits(twin))


def test_the_paper_trains_on_one_batch() -> None:
    group, twins = workers(), workers()
    OneByOne(group).answer(generated(0), ASSIGNED)
    for rank, (judge, train) in ASSIGNED.items():
        twins[rank].learn(generated(0)[train])
        twins[rank].feedback(generated(0)[judge])
        assert small.equal_bits(bits(group[rank]), bits(twins[rank]))


@pytest.mark.parametrize(("step_samples", "drawn"), [(0, 10), (48, 48), (70, 70)])
def test_a_worker_draws_so_many_of_its_own_samples(step_samples: int, drawn: int) -> None:
    settings = MDGANSettings.read({"world_size": 4, "batch_size": 10, "step_samples": step_samples})
    models = Models("small", small.SHAPE, small.Z_DIM, small.make_generator, small.make_model)
    shard = Shard(SOURCE, torch.arange(40).repeat(3), generator_for(0, "shard"))
    make_worker(1, settings, models, shard, small.CPU).learn(generated(0)[0])
    assert shard.state()["left"] == 120 - drawn


def merged(worker: Worker) -> None:
    worker.rules = replace(worker.rules, merges_halves=True)


def with_more(worker: Worker) -> None:
    """More real samples than generated ones."""
    worker.rules = replace(worker.rules, batch_size=3 * small.BATCH_SIZE)


def penalized(worker: Worker) -> None:
    """A gradient penalty between a real and as many generated samples."""
    worker.regularizers = make_regularizers(RegularizerSettings(gradient_penalty=10.0))


def penalized_with_more(worker: Worker) -> None:
    with_more(worker)
    penalized(worker)


@pytest.mark.parametrize("change", [lambda _: None, with_more, penalized, penalized_with_more])
def test_all_at_once_is_as_one_after_another(change: Callable[[Worker], None]) -> None:
    singly, together = workers(), workers()
    for worker in (*singly.values(), *together.values()):
        change(worker)
        for module in worker.discriminator.model.modules():
            if isinstance(module, torch.nn.Dropout):  # its masks differ
                module.p = 0.0
    groups = (
        OneByOne(singly, train_on_all=True),
        StackedWorkers(together, sample_shape=small.SHAPE, train_on_all=True),
    )
    for iteration in range(3):
        one, other = (group.answer(generated(iteration), ASSIGNED) for group in groups)
        for rank in RANKS:
            torch.testing.assert_close(
                other.feedbacks[rank], one.feedbacks[rank], rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(other.losses[rank], one.losses[rank], rtol=1e-4, atol=1e-5)


def merged_with_more(worker: Worker) -> None:
    with_more(worker)
    merged(worker)


@pytest.mark.parametrize("change", [merged, merged_with_more, penalized, penalized_with_more])
def test_more_samples_go_with_what_else_is_learnt(change: Callable[[Worker], None]) -> None:
    group, alone = workers(), workers()
    for worker in (*group.values(), *alone.values()):
        change(worker)
    OneByOne(group, train_on_all=True).answer(generated(0), ASSIGNED)
    OneByOne(alone).answer(generated(0), ASSIGNED)
    for rank in RANKS:
        assert not small.equal_bits(bits(group[rank]), bits(alone[rank]))


@pytest.mark.parametrize(
    ("values", "reals", "fakes"),
    [
        ({}, 48, 100),  # ten batches, one of each worker
        ({"world_size": 4}, 48, 30),
        ({"world_size": 101}, 48, 100),  # no more batches than ten
        ({"batch_size": 5}, 48, 50),
        ({"batch_size": 31}, 48, 124),  # no more samples than a hundred, in whole batches
        ({"batch_size": 47}, 48, 141),
        ({"world_size": 3, "batch_size": 31}, 48, 62),
        ({"wire": "images=bf16"}, 48, 10),
        ({"wire": "feedback=int8"}, 48, 100),
        ({"batch_size": 48}, 48, 48),
        ({"batch_size": 100}, 100, 100),
        ({"step_samples": 20}, 20, 100),
        ({"kappa": 3}, 48, 100),
        ({"world_size": 13, "kappa": 12}, 48, 120),
        ({"batch_size": 64, "step_samples": 65}, 65, 128),
        ({"step_samples": 0}, 10, 10),
        ({"participation": 0.4}, 48, 40),
        ({"dp_noise": 1.0, "dp_delta": 1e-5}, 10, 100),
        ({"batch_sampling": "poisson"}, 10, 100),
        ({"world_size": 2}, 48, 10),
        ({"world_size": 2, "step_samples": 64}, 64, 10),
    ],
)
@claim(
    "most-batches",
    "as many as workers, but no more than ten, nor than it takes to have 100 samples.",
)
def test_with_48_samples_workers_with_small_batches_learn_from_more(
    values: dict[str, Any], reals: int, fakes: int
) -> None:
    settings = MDGANSettings.read(
        {"world_size": 11, "batch_size": 10, "step_samples": 48, **values}
    )
    assert (settings.num_reals, settings.num_fakes) == (reals, fakes)


@pytest.mark.parametrize(
    ("values", "kappas"),
    [
        ({}, {2: 2, 4: 4, 10: 10, 40: 10}),  # each worker judges its own batch, of ten
        ({"step_samples": 0}, {2: 2, 4: 2, 10: 3, 40: 5}),  # ⌊log2 N⌋, as in the paper
        ({"batch_size": 48}, {2: 2, 4: 2, 10: 3, 40: 5}),
        ({"batch_size": 40}, {2: 2, 4: 3, 10: 3, 40: 3}),  # three batches are enough
        ({"kappa": 3}, {2: 3, 10: 3, 40: 3}),
        ({"aggregation": "krum:3"}, {10: 3, 40: 5}),  # rules compare who judges the same batch
        ({"secure_aggregation": True}, {10: 3, 40: 5}),
    ],
)
def test_as_many_batches_are_judged_as_workers_can(
    values: dict[str, Any], kappas: dict[int, int]
) -> None:
    settings = MDGANSettings.read(
        {"world_size": 41, "batch_size": 10, "step_samples": 48, **values}
    )
    assert {
        num_workers: settings.batches.kappa_for(num_workers) for num_workers in kappas
    } == kappas


def test_fewer_than_none_are_refused() -> None:
    with pytest.raises(BadInput, match=r"step-samples.*-1.*0 \(as in the paper\) or more"):
        MDGANSettings.read({"step_samples": -1})
