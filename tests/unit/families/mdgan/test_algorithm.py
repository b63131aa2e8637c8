"""The server's share: assignment, gradient, and the generator's step."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation import aggregate
from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.losses import GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.gan.small import (
    BATCH_SIZE,
    CPU,
    SHAPE,
    Z_DIM,
    adam,
    all_bits,
    equal_bits,
    images,
    make_generator,
    make_learner,
    make_worker,
    same_bits,
)

SIZES = [(1, 1), (1, 2), (2, 1), (3, 2), (5, 3), (7, 7)]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def tolerance(request: pytest.FixtureRequest) -> Iterator[float]:
    """The largest difference allowed, with every new tensor in single or in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield 1e-6 if request.param == torch.float32 else 1e-14
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("kappa", "num_workers", "resolved"),
    [
        ("auto", 1, 2),
        ("auto", 2, 2),
        ("auto", 3, 2),
        ("auto", 7, 2),
        ("auto", 8, 3),
        ("auto", 15, 3),
        ("auto", 16, 4),
        ("auto", 31, 4),
        ("auto", 1023, 9),
        ("auto", 1024, 10),
        (1, 10, 1),
        (7, 10, 7),
        (4, 2, 4),
    ],
)
def test_kappa_is_as_given_or_the_logarithm(
    kappa: int | str, num_workers: int, resolved: int
) -> None:
    assert resolve_kappa(kappa, num_workers) == resolved


@pytest.mark.parametrize(
    ("workers", "kappa", "assigned"),
    [
        ([1], 1, {1: (0, 0)}),
        ([1], 2, {1: (0, 1)}),
        ([3], 3, {3: (0, 1)}),
        ([1, 2, 3], 1, {1: (0, 0), 2: (0, 0), 3: (0, 0)}),
        ([2, 5, 9], 2, {2: (0, 1), 5: (1, 0), 9: (0, 1)}),
        ([1, 2, 3, 4, 5], 3, {1: (0, 1), 2: (1, 2), 3: (2, 0), 4: (0, 1), 5: (1, 2)}),
    ],
)
def test_worker_n_judges_batch_n_and_trains_on_the_next(
    workers: list[int], kappa: int, assigned: dict[int, tuple[int, int]]
) -> None:
    assert assign(workers, kappa) == assigned


def feedback_of_all(
    workers: dict[int, Worker], generated: Tensor, assignment: dict[int, Assignment]
) -> dict[int, Tensor]:
    return {
        n: worker.feedback(Samples(generated[assignment[n].judge]))[0]
        for n, worker in workers.items()
    }


def gradient_by_feedback(
    learner: GeneratorLearner, workers: dict[int, Worker], kappa: int
) -> list[Tensor]:
    assignment = assign(sorted(workers), kappa)
    feedbacks = feedback_of_all(workers, learner.generate(kappa).images, assignment)
    learner.backward(aggregate(feedbacks, assignment, kappa))
    learner.step()
    return gradients_in(learner)


def gradients_in(learner: GeneratorLearner) -> list[Tensor]:
    gradients = [p.grad.clone() for p in learner.model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(learner.model.parameters()))
    return gradients


def generated_with_graph(kappa: int) -> tuple[list[Tensor], Tensor]:
    """The parameters of a second, equal generator, and the X that it makes, still attached."""
    generator = make_generator()
    z = torch.randn(kappa * BATCH_SIZE, Z_DIM, generator=generator_for(0, "noise"))
    with RandomState(1000, CPU).in_place():
        samples = generator(z).view(kappa, BATCH_SIZE, *SHAPE)
    return list(generator.parameters()), samples


def assert_close(found: list[Tensor], wanted: tuple[Tensor, ...], tolerance: float) -> None:
    assert any(gradient.abs().max() > 1e-3 for gradient in wanted), "nothing to compare"
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("num_workers", "kappa", "loss"),
    [(1, 1, "hinge"), (2, 1, "hinge"), *((*size, "non-saturating") for size in SIZES)],
)
def test_different_discriminators_in_training_give_the_gradient_of_the_mean_of_their_losses(
    num_workers: int, kappa: int, loss: str, tolerance: float
) -> None:
    workers = {10 * n: make_worker(n, generator_loss=loss) for n in range(1, num_workers + 1)}
    found = gradient_by_feedback(make_learner(), workers, kappa)

    parameters, samples = generated_with_graph(kappa)
    losses = []
    for index, n in enumerate(range(1, num_workers + 1)):
        model = make_worker(n).discriminator.model
        with RandomState(n + 2000, CPU).in_place():
            losses.append(GENERATOR_LOSSES[loss](model(samples[index % kappa])))
    wanted = torch.autograd.grad(torch.stack(losses).mean(), parameters)
    assert_close(found, wanted, tolerance)


def test_generating_is_one_forward_pass_in_training_mode() -> None:
    learner = make_learner()
    seen = []
    learner.model.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    generated = learner.generate(3)
    assert seen == [(3 * BATCH_SIZE, Z_DIM)]
    assert generated.images.shape == (3, BATCH_SIZE, *SHAPE)
    assert not generated.images.requires_grad
    assert same_bits(generated.images, generated_with_graph(3)[1].detach())


def test_an_update_is_one_adam_step_on_that_gradient_alone() -> None:
    learner, twin = make_learner(), make_generator()
    optimizer = adam(twin)
    for iteration in range(3):
        gradients = torch.stack([images(iteration), images(iteration + 50)])
        learner.generate(2)
        learner.backward(gradients)
        learner.step()

        noise = generator_for(0, "noise")
        z = [torch.randn(2 * BATCH_SIZE, Z_DIM, generator=noise) for _ in range(iteration + 1)]
        twins_state = RandomState(1000, CPU)
        with twins_state.in_place():
            for _ in range(iteration):
                twin[3](torch.ones(2 * BATCH_SIZE, 12))  # what dropout drew before
            samples = twin(z[-1])
        optimizer.zero_grad()
        torch.autograd.backward(samples, gradients.flatten(0, 1))
        optimizer.step()
        assert equal_bits(all_bits(learner.model, learner.optimizer), all_bits(twin, optimizer))


def test_frozen_parameters_stay() -> None:
    generator = make_generator()
    frozen = next(generator.parameters()).requires_grad_(False)
    before = frozen.clone()
    learner = GeneratorLearner(
        generator,
        adam(generator),
        z_dim=Z_DIM,
        batch_size=BATCH_SIZE,
        noise=generator_for(0, "noise"),
        random_state=RandomState(0, CPU),
    )
    last = generator.get_parameter("4.weight").clone()
    learner.generate(1)
    learner.backward(images(0).unsqueeze(0))
    learner.step()
    assert same_bits(frozen, before)
    assert not torch.equal(generator.get_parameter("4.weight"), last)


def test_an_update_needs_a_generation_of_its_own() -> None:
    learner = make_learner()
    gradient = images(0).unsqueeze(0)
    with pytest.raises(AssertionError, match="follows generate"):
        learner.backward(gradient)
    learner.generate(1)
    learner.backward(gradient)
    learner.step()
    with pytest.raises(AssertionError, match="follows generate"):
        learner.backward(gradient)
