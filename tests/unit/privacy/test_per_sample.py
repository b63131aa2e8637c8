"""Gradients of single samples are cut and added up."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.data import dataset_file
from mdgan.gan.build import build_model
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, call, num_classes_of
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, as_output
from mdgan.gan.regularizers.r1 import R1
from mdgan.models.blocks import with_group_norm
from mdgan.models.registry import architecture
from mdgan.privacy import per_sample
from mdgan.privacy.layer_norms import clipped_sum_by_layer, layers_with_weights
from mdgan.privacy.per_sample import clipped_sum, per_sample_gradients, still, trained
from tests.claims.registry import claim

ARCHITECTURES = ("dcgan", "sngan", "biggan", "acgan", "md-gan-mlp")
DATASETS = ("digits", "mnist", "cifar10", "celeba")
QUICK = ("dcgan", "md-gan-mlp", "digits")


def rules(loss: str = "bce") -> LearningRules:
    return LearningRules(4, 1, DISCRIMINATOR_LOSSES[loss], GENERATOR_LOSSES["non-saturating"])


def penalties(r1: float) -> list[R1]:
    return [R1(r1)] if r1 else []


def model_of(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A discriminator as shipped, with GroupNorm; nothing is dropped, so that it can be asked again
    for one sample."""
    if name in DATASETS:
        models = dataset_file.load(name, None).models
    else:
        models = architecture(name).make((1, 8, 8), 3, 2)
    model = build_model(lambda: with_group_norm(models.discriminator), 0)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return model.double(), models.shape  # rounding must not hide a wrong term


def samples_for(model: nn.Module, shape: tuple[int, ...], count: int, seed: int) -> Samples:
    random = torch.Generator().manual_seed(seed)
    images = torch.rand(count, *shape, generator=random, dtype=torch.float64) * 2 - 1
    num_classes = num_classes_of(model)
    return Samples(images, None if num_classes is None else torch.arange(count) % num_classes)


def one_by_one(
    model: nn.Module, by: LearningRules, real: Samples, r1: float = 0.0
) -> list[dict[str, Tensor]]:
    """The gradient of each sample's loss, by a pass for each."""
    results = []
    for i in range(len(real)):
        x = real.images[i : i + 1].clone().requires_grad_()
        y = None if real.labels is None else real.labels[i : i + 1]
        verdict = as_output(call(model, x, y))
        loss = by.loss(by.discriminator_loss.real, verdict, y)
        if r1:
            (slope,) = torch.autograd.grad(verdict.logits.sum(), x, create_graph=True)
            loss = loss + 0.5 * r1 * slope.square().sum()
        weights = dict(model.named_parameters())
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        results.append(
            {
                name: torch.zeros_like(weights[name]) if g is None else g
                for name, g in zip(weights, gradients, strict=True)
            }
        )
    return results


