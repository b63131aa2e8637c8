"""The shipped models against appendix A of Darmanger and Gombas' report, layer by layer."""

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


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def conv(inputs: int, outputs: int) -> int:
    return inputs * outputs * 4 * 4


def batch_norm(channels: int) -> int:
    return 2 * channels


MNIST_GENERATOR = linear(100, 256) + linear(256, 512) + linear(512, 1024) + linear(1024, 784)
MNIST_DISCRIMINATOR = linear(784, 1024) + linear(1024, 512) + linear(512, 256) + linear(256, 1)
CIFAR10_GENERATOR = (
    conv(100, 512)
    + batch_norm(512)
    + conv(512, 256)
    + batch_norm(256)
    + conv(256, 128)
    + batch_norm(128)
    + conv(128, 3)
)
CIFAR10_DISCRIMINATOR = (
    conv(3, 64) + conv(64, 128) + batch_norm(128) + conv(128, 256) + batch_norm(256) + conv(256, 1)
)
CELEBA_GENERATOR = CIFAR10_GENERATOR - conv(128, 3) + conv(128, 64) + batch_norm(64) + conv(64, 3)
CELEBA_DISCRIMINATOR = (
    CIFAR10_DISCRIMINATOR - conv(256, 1) + conv(256, 512) + batch_norm(512) + conv(512, 1)
)


@pytest.mark.parametrize(
    ("name", "generator", "discriminator"),
    [
        ("mnist", MNIST_GENERATOR, MNIST_DISCRIMINATOR),
        ("cifar10", CIFAR10_GENERATOR, CIFAR10_DISCRIMINATOR),
        ("celeba", CELEBA_GENERATOR, CELEBA_DISCRIMINATOR),
        ("folder", CELEBA_GENERATOR, CELEBA_DISCRIMINATOR),
    ],
)
def test_number_of_parameters(name: str, generator: int, discriminator: int) -> None:
    dataset = load(name, None)
    assert num_parameters(dataset.models.generator()) == generator
    assert num_parameters(dataset.models.discriminator()) == discriminator


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
