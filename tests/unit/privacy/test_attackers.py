"""Attackers against noisy gradients: none does better than Gaussian noise allows.

The same attackers win against the noise of version 0.7.0, so that they can.
"""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mdgan.data.shard import Shard
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.privacy import real_half
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.real_half import PoissonHalf, SeededSteps
from tests.claims.registry import claim
from tests.unit.gan.small import SHAPE
from tests.unit.privacy.attackers import ATTACKS, allowed, flawed_noise
from tests.unit.privacy.halves import Few, make_worker

NUM_TRIALS = 100
FEW_TRIALS = 30
"""Enough where an attack has to win by far."""
CLIP = 1.0
WHOLE = 12
MARGIN = stats.norm.isf(1e-6) * sqrt(0.5 / (NUM_TRIALS / 2))
"""By so much the advantage in so many trials may exceed what is allowed. Secrets are fixed, so a
test passes always or never."""


class Saturated(nn.Module):
    """One that another party has made: it is sure of all samples but of those with x₀ > 0."""

    num_hidden = 96

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, self.num_hidden)
        self.head = nn.Linear(self.num_hidden, 1)
        with torch.no_grad():
            self.hidden.weight[0] = 0.0
            self.hidden.weight[0, 0] = 1.0
            self.hidden.bias[0] = 0.0
            self.head.weight[0, 0] = -300.0

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.hidden(x.flatten(1))))
        return logits


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 96), nn.Tanh(), nn.Linear(96, 1))


def shard_of(count: int, *, with_target: bool, seed: int) -> Shard:
    """Sample 0 is the target; without it there is one in its place that has no gradient."""
    images = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    images[:, 0, 0, 0] = -1.0
    images[0, 0, 0, 0] = 1.0
    if not with_target:
        images[0] = torch.nan
    return Shard(Few(images), torch.arange(count), torch.Generator())


def worker_of(
    model: Callable[[], nn.Module], shard: Shard, batch_size: int, noise: float, secret: int
) -> Worker:
    steps = SeededSteps(secret.to_bytes(4, "big"))
    return make_worker(
        shard, batch_size=batch_size, clip=CLIP, noise=noise, steps=steps, model=model
    )


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).double()


def released(worker: Worker, secret: int | None = None) -> Tensor:
    """The real half of the next gradient, perhaps with another secret."""
    worker.drop_real_half()
    if secret is not None:
        half = worker.real_half
        assert isinstance(half, PoissonHalf)
        half._steps = SeededSteps(secret.to_bytes(4, "big"))
    worker.learn_real_half()
    return flat([p.grad for p in worker.discriminator.parameters if p.grad is not None])


@pytest.fixture(params=["now", "0.7.0"])
def is_flawed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "0.7.0":
        monkeypatch.setattr(real_half, "with_noise", flawed_noise)
    return bool(request.param == "0.7.0")


def advantages(play: Callable[[int], Mapping[str, bool]], trials: int) -> dict[str, float]:
    """By attack, how much more often it accuses the target where that is in the shard.

    Args:
        play: what each attack says in a trial; the target is in the shard in every second one.
        trials: so many.
    """
    said = [play(trial) for trial in range(trials)]
    return {
        name: (sum(x[name] for x in said[0::2]) - sum(x[name] for x in said[1::2])) * 2 / trials
        for name in ATTACKS
    }


def check(result: Mapping[str, float], most: float, *, is_flawed: bool, least: float) -> None:
    """No attack may find more than `most`; with flawed noise one finds more than `least`."""
    if is_flawed:
        assert result["rays"] > least
        return
    assert {name: each for name, each in result.items() if each > most + MARGIN} == {}


def first_moment(worker: Worker) -> Tensor:
    """From Adam's first moment alone after one step; that of the generated half is known."""
    worker.learn(Samples(torch.zeros(WHOLE, *SHAPE)))
    (group,) = worker.discriminator.optimizer.param_groups
    states = worker.discriminator.optimizer.state
    first = flat([states[p]["exp_avg"] for p in worker.discriminator.parameters])
    return first / (1 - float(group["betas"][0]))


@pytest.mark.parametrize(
    ("look", "noise"), [(released, 1.0), (released, 200.0), (first_moment, 20.0)]
)
@claim(
    "epsilon",
    "What the worker computes from its samples and tells is at most e^ε times as likely or "
    "unlikely as if any one of its units had given nothing, but for a probability δ.",
)
def test_a_gradient_of_the_whole_shard(
    look: Callable[[Worker], Tensor], noise: float, is_flawed: bool
) -> None:
    """The attacker knows all of it but the target."""
    unit = CLIP * noise

    def seen(with_target: bool, sigma: float, secret: int) -> Tensor:
        shard = shard_of(WHOLE, with_target=with_target, seed=0)
        return look(worker_of(plain, shard, WHOLE, sigma, secret)) * WHOLE

    with_it, without = (seen(own, 0.0, 0) for own in (True, False))

    def play(trial: int) -> dict[str, bool]:
        rest = (seen(trial % 2 == 0, noise, trial) - without) / unit
        return {
            name: attack(rest, (with_it - without) / unit) > 0 for name, attack in ATTACKS.items()
        }

    check(
        advantages(play, FEW_TRIALS if is_flawed else NUM_TRIALS),
        allowed(noise, 1.0),
        is_flawed=is_flawed,
        least=0.9,
    )