def norm_of(gradient: dict[str, Tensor]) -> float:
    return float(torch.cat([each.flatten() for each in gradient.values()]).norm())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in QUICK else pytest.mark.slow)
        for n in (*ARCHITECTURES, *DATASETS)
    ],
)
@settings(max_examples=3, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 99), count=st.integers(1, 3), share=st.floats(0.2, 3.0))
def test_gradients_of_shipped_models_are_those_of_a_loop(
    name: str, seed: int, count: int, share: float
) -> None:
    model, shape = model_of(name)
    real, by = samples_for(model, shape, count, seed), rules()
    with still(model):
        expected = one_by_one(model, by, real)
        result, losses = per_sample_gradients(model, by, real)
        assert len(losses) == count
        for i, gradient in enumerate(expected):
            for parameter, each in gradient.items():
                torch.testing.assert_close(result[parameter][i], each, atol=1e-6, rtol=1e-5)
        norms = [norm_of(gradient) for gradient in expected]
        clip = share * max(norms)  # cuts some, all or none
        cut = {
            p: torch.stack(
                [g[p] * min(1.0, clip / n) for g, n in zip(expected, norms, strict=True)]
            ).sum(0)
            for p in expected[0]
        }
        total, _ = clipped_sum(model, by, real, count, clip)
    for parameter, each in cut.items():
        torch.testing.assert_close(total[parameter], each, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("loss", ["least-squares", "hinge", "wasserstein"])
@pytest.mark.parametrize("r1", [0.0, 2.0])
def test_other_losses_and_the_penalty_at_real_samples(loss: str, r1: float) -> None:
    model, shape = model_of("dcgan")
    real, by = samples_for(model, shape, 3, 1), rules(loss)
    result, _ = per_sample_gradients(model, by, real, penalties(r1))
    for i, gradient in enumerate(one_by_one(model, by, real, r1)):
        for parameter, each in gradient.items():
            torch.testing.assert_close(result[parameter][i], each, atol=1e-5, rtol=1e-4)


class Several(nn.Module):
    """What shipped models lack: biases before norms, strides and padding, places, in-place ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, padding=1, dilation=1),
            nn.GroupNorm(2, 6),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 40, 2, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
        )
        self.places = nn.Linear(40, 5)
        self.head = nn.Linear(5, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.body(x).flatten(2).mT
        logits: Tensor = self.head(torch.tanh(self.places(maps)).mean(1))
        return logits


def test_layer_by_layer_is_what_single_gradients_are() -> None:
    model = build_model(Several, 3).double()
    real, by = samples_for(model, (2, 8, 8), 5, 0), rules()
    assert layers_with_weights(model)
    norms = [norm_of(gradient) for gradient in one_by_one(model, by, real)]
    clip = sorted(norms)[2]
    fast = clipped_sum_by_layer(model, by, real, 4, clip)
    assert fast is not None
    slow = {name: torch.zeros_like(value) for name, value in trained(model).items()}
    gradients, losses = per_sample_gradients(model, by, real)
    per_sample.add_clipped(slow, gradients, 4, clip)
    for name, each in slow.items():
        torch.testing.assert_close(fast[0][name], each, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(fast[1], losses[:4].sum())


class Twice(nn.Module):
    """A layer that each sample meets twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(torch.tanh(self.layer(x.flatten(1)))).sum(1)
        return logits


def test_a_layer_that_is_met_twice_is_left_to_torch_func() -> None:
    model = build_model(Twice, 0).double()
    real, by = samples_for(model, (1, 2, 2), 3, 0), rules()
    assert clipped_sum_by_layer(model, by, real, 3, 1.0) is None
    total, _ = clipped_sum(model, by, real, 3, 1e9)
    for name in total:
        expected = torch.stack([each[name] for each in one_by_one(model, by, real)]).sum(0)
        torch.testing.assert_close(total[name], expected, atol=1e-6, rtol=1e-5)


@claim("steps", "cuts the gradient of each sample to the norm C (--dp-clip)")
def test_no_sample_adds_more_than_the_bound_and_one_that_is_not_finite_nothing() -> None:
    model, shape = model_of("digits")
    real = samples_for(model, shape, 1, 0)
    total, _ = clipped_sum(model, rules(), real, 1, 0.25)
    assert norm_of(total) == pytest.approx(0.25, rel=1e-5)
    others = torch.full_like(real.images, torch.nan), torch.full_like(real.images, torch.inf)
    for r1 in (0.0, 1.0):  # layer by layer, and sample by sample
        all_three = Samples(torch.cat([real.images, *others]))
        alone, _ = clipped_sum(model, rules(), real, 1, 0.25, penalties(r1))
        with_them, _ = clipped_sum(model, rules(), all_three, 3, 0.25, penalties(r1))
        for name, each in alone.items():
            torch.testing.assert_close(with_them[name], each, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("r1", [0.0, 1.0])
@claim(
    "no-times", "A step does the same operations on the same number of samples, whatever they are."
)
def test_samples_that_do_not_count_add_nothing(r1: float) -> None:
    model, shape = model_of("digits")
    real, by = samples_for(model, shape, 5, 0), rules()
    few, few_losses = clipped_sum(model, by, real[:3], 3, 0.25, penalties(r1))
    among, among_losses = clipped_sum(model, by, real, 3, 0.25, penalties(r1))
    for name, each in few.items():
        torch.testing.assert_close(among[name], each, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(among_losses, few_losses)


@pytest.mark.parametrize("channels", [4, 64])
@claim("steps", "cuts the gradient of each sample to the norm C (--dp-clip)")
def test_weights_that_let_rounding_hide_a_gradient_gain_nothing(channels: int) -> None:
    """Terms of 10⁷ whose sum is 10⁴: squares of the terms hide all of it.

    With 64 channels the norm comes from products of places, with 4 from those of channels.
    """
    given, hides = nn.Conv2d(1, channels, 1), nn.Conv2d(channels, channels, 3)
    head = nn.Linear(channels * 16, 1)
    model = nn.Sequential(given, hides, nn.Flatten(), head)
    signs = torch.tensor([1.0, -1.0]).repeat(channels * 8)
    values = (1e-5, 1.0, 0.0, 0.0, 1e7 * signs, 0.0)
    for weights, value in zip(model.parameters(), values, strict=True):
        weights.data.copy_(torch.as_tensor(value))
    for seed in range(8):
        images = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        result = clipped_sum_by_layer(model, rules(), Samples(images), 1, 1.0)
        assert result is not None
        norm = torch.cat([each.flatten() for each in result[0].values()]).norm()
        assert norm < 1.01, seed


@claim("steps", "All else that it sends follows from such sums.")
def test_what_spectral_norm_keeps_does_not_tell_how_many_samples_there_were() -> None:
    states = []
    for count in (0, 1, 4):
        model, shape = model_of("sngan")
        clipped_sum(model, rules(), samples_for(model, shape, 4, 0), count, 1.0)
        states.append({name: buffer.clone() for name, buffer in model.named_buffers()})
    for name, buffer in states[0].items():
        assert torch.equal(buffer, states[1][name])
        assert torch.equal(buffer, states[2][name])
    before = dict(model_of("sngan")[0].named_buffers())
    assert any(not torch.equal(buffer, before[name]) for name, buffer in states[0].items())
