"""The message as the page has it, against a plain computation that shares no code with it."""

from collections.abc import Sequence
from copy import deepcopy
from math import sqrt

import pytest
import torch
from torch import Tensor, nn

from mdgan.families.moments import contract
from mdgan.families.moments.build import draw_features
from mdgan.families.moments.contract import NoisySums
from mdgan.families.moments.message import EvenGenerator, SampleFeatures
from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.gan import conditional, small

C, B, STEPS = 0.2, 12, 5
TOLERANCE = 2e-6  # of weights after five steps: the page computes φ and J in float32
NOISES = [torch.randn(3 * 41, generator=generator_for(n, "noise")).double() for n in range(3)]


def shards() -> list[Samples]:
    """Three workers' samples, with as few of class 2 as makes noise in its count matter."""
    data = [conditional.LabelledData(n).next_batch(20 + n) for n in range(3)]
    return [Samples(one.images, one.labels.clamp(max=1 + n)) for n, one in enumerate(data)]  # type: ignore[union-attr] # they have labels


def plain_features(w: Tensor, sample: Tensor) -> Tensor:
    angles = w @ sample.flatten()
    waves = torch.cat([angles.cos(), angles.sin()]) * sqrt((1 - C**2) / len(w))
    return torch.cat([torch.full((1,), C, dtype=w.dtype), waves])


def plain_loop(
    generator: nn.Module, w: Tensor, num_classes: int, sigma: float, drawn: Sequence[Tensor]
) -> list[float]:
    """DP-MERF, from samples to trained weights, with the z that was drawn; J of each step."""
    # Workers: sums of features by class, with noise.
    total, num_samples, w = torch.zeros(num_classes, 41).double(), 0, w.double()
    for shard, noise in zip(shards(), NOISES, strict=True):
        labels = shard.labels if num_classes > 1 else torch.zeros(len(shard))
        assert labels is not None
        for image, label in zip(shard.images, labels, strict=True):
            total[int(label)] += plain_features(w, image.double())
            num_samples += 1
        total += sigma * noise[: total.numel()].view_as(total)

    # Server: shares of classes, shrunk as far as they may be noise; means of features.
    variance = 3 * sigma**2
    counts = (total[:, 0] / C).clamp(min=0)
    spread = float((counts - counts.mean()).square().sum()) / max(1, num_classes - 3)
    kept = max(0.0, 1 - variance / C**2 / spread) if spread else 0.0
    shares = (counts.mean() + kept * (counts - counts.mean())) / counts.mean() / num_classes
    means = total[:, 1:] / num_samples

    # Server: steps of G.
    adam, losses, labels = small.adam(generator), [], torch.arange(B) % num_classes
    for z in drawn:
        samples = generator(z, labels) if num_classes > 1 else generator(z)
        loss = torch.zeros((), dtype=torch.float64)
        for y in range(num_classes):
            own = [plain_features(w, x.double())[1:] for x in samples[labels == y]]
            mean = torch.stack(own).mean(0)
            square = (len(own) * mean.square().sum() - (1 - C**2)) / (len(own) - 1)
            loss += means[y].square().sum() - 2 * shares[y] * (means[y] @ mean)
            loss += shares[y] ** 2 * square - variance / num_samples**2 * len(mean)
        weights = [*generator.parameters()]
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        adam.step()
        losses.append(float(loss.detach()))
    return losses


def by_the_page(generator: nn.Module, features: SampleFeatures, sigma: float) -> list[float]:
    """The same by the page."""
    told: dict[int, Tensor] = {}
    for n, shard in enumerate(shards()):
        sums = features.sums([(shard, torch.ones(len(shard)))])
        told[n] = features.noisy(sums, sigma, bytes([n])) if sigma else sums
    total, number = features.added_up(told, []), sum(map(len, shards()))
    lesson = features.lesson(NoisySums(total, number, 3 * sigma**2), small.CPU)
    learner = EvenGenerator(
        *(generator, small.adam(generator)),
        z_dim=small.Z_DIM,
        noise=generator_for(0, "noise"),
        random_state=RandomState(0, small.CPU),
    )
    return [lesson.step(learner, B) for _ in range(STEPS)]


def known_noise(total: Tensor, clip: float, sigma: float, key: bytes) -> Tensor:
    return total + clip * sigma * NOISES[key[0]][: len(total)]


def make(num_classes: int | None) -> nn.Module:
    """G without what draws, and without a bias before BatchNorm, whose gradient is rounding."""
    kind = conditional.ConditionalGenerator
    generator = small.make_generator() if num_classes is None else conditional.make(kind)
    layers = next(module for module in generator.modules() if isinstance(module, nn.Sequential))
    layers[0].register_parameter("bias", None)
    layers[3] = nn.Identity()
    return generator


@pytest.mark.parametrize("sigma", [0.0, 0.5, 40.0])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_what_is_told_and_learnt_is_that_of_a_plain_computation(
    monkeypatch: pytest.MonkeyPatch, num_classes: int | None, sigma: float
) -> None:
    monkeypatch.setattr(contract, "with_noise", known_noise)
    features = draw_features(FeatureSettings(num_features=40), small.SHAPE, num_classes, 0)
    ours, drawn = make(num_classes), list[Tensor]()
    plain = deepcopy(ours)
    ours.register_forward_pre_hook(lambda _, given: drawn.append(given[0]))
    losses = by_the_page(ours, features, sigma)
    expected = plain_loop(plain, features.frequencies, num_classes or 1, sigma, drawn)
    assert losses == pytest.approx(expected, rel=1e-5)
    for weight, value in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(weight, value, rtol=0, atol=TOLERANCE)
