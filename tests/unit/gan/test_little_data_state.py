"""With penalties, spectral norm and the like, stopping, resuming and swapping change no bit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch

from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.augment import Augmentation
from mdgan.gan.regularizers.contract import Regularizer, Regularizers
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.gan.regularizers.r1 import R1
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from tests.claims.registry import claim
from tests.unit.gan import small, stateful
from tests.unit.gan.small import equal_bits, images
from tests.unit.gan.stateful import Run, assert_swapping_exchanges_shards

ITERATIONS = 6
WASSERSTEIN = {
    "discriminator_loss": DISCRIMINATOR_LOSSES["wasserstein"],
    "generator_loss": GENERATOR_LOSSES["wasserstein"],
}


class Case(NamedTuple):
    """Regularisers of a new learner, whether layers are normalised, and so on."""

    regularizers: Callable[[], list[Regularizer]]
    spectral_norm: bool = False
    local_steps: int = 1
    rules: Mapping[str, Any] = MappingProxyType({})


def quick_ada() -> Augmentation:
    """p rises by a third with every change, since almost any batch is above the target."""
    return Augmentation(target=-0.9, samples=60)


CASES = {
    "gradient penalty": Case(lambda: [GradientPenalty(10.0)], local_steps=2, rules=WASSERSTEIN),
    "ada": Case(lambda: [quick_ada()]),
    "ada and r1": Case(lambda: [quick_ada(), R1(1.0)], True, 2),
    "all but ada": Case(lambda: [Augmentation(), R1(1.0), GradientPenalty(1.0)], rules=WASSERSTEIN),
}
cases = pytest.mark.parametrize("name", CASES)


def make_worker(name: str, rank: int) -> Worker:
    case = CASES[name]
    with RandomState(0, small.CPU).in_place():
        model = small.make_model()
        if case.spectral_norm:
            add_spectral_norm(model)
    how: dict[str, Any] = {"local_steps": case.local_steps, "regularizers": case.regularizers()}
    worker = stateful.make_worker(rank, model=model, **how)
    worker.rules = replace(worker.rules, **case.rules)
    return worker


@cases
def test_stopped_and_resumed_equals_never_stopped(name: str) -> None:
    whole, broken, late = (
        Run(partial(make_worker, name), swaps=(2, 4), early=early) for early in (True, True, False)
    )
    for i in range(1, ITERATIONS + 1):
        if i in (1, 3, 4):
            broken = broken.resumed()
        for run in (whole, broken, late):
            run.iterate(i)
    assert equal_bits(whole.bits(), broken.bits())
    assert equal_bits(whole.bits(), late.bits())


@cases
@pytest.mark.parametrize("moves_moments", [True, False], ids=["all moves", "weights move"])
@claim(
    "swap-exchanges",
    "A swap of pairs gives the bits of exchanging the two shards, if both keep what they got.",
)
def test_swapping_equals_exchanging_the_shards(name: str, moves_moments: bool) -> None:
    assert_swapping_exchanges_shards(partial(make_worker, name), moves_moments=moves_moments)


def test_the_real_batch_is_forgotten_with_its_half() -> None:
    """It must not outlive the local step that it was drawn for."""
    worker = make_worker("gradient penalty", 1)
    worker.learn_real_half()
    worker.drop_real_half()
    with pytest.raises(AssertionError, match="the real half comes first"):
        worker.mixed(Samples(images(0)))
    worker.learn(Samples(images(0)))
    with pytest.raises(AssertionError, match="the real half comes first"):
        worker.mixed(Samples(images(0)))
    assert not any(name.startswith("real") for name in worker.state())


def p_of(worker: Worker) -> float:
    (augmentation,) = worker.regularizers.all
    assert isinstance(augmentation, Augmentation)
    return augmentation.p


def adapted(steps: int) -> Worker:
    worker = make_worker("ada", 1)
    for i in range(steps):
        worker.learn(Samples(images(i)))
    return worker


@pytest.mark.parametrize("steps", [0, 3, 4, 6])
def test_what_ada_knows_is_kept_with_the_worker_and_does_not_move(steps: int) -> None:
    worker, other = adapted(steps), make_worker("ada", 2)
    assert (p_of(worker) > 0) is (steps >= 4)
    other.take(worker.discriminator.state())
    assert p_of(other) == 0
    assert other.load_state(stateful.through_bytes(worker.state()))
    assert p_of(other) == p_of(worker)


def test_a_run_may_go_on_with_and_without_ada() -> None:
    plain, worker = stateful.make_worker(1), adapted(4)
    assert plain.load_state(worker.state())
    assert worker.load_state(plain.state())
    assert p_of(worker) == 0


def test_with_another_shard_ada_stays_as_it_is() -> None:
    worker, smaller = adapted(4), stateful.make_worker(1, shard_size=7)
    smaller.regularizers = Regularizers([quick_ada()])
    assert not smaller.load_state(worker.state())
    assert p_of(smaller) == 0


@pytest.mark.parametrize(
    "numbers", [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 4], [float("nan"), 0, 0, 0], [0, 0, 0]]
)
def test_a_state_that_cannot_be_is_refused(numbers: list[float]) -> None:
    worker = adapted(5)
    before = worker.state()
    state = {**before, "augmentation.adaptive": torch.tensor(numbers, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="adaptive is"):
        worker.load_state(state)
    with pytest.raises(KeyError):
        worker.load_state({**before, "augmentation.more": torch.zeros(1)})
