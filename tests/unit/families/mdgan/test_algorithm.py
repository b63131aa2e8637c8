"""The server's share (assignment, gradient, step) and the worker's (local steps, feedback)."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from mdgan.families.mdgan.algorithm import Assignment, GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.variants.learning_later import LearningLater
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.gan.settings import resolve_kappa
from tests.claims.registry import claim
from tests.unit.gan.small import (
    BATCH_SIZE,
    CPU,
    SHAPE,
    Z_DIM,
    RealData,
    adam,
    all_bits,
    equal_bits,
    images,
    make_generator,
    make_learner,
    make_model,
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
@claim("kappa", "κ = max(2, ⌊log2 N⌋)")
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
@claim("kappa", "each worker trains on another batch than it judges")
@claim(
    "assigned",
    "the n-th worker that is there judges batch n mod κ and trains on batch (n + 1) mod κ.",
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
    learner.backward(mean_feedback(feedbacks, assignment, kappa))
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


def assert_close(result: list[Tensor], wanted: tuple[Tensor, ...], tolerance: float) -> None:
    assert any(gradient.abs().max() > 1e-3 for gradient in wanted), "nothing to compare"
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("num_workers", "kappa", "loss"),
    [(1, 1, "hinge"), (2, 1, "hinge"), *((*size, "non-saturating") for size in SIZES)],
)
@claim(
    "one-backward",
    "That is the gradient of the mean loss over the N·b judged samples, where images and "
    "feedback travel exactly",
)
@claim("big-batch", "the gradient of the generator is that of the big batch, to 10⁻⁶.")
def test_different_discriminators_in_training_give_the_gradient_of_the_mean_of_their_losses(
    num_workers: int, kappa: int, loss: str, tolerance: float
) -> None:
    workers = {10 * n: make_worker(n, generator_loss=loss) for n in range(1, num_workers + 1)}
    gradient = gradient_by_feedback(make_learner(), workers, kappa)

    parameters, samples = generated_with_graph(kappa)
    losses = []
    for index, n in enumerate(range(1, num_workers + 1)):
        model = make_worker(n).discriminator.model
        with RandomState(n + 2000, CPU).in_place():
            losses.append(GENERATOR_LOSSES[loss](model(samples[index % kappa])))
    wanted = torch.autograd.grad(torch.stack(losses).mean(), parameters)
    assert_close(gradient, wanted, tolerance)


@claim("kappa", "one forward pass for all, z ~ N(0, I), so that BatchNorm sees all of them.")
def test_generating_is_one_forward_pass_in_training_mode() -> None:
    learner = make_learner()
    notes = []
    learner.model.register_forward_pre_hook(lambda _, given: notes.append(given[0].shape))
    generated = learner.generate(3)
    assert notes == [(3 * BATCH_SIZE, Z_DIM)]
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
    learner = make_learner(model=generator)
    last = generator.get_parameter("4.weight").clone()
    learner.generate(1)
    learner.backward(images(0).unsqueeze(0))
    learner.step()
    assert same_bits(frozen, before)
    assert not torch.equal(generator.get_parameter("4.weight"), last)


def test_an_update_needs_a_generation_of_its_own() -> None:
    learner = make_learner()
    gradient = images(0).unsqueeze(0)
    with pytest.raises(AssertionError, match="comes after generate"):
        learner.backward(gradient)
    learner.generate(1)
    learner.backward(gradient)
    learner.step()
    with pytest.raises(AssertionError, match="comes after generate"):
        learner.backward(gradient)


# The worker's share.


def bits(worker: Worker) -> list[Tensor]:
    return all_bits(worker.discriminator.model, worker.discriminator.optimizer)


@pytest.mark.parametrize("loss", DISCRIMINATOR_LOSSES)
@pytest.mark.parametrize("local_steps", [1, 3])
@claim("own-draw", "Each of the L steps draws its own b")
def test_learning_is_the_textbook_discriminator_step(loss: str, local_steps: int) -> None:
    worker = make_worker(1, local_steps=local_steps, discriminator_loss=loss)
    model, data, random_state = make_model(1), RealData(1), RandomState(2001, CPU)
    optimizer, terms = adam(model), DISCRIMINATOR_LOSSES[loss]
    for iteration in range(4):
        told = worker.learn(Samples(images(iteration)))
        for _ in range(local_steps):
            with random_state.in_place():
                optimizer.zero_grad()
                total = terms.real(model(data.next_batch(BATCH_SIZE).images))
                total = total + terms.fake(model(images(iteration)))
                torch.autograd.backward(total)
                optimizer.step()
        assert same_bits(told, total)
        assert equal_bits(bits(worker), all_bits(model, optimizer))
    assert not torch.equal(model.get_parameter("1.weight"), make_model(1).get_parameter("1.weight"))
    assert not told.requires_grad


@pytest.mark.parametrize("local_steps", [1, 2])
def test_the_real_half_may_be_learnt_early_or_late(local_steps: int) -> None:
    late, early = (make_worker(1, local_steps=local_steps) for _ in range(2))
    for iteration in range(4):
        for _ in range(iteration):  # again and again is no more than once
            early.learn_real_half()
        answers = [
            (
                worker.learn(Samples(images(iteration))),
                *worker.feedback(Samples(images(iteration + 9))),
            )
            for worker in (late, early)
        ]
        assert equal_bits(list(answers[0]), list(answers[1]))
    assert equal_bits(bits(late), bits(early))


def test_working_does_not_touch_the_random_numbers_of_others() -> None:
    first, second = make_worker(1), make_worker(1)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    answer = (first.learn(Samples(images(0))), *first.feedback(Samples(images(1))))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert equal_bits(
        [second.learn(Samples(images(0))), *second.feedback(Samples(images(1)))], list(answer)
    )


@pytest.mark.parametrize("loss", GENERATOR_LOSSES)
@pytest.mark.usefixtures("double_precision")
def test_feedback_equals_finite_differences_with_dropout_and_batch_statistics(loss: str) -> None:
    worker = make_worker(1, generator_loss=loss)
    judged = images(0)
    feedback, told, _ = worker.feedback(Samples(judged))

    def generator_loss(batch: Tensor) -> Tensor:
        with torch.no_grad(), RandomState(2001, CPU).in_place():
            return GENERATOR_LOSSES[loss](make_model(1)(batch))

    step = 1e-6
    for place in range(0, judged.numel(), 3):
        nudge = torch.zeros(judged.numel())
        nudge[place] = step
        nudge = nudge.view(judged.shape)
        slope = (generator_loss(judged + nudge) - generator_loss(judged - nudge)) / (2 * step)
        torch.testing.assert_close(feedback.flatten()[place], slope, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(told, generator_loss(judged))
    assert feedback.abs().max() > 1e-3


def test_feedback_computes_no_gradient_of_parameters() -> None:
    worker = make_worker(1)
    parameters = list(worker.discriminator.model.parameters())
    feedback, loss, _ = worker.feedback(Samples(images(0)))
    assert all(parameter.grad is None for parameter in parameters)
    assert not feedback.requires_grad
    assert not loss.requires_grad

    worker.learn_real_half()
    before = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    weights = [parameter.detach().clone() for parameter in parameters]
    worker.feedback(Samples(images(1)))
    assert equal_bits([p.grad for p in parameters if p.grad is not None], before)
    assert equal_bits([p.detach() for p in parameters], weights)
    assert len(before) == len(parameters)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_outputs_are_the_logits_of_the_judged_samples(shape: tuple[int, ...]) -> None:
    worker = make_worker(1)
    worker.discriminator.model.register_forward_hook(lambda _m, _x, y: y.view(-1, *shape))
    outputs = worker.feedback(Samples(images(0))).outputs
    with RandomState(2001, CPU).in_place():
        logits = make_model(1)(images(0)).detach()
    assert logits.unique().numel() == BATCH_SIZE
    assert not outputs.requires_grad
    assert same_bits(outputs, logits.squeeze(1))


def test_learning_later_is_feedback_first_and_then_the_same_local_steps() -> None:
    worker, twin = (make_worker(1, local_steps=2) for _ in range(2))
    group = LearningLater({1: worker})
    for iteration in range(3):
        generated = Samples(torch.stack([images(iteration), images(iteration + 9)]))
        answers = group.answer(generated, {1: Assignment(judge=0, train=1)})
        twin.learn_real_half()
        loss = twin.real_loss
        judgement = twin.feedback(Samples(images(iteration)))
        assert same_bits(answers.feedbacks[1], judgement.feedback)
        assert same_bits(answers.losses[1][1], judgement.loss)
        assert answers.losses[1][0] > loss
        group.catch_up()
        twin.learn(Samples(images(iteration + 9)))
        assert equal_bits(bits(worker), bits(twin))
        group.catch_up()  # there is nothing left
        assert equal_bits(bits(worker), bits(twin))


def live_tensors(discriminator: Discriminator) -> dict[str, Tensor]:
    """Every tensor that a discriminator is made of, itself and not a copy."""
    model = dict(discriminator.model.state_dict(keep_vars=True))
    moments = {
        f"{name}/{key}": value
        for name, parameter in discriminator.model.named_parameters()
        for key, value in discriminator.optimizer.state[parameter].items()
    }
    return {**model, **moments}


def tiny() -> Discriminator:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    optimizer = adam(model)
    torch.autograd.backward(model(torch.randn(4, 3)).sum())
    optimizer.step()
    return Discriminator(model, optimizer)


def test_any_bit_anywhere_changes_the_digest() -> None:
    discriminator = tiny()
    digests = [discriminator.digest()]
    for tensor in live_tensors(discriminator).values():
        raw = tensor.detach().reshape(-1).view(torch.uint8)
        assert raw.data_ptr() == tensor.data_ptr()
        for place in range(0, len(raw), tensor.element_size()):
            raw[place] ^= 1
            digests.append(discriminator.digest())
            raw[place] ^= 1
    assert digests[0] == discriminator.digest()
    assert len(digests) == 1 + sum(t.numel() for t in live_tensors(discriminator).values())
    assert len(set(digests)) == len(digests)
