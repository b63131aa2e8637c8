"""The shipped models against appendix A of Darmanger and Gombas' report."""

import pytest
import torch
from torch import nn

from mdgan.data.dataset_file import load
from mdgan.gan.build import build_model, num_parameters
from mdgan.models.check import check_models

SHIPPED = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "celeba": (3, 64, 64),
    "folder": (3, 64, 64),
}


CELEBA = 3_576_704, 2_765_568


@pytest.mark.parametrize(
    ("name", "num"),
    [
        ("mnist", (1_486_352, 1_460_225)),
        ("cifar10", (3_448_576, 663_296)),
        ("celeba", CELEBA),
        ("folder", CELEBA),
    ],
)
def test_number_of_parameters(name: str, num: tuple[int, int]) -> None:
    models = load(name, None).models
    assert (num_parameters(models.generator()), num_parameters(models.discriminator())) == num


@pytest.mark.parametrize("name", SHIPPED)
def test_discriminator_gives_raw_logits_and_a_gradient_for_every_pixel(name: str) -> None:
    dataset = load(name, None)
    assert dataset.shape == SHIPPED[name]
    assert dataset.models.z_dim == 100
    check_models(dataset.models)
    images = torch.rand(4, *dataset.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    images.requires_grad_()
    discriminator = build_model(dataset.models.discriminator, 0)
    logits = discriminator(images)
    assert logits.shape == (4, 1)
    assert not any(isinstance(layer, nn.Sigmoid) for layer in discriminator.modules())
    (feedback,) = torch.autograd.grad(logits.sum(), images)
    assert feedback.shape == images.shape
    assert feedback.isfinite().all()


def test_leaky_relu_slope_is_0_2_everywhere() -> None:
    slopes = {
        layer.negative_slope
        for name in SHIPPED
        for kind in (load(name, None).models.generator, load(name, None).models.discriminator)
        for layer in kind().modules()
        if isinstance(layer, nn.LeakyReLU)
    }
    assert slopes == {0.2}
