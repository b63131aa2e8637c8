"""Buffers that are found anew from noise: near those that training would have, and repeatable."""

import pytest
import torch
from torch import Tensor, nn

from mdgan.gan.sampling import refresh_buffers
from tests.unit.gan import small
from tests.unit.gan.small import Z_DIM


def refreshed(generator: nn.Module, discriminator: nn.Module, iteration: int = 7) -> list[Tensor]:
    refresh_buffers(generator, discriminator, Z_DIM, 64, 0, iteration)
    return [b.clone() for model in (generator, discriminator) for b in model.buffers()]


def test_they_become_those_of_generated_samples_and_weights_stay() -> None:
    generator, discriminator = small.make_generator(), small.make_model()
    before = [p.clone() for model in (generator, discriminator) for p in model.parameters()]
    refreshed(generator, discriminator)
    after = [p for model in (generator, discriminator) for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    inner, norm = generator[0], generator[1]
    assert isinstance(inner, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    # z is N(0, 1): each output has the variance |w|², but for what is left of 1.
    exactly = inner.weight.detach().square().sum(1)
    assert torch.allclose(norm.running_var, exactly, rtol=0.3)


def test_they_follow_from_weights_seed_and_iteration_alone() -> None:
    torch.manual_seed(1)
    first = refreshed(small.make_generator(), small.make_model())
    torch.manual_seed(2)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    again = refreshed(small.make_generator(), small.make_model())
    assert torch.equal(drawn, torch.rand(1)), "nothing was drawn from torch's own generator"
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = refreshed(small.make_generator(), small.make_model(), 8)
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_spectral_norm_knows_the_present_weights() -> None:
    layer = nn.Linear(16, 5)
    nn.utils.parametrizations.spectral_norm(layer)
    discriminator = nn.Sequential(nn.Flatten(), layer, nn.Linear(5, 1))
    with torch.no_grad():
        next(p for p in layer.parameters() if p.dim() == 2).copy_(torch.randn(5, 16))
    refreshed(small.make_generator(), discriminator)
    assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1.0, abs=0.05)


def test_models_without_buffers_are_left_alone() -> None:
    generator = nn.Sequential(nn.Linear(Z_DIM, 16), nn.Unflatten(1, small.SHAPE))
    assert refreshed(generator, nn.Sequential(nn.Flatten(), nn.Linear(16, 1))) == []
