from collections.abc import Callable

import pytest
import torch
from torch import nn

from mdgan.audit.answers import Answer, look_up
from mdgan.audit.inversion import (
    Attacked,
    alignment,
    likeness,
    mean_ssim,
    of_feedback,
    of_update,
    reconstruct,
)
from mdgan.audit.separation import separate
from mdgan.gan.labels import Samples
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES


def attacked(model: nn.Module) -> Attacked:
    both = DISCRIMINATOR_LOSSES["bce"]
    return Attacked(model.eval(), both.real, both.fake, GENERATOR_LOSSES["non-saturating"])


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 1))


def pictures(number: int, seed: int = 0) -> Samples:
    """Smooth ones, as pictures are."""
    noise = torch.randn(number, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
    return Samples(nn.functional.interpolate(noise, (8, 8), mode="bilinear").clamp(-1, 1))


@pytest.mark.parametrize("make", [pytest.param(linear, marks=pytest.mark.slow), mlp])
def test_a_sample_is_recovered_from_the_exact_gradient_of_it_alone(
    make: Callable[[], nn.Module],
) -> None:
    explain, real = of_update(attacked(make())), pictures(1)
    seen = explain(real)
    made = reconstruct(explain, seen, Samples(torch.zeros(1, 1, 8, 8)), torch.Generator(), 300)
    assert likeness(real.images, made)[0] > 25
    assert likeness(pictures(1, 5).images, made)[0] < 15
    ssim = mean_ssim(real.images, made)
    assert ssim is not None
    assert ssim > 0.9
    assert alignment(explain(Samples(made)), seen) > 0.99


@pytest.mark.parametrize("batch_size", [1, 4])
def test_samples_behind_updates_are_looked_up_among_others(batch_size: int) -> None:
    explain = of_update(attacked(mlp()))
    batches = [pictures(batch_size, seed) for seed in range(3)]
    result = look_up(explain, [Answer(real, explain(real)) for real in batches], pictures(60, 9))
    assert [len(each) for each in result] == [3 * batch_size, 180]
    assert separate(*result).auc > 0.85


def test_feedback_after_a_plain_step_tells_of_a_single_sample_to_who_knows_the_discriminator() -> (
    None
):
    model, rate = mlp(), 0.1
    known = attacked(model)
    explain = of_feedback(known, pictures(1, 6), pictures(16, 7), rate)
    real = pictures(1, 3)
    stepped = mlp()
    loss = known.loss(known.real, real) + known.loss(known.fake, pictures(1, 6))
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for weight, slope in zip(stepped.parameters(), slopes, strict=True):
            weight.sub_(rate * slope)
    images = pictures(16, 7).images.requires_grad_()
    of_new, of_old = (
        torch.autograd.grad(GENERATOR_LOSSES["non-saturating"](each(images)), images)[0]
        for each in (stepped, model)
    )
    torch.testing.assert_close(explain(real)[0], of_new - of_old)
    others = look_up(explain, [Answer(real, [of_new - of_old])], pictures(60, 9))
    assert separate(*others).auc > 0.9


def test_equal_pictures_are_as_like_as_can_be_said_and_tiny_ones_have_no_structure() -> None:
    same = pictures(3)
    psnr, places = likeness(same.images, same.images.flip(0))
    assert psnr.tolist() == [100.0, 100.0, 100.0]
    assert places.tolist() == [2, 1, 0]
    assert mean_ssim(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)) is None
