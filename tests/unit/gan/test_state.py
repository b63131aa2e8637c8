"""Stopping anywhere and resuming from bytes gives the bits of a run that never stopped."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.families.mdgan.algorithm import GeneratorLearner, assign, mean_feedback
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.losses import GENERATOR_LOSSES
from mdgan.gan.model_state import part_of
from mdgan.gan.randomness import RandomState
from mdgan.gan.settings import resolve_kappa
from tests.marks import examples
from tests.unit.gan import small
from tests.unit.gan.small import CPU, adam, all_bits, equal_bits, images, make_learner, same_bits
from tests.unit.gan.stateful import (
    SHARD_SIZE,
    Run,
    bits_of,
    make_standalone,
    make_worker,
    through_bytes,
)


def make_run(kappa: int = 2, local_steps: int = 1) -> Run:
    def make(rank: int) -> Worker:
        return make_worker(rank, local_steps=local_steps)

    return Run(make, kappa=kappa, swaps=(2, 5))


@settings(deadline=None, max_examples=examples(4))
@given(
    kappa=st.integers(1, 3),
    local_steps=st.integers(1, 3),
    halves_early=st.lists(st.booleans(), min_size=8, max_size=8),
    stops=st.sets(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=4),
)
def test_stopped_and_resumed_equals_never_stopped(
    kappa: int, local_steps: int, halves_early: list[bool], stops: set[tuple[int, bool]]
) -> None:
    whole, broken = make_run(kappa, local_steps), make_run(kappa, local_steps)
    for iteration in range(8):
        if (iteration, False) in stops:
            broken = broken.resumed()
        for run in (whole, broken):
            if halves_early[iteration]:
                run.learn_real_halves()
        if (iteration, True) in stops:  # with the real half of the next gradient learnt, or not
            broken = broken.resumed()
        for run in (whole, broken):
            run.iterate(iteration)
    assert equal_bits(whole.bits(), broken.bits())


@pytest.mark.parametrize("local_steps", [1, 2])
def test_a_pending_real_half_is_learnt_again_and_its_gradient_stays_here(local_steps: int) -> None:
    worker = make_worker(1, local_steps=local_steps)
    worker.learn(Samples(images(0)))
    before = worker.state()
    worker.learn_real_half()
    pending = worker.state()
    assert pending.keys() == before.keys()
    assert all(same_bits(pending[name], before[name]) for name in before)
    assert {name.partition(".")[0] for name in pending} == {"discriminator", "random", "shard"}


def assert_alike(first: Worker, second: Worker) -> None:
    """Two workers answer alike, and are alike then."""
    answers = [
        [
            worker.learn(Samples(images(2))),
            *worker.feedback(Samples(images(3))),
            worker.learn(Samples(images(4))),
        ]
        for worker in (first, second)
    ]
    assert equal_bits(*answers)
    assert equal_bits(bits_of(first), bits_of(second))


@pytest.mark.parametrize("pending", [False, True])
def test_a_discriminator_can_be_taken_over_at_any_time(pending: bool) -> None:
    """With the next real half learnt already, nothing of it is left."""
    early, late, giver = make_worker(1), make_worker(1), make_worker(2)
    for worker in (early, late, giver, giver):
        worker.learn(Samples(images(1)))
    state = giver.discriminator.state()
    if pending:
        early.learn_real_half()
    early.take(state)
    late.take(state)
    assert early.discriminator.digest() == giver.discriminator.digest()
    assert_alike(early, late)


def test_a_discriminator_that_does_not_fit_leaves_the_pending_half() -> None:
    disturbed, calm = make_worker(1), make_worker(1)
    for worker in (disturbed, calm):
        worker.learn_real_half()
    state = part_of(make_worker(2).state(), "discriminator.")
    del state["model.1.weight"]
    with pytest.raises(KeyError):
        disturbed.take(state)
    assert_alike(disturbed, calm)


def _spoilt(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], object]:
    def damage(state: dict[str, Tensor]) -> None:
        state[name] = change(state[name])

    return damage


Damages = dict[str, Callable[[dict[str, Tensor]], object]]

WORKER_DAMAGES: Damages = {
    "no weight": lambda state: state.pop("discriminator.model.1.weight"),
    "no moment": lambda state: state.pop("discriminator.optimizer.1.weight.exp_avg"),
    "a foreign tensor": lambda state: state.update(other=torch.zeros(1)),
    "another weight": _spoilt("discriminator.model.5.weight", lambda t: t[:, :5]),
    "weights of another type": _spoilt("discriminator.model.5.weight", lambda t: t.double()),
    "a short moment": _spoilt("discriminator.optimizer.5.weight.exp_avg", lambda t: t[:, :5]),
    "two counts": _spoilt("discriminator.model.2.num_batches_tracked", lambda t: t.repeat(2)),
    "whole moments": _spoilt("discriminator.optimizer.5.weight.exp_avg", lambda t: t.long()),
    "no random state": lambda state: state.pop("random.cpu"),
    "a foreign random state": lambda state: state.update({"random.tpu": torch.zeros(1)}),
    "a short random state": _spoilt("random.cpu", lambda t: t[:-1]),
    "impossible random numbers": _spoilt("random.cpu", lambda t: t.clone().fill_(255)),
    "no place in the shard": lambda state: state.pop("shard.left"),
    "a short shuffler": _spoilt("shard.generator", lambda t: t[:-1]),
}


@pytest.mark.parametrize("name", WORKER_DAMAGES)
def test_a_worker_state_that_does_not_fit_changes_nothing(name: str) -> None:
    disturbed, calm, other = make_worker(1), make_worker(1), make_worker(2)
    for worker in (disturbed, calm, other, other):
        worker.learn(Samples(images(0)))
        worker.learn_real_half()
    state = other.state()
    WORKER_DAMAGES[name](state)
    with pytest.raises((KeyError, RuntimeError)):
        disturbed.load_state(state)
    assert_alike(disturbed, calm)


GENERATOR_DAMAGES: Damages = {
    "no weight": lambda state: state.pop("generator.0.weight"),
    "no moment": lambda state: state.pop("optimizer.0.weight.exp_avg"),
    "a foreign tensor": lambda state: state.update(other=torch.zeros(1)),
    "another buffer": _spoilt("generator.1.running_mean", lambda t: t[:5]),
    "no noise": lambda state: state.pop("noise"),
    "no random state": lambda state: state.pop("random.cpu"),
    "short noise": _spoilt("noise", lambda t: t[:-1]),
}


@pytest.mark.parametrize("name", GENERATOR_DAMAGES)
def test_a_generator_state_that_does_not_fit_is_refused(name: str) -> None:
    disturbed, calm, other = make_learner(), make_learner(), make_learner(5)
    for learner in (disturbed, calm, other, other):
        learn_once(learner)
    state = other.state()
    GENERATOR_DAMAGES[name](state)
    with pytest.raises((KeyError, RuntimeError)):
        disturbed.load_state(state)
    if name not in ("no noise", "no random state", "short noise"):
        assert same_bits(disturbed.generate(2).images, calm.generate(2).images)
        assert all(same_bits(disturbed.state()[name], calm.state()[name]) for name in calm.state())


def learn_once(learner: GeneratorLearner) -> None:
    learner.backward(learner.generate(2).images * 0.1)
    learner.step()


def test_loading_drops_what_was_generated_and_not_learnt_from() -> None:
    learner, reference = make_learner(), make_learner()
    state = learner.state()
    learner.generate(2)
    learner.load_state(state)
    assert same_bits(learner.generate(2).images, reference.generate(2).images)


@torch.no_grad()
def spoil(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.add_(1)


def test_states_share_no_memory_with_who_gave_or_took_them() -> None:
    run = make_run()
    run.iterate(0)
    run.learn_real_halves()
    for learner, other in ((run.learner, make_learner()), (run.workers[1], make_worker(1))):
        state = learner.state()
        before = {name: tensor.clone() for name, tensor in state.items()}
        other.load_state(state)
        spoil(list(state.values()))
        for owner in (learner, other):
            again = owner.state()
            assert all(same_bits(again[name], before[name]) for name in before)


def test_a_worker_with_other_data_goes_on_with_the_same_discriminator() -> None:
    old = make_worker(1)
    for iteration in range(3):
        old.learn(Samples(images(iteration)))
    moved, untouched = make_worker(1, shard_size=20), make_worker(1, shard_size=20)
    assert not moved.load_state(old.state())
    assert moved.discriminator.digest() == old.discriminator.digest()
    assert same_bits(moved.random_state.tensors()["cpu"], old.random_state.tensors()["cpu"])
    assert same_bits(moved.batches.next_batch(7).images, untouched.batches.next_batch(7).images)


def test_a_frozen_parameter_and_a_shared_buffer_come_back() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.BatchNorm1d(16)
            self.second = self.first
            self.head = nn.Linear(16, 1)
            self.head.bias.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.head(self.second(x.flatten(1)))
            return result

    def make() -> Worker:
        worker = make_worker(1)
        with RandomState(3, CPU).in_place():
            model = Shared()
        worker.discriminator = Discriminator(model, adam(model))
        return worker

    whole, resumed = make(), make()
    whole.learn(Samples(images(0)))
    whole.learn_real_half()
    assert resumed.load_state(through_bytes(whole.state()))
    assert same_bits(whole.learn(Samples(images(1))), resumed.learn(Samples(images(1))))
    for name, tensor in whole.discriminator.model.state_dict().items():
        assert same_bits(tensor, resumed.discriminator.model.state_dict()[name])


def test_moments_are_laid_out_as_their_weights() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = adam(model)
    torch.autograd.backward(model(torch.randn(2, 3, 5, 5)).sum())
    optimizer.step()
    discriminator = Discriminator(model, optimizer)
    before = discriminator.digest()
    state = part_of(discriminator.state(), "")
    discriminator.load_state({name: tensor.contiguous() for name, tensor in state.items()})
    assert discriminator.digest() == before
    assert optimizer.state[model.weight]["exp_avg"].stride() == model.weight.stride()


@pytest.mark.parametrize("ending", [".exp_avg_sq", ".step"])
def test_a_discriminator_whose_roots_would_be_nan_is_not_taken(ending: str) -> None:
    giver, taker = make_worker(1), make_worker(2)
    giver.learn(Samples(images(1)))
    given: dict[str, Tensor] = giver.discriminator.state()
    own = taker.discriminator.digest()
    lies = {name: -tensor - 1 for name, tensor in given.items() if name.endswith(ending)}
    assert lies
    with pytest.raises(RuntimeError, match="NaN"):
        taker.take({**given, **lies})
    assert taker.discriminator.digest() == own
    taker.take(given)
    assert taker.discriminator.digest() == giver.discriminator.digest()


def standalone(data_size: int = SHARD_SIZE) -> LocalGAN:
    return make_standalone(make_worker(1, local_steps=2, shard_size=data_size))


@pytest.mark.parametrize("stop", [0, 4])
def test_a_standalone_run_resumes_too(stop: int) -> None:
    whole, broken = standalone(), standalone()
    told: list[list[Tensor]] = [[], []]
    for iteration in range(6):
        if iteration == stop:
            state = through_bytes(broken.state())
            broken = standalone()
            assert broken.load_state(state)
        for losses, gan in zip(told, (whole, broken), strict=True):
            losses += gan.step()
    assert equal_bits(*told)
    assert all(same_bits(whole.state()[name], broken.state()[name]) for name in whole.state())


def test_a_standalone_state_of_another_model_changes_nothing() -> None:
    disturbed, calm, other = standalone(), standalone(), standalone()
    other.step()
    state = other.state()
    del state["generator.0.weight"]
    with pytest.raises(KeyError):
        disturbed.load_state(state)
    assert equal_bits(list(disturbed.step()), list(calm.step()))
    assert not standalone(data_size=20).load_state(other.state())


# A GAN that trains alone equals MD-GAN with one worker.


ITERATIONS = 10


def run_standalone(kappa: int, local_steps: int, loss: str) -> tuple[list[Tensor], list[Tensor]]:
    """The losses of every iteration, and everything that there is in the end."""
    worker = small.make_worker(1, local_steps=local_steps, generator_loss=loss)
    gan = make_standalone(worker, kappa)
    losses = [loss for _ in range(ITERATIONS) for loss in gan.step()]
    discriminator = worker.discriminator
    bits = all_bits(gan.generator, gan.trained.optimizer)
    return losses, bits + all_bits(discriminator.model, discriminator.optimizer)


def run_mdgan(kappa: int, local_steps: int, loss: str) -> tuple[list[Tensor], list[Tensor]]:
    """The same of MD-GAN with one worker, called as the server and the host call it."""
    learner = make_learner()
    worker = small.make_worker(1, local_steps=local_steps, generator_loss=loss)
    losses: list[Tensor] = []
    worker.learn_real_half()
    for iteration in range(1, ITERATIONS + 1):
        generated = learner.generate(kappa)
        assignment = assign([1], kappa)
        discriminator_loss = worker.learn(generated[assignment[1].train])
        feedback, generator_loss, _ = worker.feedback(generated[assignment[1].judge])
        if iteration < ITERATIONS:
            worker.learn_real_half()
        learner.backward(mean_feedback({1: feedback}, assignment, kappa))
        learner.step()
        losses += [discriminator_loss, generator_loss]
    discriminator = worker.discriminator
    bits = all_bits(learner.model, learner.optimizer)
    return losses, bits + all_bits(discriminator.model, discriminator.optimizer)


@pytest.mark.parametrize("loss", GENERATOR_LOSSES)
@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("kappa", ["auto", 1])
def test_standalone_equals_mdgan_with_one_worker_bit_for_bit(
    kappa: int | str, local_steps: int, loss: str
) -> None:
    torch.manual_seed(1)
    alone = run_standalone(resolve_kappa(kappa, 1), local_steps, loss)
    torch.manual_seed(2)
    distributed = run_mdgan(resolve_kappa(kappa, 1), local_steps, loss)
    assert equal_bits(alone[0], distributed[0])
    assert equal_bits(alone[1], distributed[1])
    assert len(alone[0]) == 2 * ITERATIONS
    assert all(not same_bits(one, other) for one, other in pairwise(alone[0]))
