"""Canaries: what they show of right noise, and of wrong noise."""

import json
import secrets
from collections.abc import Callable
from math import floor, log2, pi
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mdgan.audit.bound import Game, bound
from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples
from mdgan.gan.regularizers.contract import Regularizers
from mdgan.privacy import canaries as canaries_module
from mdgan.privacy import real_half
from mdgan.privacy.budget import make_half, open_budget
from mdgan.privacy.canaries import Canaries, Planted, most_canaries, read_watched, width_of
from mdgan.privacy.contents import Contents
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.random_stream import step_key
from mdgan.records.audit import Bound
from tests.claims.registry import claim
from tests.unit.privacy.halves import make_shard, make_worker, real_gradient

NUM_WEIGHTS = 20_001

Noise = Callable[[np.random.Generator, int], Tensor]
"""N(0, 1), or what is taken for it, [n]."""


def gaussian(random: np.random.Generator, count: int) -> Tensor:
    return torch.from_numpy(random.standard_normal(count))


def on_rays(bits: int, *, adjacent: bool = False, single: bool = False) -> Noise:
    """Box and Muller 1958, with angles of a few bits; pairs half a vector apart, or neighbours."""

    def draw(random: np.random.Generator, count: int) -> Tensor:
        half = -(-count // 2)
        radius = np.sqrt(-2 * np.log(1 - random.random(half)))
        angle = random.integers(0, 1 << bits, half) * (2 * pi / (1 << bits))
        if single:  # as 4088b5e computed it
            radius, angle = radius.astype(np.float32), angle.astype(np.float32)
        both = torch.from_numpy(np.stack([radius * np.cos(angle), radius * np.sin(angle)]))
        return (both.T if adjacent else both).reshape(-1)[:count].double()

    return draw


def on_lattice(bits: int) -> Noise:
    return lambda random, count: (gaussian(random, count) * 2**bits).round() / 2**bits


def by_inversion(bits: int) -> Noise:
    """The inverse of Φ at uniform numbers of a few bits."""

    def draw(random: np.random.Generator, count: int) -> Tensor:
        uniform = (torch.from_numpy(random.integers(0, 1 << bits, count)) + 0.5) / (1 << bits)
        found: Tensor = torch.special.ndtri(uniform)
        return found

    return draw


def few_digits(random: np.random.Generator, count: int) -> Tensor:
    """With mantissas of 10 bits."""
    return gaussian(random, count).half().double()


def gradients(number: int, rate: float, clip: float, noise: float) -> Canaries:
    """Canaries of which none is a planted sample."""
    return Canaries(number, rate, clip, noise, num_planted=0)


def audited(
    noise: Noise,
    sigma: float,
    rate: float,
    steps: int,
    *,
    clip: float = 1.0,
    number: int = 400,
    lattice: float = 0.0,
    seed: int = 0,
    share: int = 50,
) -> Bound:
    """Plays steps of DP-SGD, which release single-precision gradients, and bounds their ε."""
    canaries = Canaries(number, rate, clip, sigma, num_planted=0)
    random = np.random.default_rng(seed)
    for step in range(steps):
        others = torch.from_numpy(random.standard_normal(NUM_WEIGHTS)).mul(0.3).float().double()
        drawn = noise(random, NUM_WEIGHTS) * sigma * clip
        total = others.clone()
        canaries.add_to(total, step_key(b"draws", step, str(seed)))
        if lattice:
            total, drawn = (torch.round(each / lattice) * lattice for each in (total, drawn))
        canaries.watch(((total + drawn) / share).float().double() * share, others)
        canaries.taken()
    found = canaries.watched
    assert found.steps == steps
    return bound([Game("gradients", found.coins, found.scores)], 1e-5, 0.0)


SMALL = 0.8
"""Far above the ε of these few steps, 0.2 at most, and far below what noise on a grid gives."""


@pytest.fixture
def same_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in each run of the tests."""
    monkeypatch.setattr(secrets, "randbits", Random(0).getrandbits)


@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize(
    ("noise", "sigma", "rate", "steps"),
    [
        (on_rays(24, single=True), 200.0, 1.0, 4),
        pytest.param(*(on_rays(24, single=True), 20.0, 0.18, 40), marks=pytest.mark.slow),
        pytest.param(*(on_rays(8), 200.0, 1.0, 4), marks=pytest.mark.slow),
        pytest.param(*(on_rays(20), 20.0, 0.18, 40), marks=pytest.mark.slow),
        pytest.param(*(on_rays(16, adjacent=True), 200.0, 1.0, 4), marks=pytest.mark.slow),
        (on_lattice(12), 200.0, 1.0, 4),
        pytest.param(*(on_lattice(8), 20.0, 0.18, 40), marks=pytest.mark.slow),
        (by_inversion(16), 200.0, 1.0, 4),
        (few_digits, 200.0, 1.0, 4),
    ],
)
def test_noise_on_a_grid_is_caught_whatever_its_deviation(
    noise: Noise, sigma: float, rate: float, steps: int
) -> None:
    assert audited(noise, sigma, rate, steps, clip=0.7).epsilon > SMALL


@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize(
    ("sigma", "rate", "steps"),
    [(200.0, 1.0, 4), pytest.param(20.0, 0.18, 40, marks=pytest.mark.slow)],
)
def test_gaussian_noise_is_not_accused(sigma: float, rate: float, steps: int) -> None:
    lattice = 2.0 ** floor(log2(sigma * 2**-16))
    for clip in (1.0, 0.7):
        assert audited(gaussian, sigma, rate, steps, clip=clip).epsilon < SMALL
        assert audited(gaussian, sigma, rate, steps, clip=clip, lattice=lattice).epsilon < SMALL


@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize("lattice", [0.0, 2.0**-16])
def test_a_grid_that_sums_are_rounded_to_costs_no_power(lattice: float) -> None:
    outcome = audited(gaussian, 1.0, 0.2, 60, lattice=lattice, number=600)
    assert outcome.epsilon > 1.5, "ε is about 11 by Opacus"
    assert outcome.right < outcome.guesses


def test_canaries_are_as_large_as_a_sample_may_be_and_on_weights_of_their_own() -> None:
    total = torch.zeros(1001, dtype=torch.float64)
    canaries = gradients(60, 1.0, 3.0, 1.0)
    canaries.add_to(total, step_key(b"a secret", 0, "canaries"))
    included = sum(canaries.watched.coins)
    assert float(total.square().sum()) == pytest.approx(included * 9)
    most = most_canaries(1001)
    assert width_of(most, 1001) > 0
    assert width_of(most + 1, 1001) == 0
    pairs = torch.stack([total[:500], total[501:]])
    assert pairs[:, 60 * width_of(60, 1001) :].abs().sum() == 0
    again = torch.zeros(1001, dtype=torch.float64)
    canaries.add_to(again, step_key(b"a secret", 1, "canaries"))
    assert not again.equal(total), "their signs change, so that they pull nowhere"
    assert again.abs().equal(total.abs())


@claim("bound", "each of which a worker uses or not by a secret coin.")
def test_each_step_draws_an_included_canary_as_a_sample() -> None:
    canaries, drawn = gradients(100, 0.2, 1.0, 1.0), 0.0
    for step in range(400):
        total = torch.zeros(2000, dtype=torch.float64)
        canaries.add_to(total, step_key(b"a secret", step, "canaries"))
        drawn += float(total.square().sum())
    expected = 400 * 0.2 * sum(canaries.watched.coins)
    assert drawn == pytest.approx(expected, abs=5 * expected**0.5)


def test_a_step_that_is_undone_counts_nothing() -> None:
    canaries = gradients(40, 1.0, 1.0, 1.0)
    total = torch.zeros(2000, dtype=torch.float64)
    canaries.watch(total, total)
    canaries.watch(total, total)
    assert canaries.watched.steps == 0
    assert set(canaries.watched.scores) == {0.0}
    canaries.taken()
    canaries.taken()
    assert canaries.watched.steps == 1
    canaries.watch(total + torch.inf, total)
    canaries.taken()
    assert np.isfinite(canaries.watched.scores).all()


def test_coins_and_scores_survive_a_process_and_are_readable_by_their_owner_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "canaries" / "1.json"
    first = gradients(40, 1.0, 1.0, 1.0)
    first.open(path)
    assert path.stat().st_mode & 0o077 == 0
    total = torch.zeros(2000, dtype=torch.float64)
    for _ in range(70):
        first.watch(total, total)
        first.taken()
    watched = read_watched(path)
    assert watched is not None
    assert watched.steps == 64, "a process that is killed loses few"
    first.close()
    second = gradients(40, 1.0, 1.0, 1.0)
    second.open(path)
    assert second.watched == first.watched
    assert second.watched.steps == 70
    with pytest.raises(BadInput, match=r"--audit-canaries 41: the run began with 40"):
        gradients(41, 1.0, 1.0, 1.0).open(path)
    for text in ("{", "[]", json.dumps({"coins": [True], "scores": []}), '{"coins": [1]}'):
        path.write_text(text)
        with pytest.raises(BadInput, match="damaged"):
            gradients(40, 1.0, 1.0, 1.0).open(path)


@claim("bound", "each of which a worker uses or not by a secret coin.")
def test_coins_do_not_depend_on_the_seed_and_are_in_no_state_of_a_worker(tmp_path: Path) -> None:
    values = {"dp_noise": 2.0, "dp_delta": 1e-3, "batch_size": 5, "audit_canaries": 64}
    settings, shard, coins = MDGANSettings.read(values), make_shard(20), set()
    for _ in range(20):
        budget = open_budget(1, 20, settings, tmp_path, lambda: Contents.of(shard))
        assert budget is not None
        assert budget.canaries is not None
        half = make_half(shard, 1, settings, budget)
        assert half is not None
        assert set(half.state()) == {"size"}
        coins.add(tuple(budget.canaries.watched.coins))
        budget.close()
    assert len(coins) == 20


@pytest.mark.usefixtures("same_coins")  # others could all be 0: nothing would be put in place
def test_a_worker_draws_them_and_watches_what_it_puts_in_place() -> None:
    canaries = gradients(8, 1.0, 2.0, 1e-6)
    plain = real_gradient(make_worker(make_shard(20), clip=2.0, noise=1e-6))
    worker = make_worker(make_shard(20), clip=2.0, noise=1e-6, canaries=canaries)
    result = real_gradient(worker)
    assert worker.real_half is not None
    worker.real_half.taken()
    assert (result - plain).abs().max() > 0.1
    scores = torch.tensor(canaries.watched.scores)
    assert (scores > 0).tolist() == canaries.watched.coins


def without_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))


def planted_game(clip: float, noise: float, steps: int) -> Bound:
    """The bound by planted samples of a worker that takes some steps."""
    canaries = Canaries(60, 0.5, clip, noise, num_planted=60)
    worker = make_worker(
        make_shard(10), clip=clip, noise=noise, canaries=canaries, model=without_dropout
    )
    for _ in range(steps):
        real_gradient(worker)
        assert worker.real_half is not None
        worker.real_half.taken()
        worker.drop_real_half()
    found = canaries.watched
    assert (found.planted, found.steps) == (60, steps)
    return bound([Game("samples", found.coins, found.scores)], 1e-4, 0.0)


@pytest.mark.usefixtures("same_coins")
def test_planted_samples_tell_when_gradients_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planted_game(0.02, 20.0, 20).epsilon < SMALL
    assert planted_game(0.02, 0.1, 20).epsilon > SMALL, "with little noise they are found"

    def uncut(
        model: nn.Module, rules: LearningRules, real: Samples, count: int, *_: Any, **__: Any
    ) -> Any:
        return clipped_sum(model, rules, real, count, 1e9)

    monkeypatch.setattr(real_half, "clipped_sum", uncut)
    monkeypatch.setattr(canaries_module, "clipped_sum", uncut)
    assert planted_game(0.02, 20.0, 20).epsilon > SMALL


def test_what_planted_samples_leave_in_a_discriminator_does_not_tell_who_was_drawn() -> None:
    states = []
    for places in ([], [0, 2]):
        torch.manual_seed(0)
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 1))
        model = nn.Sequential(nn.Flatten(), layer).train()
        rules = make_worker(make_shard(5)).rules
        like = make_shard(1).taken(torch.arange(1)).without_labels()
        some = Planted(model, rules, Regularizers(), like, 1.0)
        some.summed(torch.tensor(places, dtype=torch.int64))
        assert (some.directions(3).square().sum(1) <= 1 + 1e-6).all()
        states.append(torch.cat([each.flatten() for each in model.state_dict().values()]))
    assert torch.equal(*states)
