"""With every optimizer, stopping, resuming and swapping change no bit and leave nothing behind."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from mdgan.engine.message_sizes import state_bytes
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.model_state import optimizer_tensors
from mdgan.gan.optimizer_settings import Policy, RateSchedule
from mdgan.gan.optimizers import make_optimizer, training_bytes
from tests.unit.gan.small import HalfUsed, equal_bits, images, make_learner, make_model, same_bits
from tests.unit.gan.stateful import Run, make_worker, through_bytes
from tests.unit.gan.test_optimizers import B1, B2, NAMES, policy

ITERATIONS = 9
WINDOW = 5


def busy(name: str) -> Policy:
    """A policy with everything that a policy can have."""
    schedule = RateSchedule("cosine", 2, ITERATIONS)
    return policy(name, weight_decay=0.01, clip_norm=0.5, schedule=schedule)


def busy_worker(name: str, rank: int) -> Worker:
    return make_worker(rank, policy=busy(name))


def state_of(discriminator: Discriminator) -> dict[str, Tensor]:
    """As it travels."""
    state: dict[str, Tensor] = discriminator.state()
    return state


@pytest.mark.parametrize("name", NAMES)
def test_stopped_and_resumed_equals_never_stopped(name: str) -> None:
    """Before the first step, within a Lookahead window, at its end and after it."""
    learner = partial(make_learner, policy=busy(name))
    whole, broken = (Run(partial(busy_worker, name), learner, swaps=(3, 7)) for _ in range(2))
    for i in range(1, ITERATIONS + 1):
        if i in (1, 3, WINDOW, WINDOW + 1, 8):
            broken = broken.resumed()
        for run in (whole, broken):
            run.iterate(i)
    assert equal_bits(whole.bits(), broken.bits())


def trained(
    name: str,
    steps: int,
    build: Callable[[], nn.Module] = make_model,
    betas: tuple[float, float] = (B1, B2),
) -> Discriminator:
    model, chosen = build(), replace(busy(name), betas=betas)
    made = Discriminator(model, make_optimizer(model, chosen), chosen)
    for step in range(steps):
        made.optimizer.zero_grad()
        model(images(step)).sum().backward()
        made.at(step + 1)
        made.step()
    return made


def test_both_networks_step_with_gradients_of_the_norm_that_was_asked_for() -> None:
    chosen = Policy("sgd", 1.0, (0.0, 0.0), clip_norm=1e-3)
    learner, worker = make_learner(policy=chosen), make_worker(1, policy=chosen)
    generated = learner.generate(1)
    stepped = []
    for model, step in (
        (worker.discriminator.model, lambda: worker.learn(generated[0])),
        (learner.model, learner.step),
    ):
        learner.put_gradients([torch.ones_like(w) for w in learner.parameters])
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        step()
        after = nn.utils.parameters_to_vector(model.parameters()).detach()
        stepped.append(float((after - before).norm()))
    assert stepped == pytest.approx([1e-3, 1e-3], rel=1e-3)


@pytest.mark.parametrize("build", [make_model, HalfUsed])
@pytest.mark.parametrize("steps", [0, 1, WINDOW, 7])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_taken_over_whole(name: str, steps: int, build: Callable[[], nn.Module]) -> None:
    giver, taker = trained(name, steps, build), trained(name, 2, build)
    state = through_bytes(state_of(giver))
    taker.load_state(state)
    assert taker.digest() == giver.digest()
    assert taker.state().keys() == giver.state().keys()
    for tensor in state.values():
        tensor.zero_()
    assert taker.digest() == giver.digest(), "a copy"


@pytest.mark.parametrize("steps", [3, WINDOW])
@pytest.mark.parametrize("name", NAMES)
def test_limits_count_what_is_kept(name: str, steps: int) -> None:
    made = trained(name, steps)
    moments = optimizer_tensors(made.model, made.optimizer).values()
    weights = sum(p.nbytes for p in made.model.parameters())
    large = sum(tensor.nbytes for tensor in moments if tensor.dim())
    buffers = sum(b.nbytes for b in made.model.buffers())
    most = training_bytes((made.model, busy(name)))
    spare = weights if name.startswith("lookahead:") and steps == WINDOW else 0
    assert most == 2 * weights + buffers + large + spare
    assert state_bytes((made.model, busy(name))) > most


def without(key: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: [state.pop(name) for name in list(state) if name.endswith(key)]


DAMAGES: list[tuple[str, Callable[[dict[str, Tensor]], object]]] = [
    ("adabelief", without("1.weight.exp_avg")),
    ("lookahead:adam", without("..counter")),
    ("lookahead:adam", without("slow_params")),
    ("lookahead:adam", without("1.weight.slow_params")),
    ("lamb", lambda state: state.update({"optimizer..step": torch.tensor(-1)})),
    ("lamb", lambda state: state.update({"optimizer..step": torch.tensor(2.0)})),
    ("lamb", lambda state: state.update({"optimizer..step": torch.ones(2, dtype=torch.int64)})),
    ("lamb", lambda state: state.update({"optimizer..steps": torch.tensor(1)})),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_state_without_a_part_of_it_changes_nothing(
    name: str, damage: Callable[[dict[str, Tensor]], object]
) -> None:
    giver, taker = trained(name, 3), trained(name, 2)
    state, before = state_of(giver), taker.digest()
    damage(state)
    with pytest.raises((KeyError, RuntimeError)):
        taker.load_state(state)
    assert taker.digest() == before


@pytest.mark.parametrize("after", NAMES)
@pytest.mark.parametrize(
    ("before", "momentum"),
    [
        *((name, B1) for name in ("adam", "lookahead:sgd")),
        *(pytest.param(name, B1, marks=pytest.mark.slow) for name in NAMES),
        *((name, 0.0) for name in ("lars", "lookahead:lars", "lookahead:sgd")),
    ],
)
def test_a_run_may_go_on_with_another_optimizer(before: str, momentum: float, after: str) -> None:
    """Weights are taken over; the state too where both optimizers keep the same, else none.

    Without momentum there are no moments, only steps and windows.
    """
    giver, taker, another = (
        trained(name, steps, betas=(momentum, B2))
        for name, steps in ((before, 7), (after, 2), (after, 1))
    )
    taker.load_state(through_bytes(state_of(giver)))
    weights = zip(giver.model.parameters(), taker.model.parameters(), strict=True)
    assert all(same_bits(*pair) for pair in weights)
    moments = optimizer_tensors(taker.model, taker.optimizer)
    inner = {name.removeprefix("lookahead:") for name in (before, after)}
    if momentum and (len(inner) == 1 or inner == {"adam", "radam"}):
        given = optimizer_tensors(giver.model, giver.optimizer)
        assert moments.keys() <= given.keys()
        assert all(same_bits(tensor, given[name]) for name, tensor in moments.items())
        assert moments
    elif momentum:
        assert not moments
    taker.optimizer.zero_grad()
    taker.model(images(0)).sum().backward()
    taker.step()
    another.load_state(through_bytes(state_of(taker)))
    assert another.digest() == taker.digest()
