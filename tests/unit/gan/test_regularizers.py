"""Penalties against their papers' formulas, with gradients computed in other ways."""

import pytest
import torch
from torch import Tensor, nn

from mdgan.gan.arithmetic import prepare
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.contract import Penalty, Regularizers, mix
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.gan.regularizers.r1 import R1
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from tests.unit.gan import small

GAMMA, LAMBDA = 3.0, 10.0


def samples(seed: int = 0) -> Tensor:
    return small.images(seed).double()


class TwoLayers(nn.Module):
    """D(x) = v·tanh(Wx), whose gradient ∇D(x) = Wᵀ(v ∘ (1 − tanh²)) can be written down."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(1)
        self.first = nn.Parameter(torch.randn(7, 16, generator=random).double())
        self.second = nn.Parameter(torch.randn(7, generator=random).double())

    def forward(self, images: Tensor) -> Tensor:
        return torch.tanh(images.flatten(1) @ self.first.T) @ self.second

    def gradients(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(images.flatten(1) @ self.first.T)
        return (self.second * (1 - hidden.square())) @ self.first


def written_out(kind: str, model: TwoLayers, images: Tensor) -> Tensor:
    """The penalty by the formula of ∇D, so that autograd differentiates once."""
    norms = model.gradients(images).square().sum(1)
    if kind == "r1":
        return GAMMA / 2 * norms.mean()
    return LAMBDA * (norms.sqrt() - 1).square().mean()


PENALTIES: dict[str, Penalty] = {"r1": R1(GAMMA), "gradient": GradientPenalty(LAMBDA)}


def penalty_of(kind: str, logits: Tensor, images: Tensor) -> Tensor:
    penalty = PENALTIES[kind]
    nothing = logits.new_zeros(())
    return Regularizers([penalty]).penalized(penalty.place, nothing, logits, images)


@pytest.mark.parametrize("kind", PENALTIES)
def test_a_penalty_and_its_gradient_are_those_of_the_paper(kind: str) -> None:
    model, images = TwoLayers(), samples().requires_grad_()
    got = penalty_of(kind, model(images), images)
    wanted = written_out(kind, model, images.detach())
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=0)
    gradients = [torch.autograd.grad(each, list(model.parameters())) for each in (got, wanted)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


def test_a_flat_discriminator_gets_finite_gradients() -> None:
    images, weight = samples().requires_grad_(), torch.zeros(16).double().requires_grad_()
    for kind in PENALTIES:
        penalty = penalty_of(kind, images.flatten(1) @ weight, images)
        (gradient,) = torch.autograd.grad(penalty, weight)
        assert bool(gradient.isfinite().all())


def test_mixtures_lie_between_each_real_and_its_generated_sample() -> None:
    real, fake = torch.zeros(200, 1, 4, 4), torch.ones(200, 1, 4, 4)
    with RandomState(3, small.CPU).in_place():
        mixed = mix(real, fake)
    shares = mixed[:, 0, 0, 0]
    assert torch.equal(mixed, shares.view(-1, 1, 1, 1).expand_as(mixed))
    assert 0 <= float(shares.min()) < 0.05
    assert 0.95 < float(shares.max()) <= 1
    with RandomState(3, small.CPU).in_place():
        assert torch.equal(mixed, mix(real, fake))


def normalized() -> nn.Module:
    with RandomState(0, small.CPU).in_place():
        model = nn.Sequential(nn.Flatten(), *small.make_model()[1:])
        add_spectral_norm(model)
        return model


def test_spectral_norm_makes_the_largest_singular_value_one() -> None:
    model = normalized()
    plain = small.make_model()
    for _ in range(50):
        model(small.images(0))
    for name in ("1", "5"):
        weight = model.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        original = plain.get_parameter(f"{name}.weight")
        wanted = original / torch.linalg.matrix_norm(original, 2)
        torch.testing.assert_close(weight, wanted, rtol=1e-5, atol=1e-6)


def test_spectral_norm_twice_is_spectral_norm_once() -> None:
    model = normalized()
    with pytest.raises(ValueError, match="normalised already"):
        add_spectral_norm(model)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_with_spectral_norm_the_last_layer_stays_exact(precision: str) -> None:
    """Spectral norm adds modules behind the last layer, which are no layers."""
    seen = []
    model = normalized()
    last = model.get_submodule("5")
    last.register_forward_hook(lambda _layer, _inputs, output: seen.append(output.dtype))
    first = model.get_submodule("1")
    first.register_forward_hook(lambda _layer, _inputs, output: seen.append(output.dtype))
    half = prepare(model, small.CPU, precision=precision, channels_last=False, compiled=False)
    assert half(small.images(0)).dtype == torch.float32
    assert seen == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision], torch.float32]
