"""Each optimizer against its paper's formula, written here again in float64."""

from collections.abc import Callable, Iterator
from math import cos, pi, sqrt

import pytest
import torch
from torch import Tensor, nn

from mdgan.gan.discriminator import Discriminator
from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS, Policy, RateSchedule
from mdgan.gan.optimizers import TrainedModel, kept_by, make_optimizer, weights_replaced
from tests.unit.gan.small import all_bits, equal_bits, make_generator

LR, B1, B2, EPS = 0.03, 0.6, 0.9, 1e-8
STEPS = 13
Formula = Callable[[Tensor, Callable[[], Tensor], float], Iterator[None]]


def adam(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """Kingma and Ba 2015, Algorithm 1."""
    m, v, t = torch.zeros_like(w), torch.zeros_like(w), 0
    while True:
        g, t = gradient() + decay * w, t + 1
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        w -= LR * m / (1 - B1**t) / ((v / (1 - B2**t)).sqrt() + EPS)
        yield


def radam(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """Liu et al. 2020, Algorithm 2; torch rectifies from ρ > 5 on, the paper from ρ > 4."""
    m, v, t, most = torch.zeros_like(w), torch.zeros_like(w), 0, 2 / (1 - B2) - 1
    while True:
        g, t = gradient() + decay * w, t + 1
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        rho, step = most - 2 * t * B2**t / (1 - B2**t), m / (1 - B1**t)
        if rho > 5:
            r = sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
            step = step * r * sqrt(1 - B2**t) / (v.sqrt() + EPS)
        w -= LR * step
        yield


def adabelief(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """Zhuang et al. 2020, Algorithm 2; weights decay apart from the gradient."""
    m, s, t = torch.zeros_like(w), torch.zeros_like(w), 0
    while True:
        g, t = gradient(), t + 1
        w *= 1 - LR * decay
        m = B1 * m + (1 - B1) * g
        s = B2 * s + (1 - B2) * (g - m) ** 2 + EPS
        w -= LR * m / (1 - B1**t) / ((s / (1 - B2**t)).sqrt() + EPS)
        yield


def lars(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """You et al. 2017, Algorithm 1 with η = 0.001; vectors are not scaled and do not decay."""
    v = torch.zeros_like(w)
    while True:
        g = gradient()
        if w.dim() > 1:
            g = 1e-3 * w.norm() / (g.norm() + decay * w.norm()) * (g + decay * w)
        v = B1 * v + LR * g
        w -= v
        yield


def lamb(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """You et al. 2020, Algorithm 2 in version 3, without bias correction; φ(z) = min(z, 10)."""
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    while True:
        g = gradient()
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        r = m / (v.sqrt() + EPS) + decay * w
        w -= LR * w.norm().clamp(max=10) / r.norm() * r
        yield


def sgd(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
    """Sutskever et al. 2013, section 2, with the rate outside the momentum."""
    v = torch.zeros_like(w)
    while True:
        v = B1 * v + gradient() + decay * w
        w -= LR * v
        yield


def lookahead(formula: Formula) -> Formula:
    """Zhang et al. 2019, Algorithm 1 with k = 5 and α = 0.5."""

    def steps(w: Tensor, gradient: Callable[[], Tensor], decay: float) -> Iterator[None]:
        inner = formula(w, gradient, decay)
        while True:
            slow = w.clone()
            for left in (4, 3, 2, 1, 0):
                next(inner)
                if not left:
                    w.copy_(slow + 0.5 * (w - slow))
                yield

    return steps


FORMULAS: dict[str, Formula] = {f.__name__: f for f in (adam, radam, adabelief, lars, lamb, sgd)}
FORMULAS |= {LOOKAHEAD + name: lookahead(formula) for name, formula in FORMULAS.items()}
NAMES = tuple(FORMULAS)


def policy(name: str, **changes: object) -> Policy:
    return Policy(name, LR, (B1, B2), **changes)  # type: ignore[arg-type]


def test_every_optimizer_has_its_formula() -> None:
    assert set(NAMES) == {*OPTIMIZERS, *(LOOKAHEAD + name for name in OPTIMIZERS)}


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_its_steps_are_those_of_the_paper(name: str, decay: float) -> None:
    model = nn.Linear(4, 3, dtype=torch.float64)
    with torch.no_grad():
        model.weight.mul_(20)  # so that LAMB's φ matters
    with_epsilon = {} if name.endswith(("lars", "sgd")) else {"epsilon": EPS}
    optimizer = make_optimizer(model, policy(name, weight_decay=decay, **with_epsilon))
    random = torch.Generator().manual_seed(3)
    shapes = [parameter.shape for parameter in model.parameters()]
    gradients = [
        [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        for _ in range(STEPS)
    ]
    expected = []
    for place, parameter in enumerate(model.parameters()):
        w, mine = parameter.detach().clone(), iter([g[place].clone() for g in gradients])
        steps = FORMULAS[name](w, lambda mine=mine: next(mine), decay)  # type: ignore[misc]
        expected.append([(next(steps), w.clone())[1] for _ in range(STEPS)])
    for step in range(STEPS):
        for parameter, gradient in zip(model.parameters(), gradients[step], strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        for place, parameter in enumerate(model.parameters()):
            wanted = expected[place][step]
            torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_steps_within_training_are_those_of_the_optimizer_to_the_last_bit(name: str) -> None:
    """Also where a parameter has no gradient for a while, and where the state was loaded."""
    chosen = policy(name, weight_decay=0.3, schedule=RateSchedule("cosine", 0, STEPS))
    models = [make_generator(), make_generator()]
    theirs, ours = (make_optimizer(model, chosen) for model in models)
    network = Discriminator(models[1], ours, chosen)
    random = torch.Generator().manual_seed(3)
    for step in range(1, STEPS + 1):
        for place, (one, other) in enumerate(
            zip(models[0].parameters(), models[1].parameters(), strict=True)
        ):
            gradient = torch.randn(one.shape, generator=random)
            has_none = place == 1 and step in (1, 5) and chosen.inner == "adam"
            one.grad, other.grad = (None, None) if has_none else (gradient, gradient.clone())
        TrainedModel(models[0], theirs, chosen).at(step)
        theirs.step()
        network.at(step)
        network.step()
        if step == STEPS // 2:
            network.load_state(network.state())
        assert equal_bits(all_bits(models[0], theirs), all_bits(models[1], ours))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((2, 4), 1.0 + step)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("momentum", [0.0, B1])
@pytest.mark.parametrize("name", NAMES)
def test_what_it_keeps_is_known_beforehand(name: str, momentum: float) -> None:
    """By which messages are limited and plans count memory."""
    model, chosen = nn.Linear(4, 3), Policy(name, LR, (momentum, B2))
    optimizer = make_optimizer(model, chosen)
    train(model, optimizer, 3)
    states = [optimizer.state]
    if chosen.looks_ahead:
        states.append(optimizer.optimizer.state)  # type: ignore[attr-defined]
    kept = kept_by(chosen)
    for parameter in model.parameters():
        results = {key: value for state in states for key, value in state[parameter].items()}
        assert {k for k, v in results.items() if v.shape == parameter.shape} == set(kept.moments)
        assert {k for k, v in results.items() if v.shape == ()} == set(kept.numbers)
        assert results.keys() == kept.names
    assert ("step" in optimizer.param_groups[0]) == kept.counts_steps


def test_a_window_begins_with_the_weights_that_were_loaded() -> None:
    """As with another run's generator: the weights of the seed pull nothing back."""
    model = nn.Linear(4, 3)
    optimizer = make_optimizer(model, policy("lookahead:sgd"))
    loaded = {name: tensor + 5 for name, tensor in model.state_dict().items()}
    model.load_state_dict(loaded)
    train(model, optimizer, 1)
    slow = [optimizer.state[parameter]["slow_params"] for parameter in model.parameters()]
    assert all(torch.equal(*pair) for pair in zip(slow, loaded.values(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_others_replace_begin_a_window_and_leave_moments(name: str) -> None:
    model = nn.Linear(4, 3)
    optimizer = make_optimizer(model, policy(name))
    train(model, optimizer, 3)
    inner = getattr(optimizer, "optimizer", optimizer)
    before = {p: dict(inner.state[p]) for p in model.parameters()}
    weights_replaced(optimizer)
    assert all(inner.state[p].keys() == kept.keys() for p, kept in before.items())
    assert optimizer.param_groups[0].get("counter", 0) == 0
    assert inner is optimizer or not optimizer.state


@pytest.mark.parametrize("name", ["adam", "lookahead:lamb"])
def test_the_rate_is_that_of_the_iteration_alone(name: str) -> None:
    chosen = policy(name, schedule=RateSchedule("linear", 0, 10))
    model = nn.Linear(4, 3)
    optimizer = make_optimizer(model, chosen)
    rates = []
    for iteration in (10, 1, 6, 6):
        TrainedModel(model, optimizer, chosen).at(iteration)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1 * LR, LR, 0.5 * LR, 0.5 * LR])


def test_a_rate_by_its_formula() -> None:
    assert RateSchedule("constant", 2, 10).factor(7) == 1.0
    linear, cosine = (RateSchedule(shape, 2, 10) for shape in ("linear", "cosine"))
    assert [linear.factor(i) for i in (1, 2)] == [0.5, 1.0]
    for done in range(8):
        assert linear.factor(3 + done) == pytest.approx(1 - done / 8)
        assert cosine.factor(3 + done) == pytest.approx((1 + cos(pi * done / 8)) / 2)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 10, 20])
def test_beyond_the_end_there_is_nothing_left(shape: str, warmup: int) -> None:
    schedule = RateSchedule(shape, warmup, 10)
    assert schedule.factor(max(warmup, 10) + 10) == pytest.approx(0)
    assert schedule.factor(-3) == schedule.factor(1)