@claim(
    "any-discriminator",
    "So ε holds whatever the discriminator was computed from and whoever made it.",
)
@claim(
    "epsilon",
    "What the worker computes from its samples and tells is at most e^ε times as likely or "
    "unlikely as if any one of its units had given nothing, but for a probability δ.",
)
def test_a_discriminator_that_is_sure_of_all_but_the_target(is_flawed: bool) -> None:
    """Batches of 18 of 100; the sum is 0, or the target's gradient in one step of six."""
    count, batch_size, num_steps, noise = 100, 18, 6, 20.0
    unit = CLIP * noise
    both = [
        worker_of(Saturated, shard_of(count, with_target=own, seed=1), batch_size, noise, 0)
        for own in (True, False)
    ]
    lone = shard_of(1, with_target=True, seed=1)
    target = released(worker_of(Saturated, lone, 1, 0.0, 0)) / unit

    def play(trial: int) -> dict[str, bool]:
        worker = both[trial % 2]
        scores: dict[str, list[float]] = {name: [] for name in ATTACKS}
        for step in range(num_steps):
            rest = released(worker, trial * num_steps + step) * batch_size / unit
            for name, attack in ATTACKS.items():
                scores[name].append(attack(rest, target))
        thresholds = {"likelihood": 0.0}
        return {name: max(own) > thresholds.get(name, 5.0) for name, own in scores.items()}

    rate = batch_size / count
    drawn = 1 - (1 - 0.9 * rate) ** num_steps  # a batch that is too large is drawn again
    most = allowed(noise, rate, num_steps)
    check(
        advantages(play, FEW_TRIALS if is_flawed else NUM_TRIALS),
        most,
        is_flawed=is_flawed,
        least=drawn - 0.2,
    )


def spiked(*layers: nn.Module, size: int) -> nn.Module:
    """Layers with activations of 10¹⁸ and slopes of 10⁻¹⁹: squares of those are 0 in float32."""
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 1))
    weights = list(model.parameters())
    with torch.no_grad():
        weights[0].fill_(1e17)
        for each in weights[1:-2]:
            each.zero_()
        weights[-2].fill_(1e-19)
        weights[-1].zero_()
    return model


@pytest.mark.parametrize("clip", [0.1, 1.0])
@pytest.mark.parametrize(
    "model",
    [
        spiked(nn.Flatten(), nn.Linear(16, 256), nn.Linear(256, 256), size=256),
        spiked(nn.Conv2d(1, 64, 1), nn.Conv2d(64, 64, 3, padding=1), size=64 * 16),
        spiked(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 3, padding=1), size=4 * 16),
    ],
    ids=["linear", "conv, by places", "conv, by channels"],
)
@claim("steps", "cuts the gradient of each sample to the norm C (--dp-clip)")
def test_slopes_too_small_to_be_squared_are_cut_all_the_same(model: nn.Module, clip: float) -> None:
    """In 0.7.0 such a norm counted as 0 for one who gave away a discriminator."""
    rules = worker_of(plain, shard_of(2, with_target=True, seed=0), 2, 1.0, 0).rules
    images = Samples(torch.ones(1, *SHAPE))
    total, _ = clipped_sum(model, rules, images, 1, clip)
    norm = float(flat(list(total.values())).norm())
    assert norm < 1.001 * clip


Operation = tuple[str, list[tuple[int, ...]]]


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it unannotated
    """Writes down which operators torch runs, and on which shapes."""

    results: list[Operation]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
        self.results.append((str(func), shapes))
        return func(*args, **(kwargs or {}))


def operations(images: Tensor, batch_size: int) -> list[Operation]:
    shard = Shard(Few(images), torch.arange(len(images)), torch.Generator())
    worker = worker_of(plain, shard, batch_size, 1.0, 0)
    running = Operations()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    running.results = []
    with running:
        worker.learn_real_half()
    return running.results


@pytest.mark.parametrize("batch_size", [6, 12])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30, 1e-40, 0.0])
@claim(
    "no-times", "A step does the same operations on the same number of samples, whatever they are."
)
def test_what_a_step_computes_does_not_depend_on_what_samples_are(
    batch_size: int, value: float
) -> None:
    """Time would tell of a chosen sample; in 0.7.0 one without a finite norm took twice as long."""
    images = torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(0)) * 2 - 1
    usual = operations(images, batch_size)
    for target in range(0, 12, 3):
        other = images.clone()
        other[target] = value
        assert operations(other, batch_size) == usual
