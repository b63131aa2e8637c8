"""ACGAN (Odena, Olah and Shlens 2017, appendix A, table 2): D names the class of each sample, too.

MD-GAN's experiments have nearly the same convolutional networks (`md_gan.py`).
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.gan.build import Parts
from mdgan.models.blocks import NUM_KERNELS, MinibatchDiscrimination, growth_of

NOISE_SIZE = 100
_MOST = 8
_TIMES_WIDTH = 6  # G's last map has this many times the channels of D's first layer
_NUM_CONVOLUTIONS, _MOST_HALVINGS = 6, 3
_SLOPE = 0.2
_DROPPED = 0.5
_DEVIATION = 0.02


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the models for pictures of a shape; see `Architecture.parts`.

    Args:
        width: channels of D's first layer; each of the five others has twice as many as the last
            one. G's last map has six times as many.
    """
    side, doublings = growth_of(shape)
    channels = [_TIMES_WIDTH * width * min(_MOST, 1 << level) for level in range(doublings)]
    generator = partial(make_generator, NOISE_SIZE, num_classes, side, channels[::-1], shape[0])
    return generator, partial(make_discriminator, shape, num_classes, width), NOISE_SIZE


class ToldGenerator(nn.Module):
    """Layers from z [b, n], joined with the class y [b] as one-hot [b, K], to samples."""

    def __init__(self, num_classes: int, *layers: nn.Module) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        one_hot = F.one_hot(labels, self.num_classes).to(z.dtype)
        samples: Tensor = self.layers(torch.cat([z, one_hot], 1))
        return samples


class NamingDiscriminator(nn.Module):
    """Layers from samples to 1 + K numbers: a logit [b], and logits of classes [b, K]."""

    def __init__(self, num_classes: int, *layers: nn.Module) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.layers = nn.Sequential(*layers)

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        del labels
        outputs = self.layers(samples)
        return outputs[:, 0], outputs[:, 1:]


def make_generator(
    noise_size: int, num_classes: int, side: int, channels: Sequence[int], image_channels: int
) -> nn.Module:
    """From z [b, n] and classes y [b] to samples [b, C, H, W] in [−1, 1]."""
    layers: list[nn.Module] = [
        nn.Linear(noise_size + num_classes, channels[0] * side * side),
        nn.ReLU(),
        nn.Unflatten(1, (channels[0], side, side)),
    ]
    for inputs, outputs in pairwise(channels):
        layers += [_doubling(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU()]
    layers += [_doubling(channels[-1], image_channels), nn.Tanh()]
    return _with_weights(ToldGenerator(num_classes, *layers))


def make_discriminator(
    shape: tuple[int, int, int], num_classes: int, width: int, *, sees_batch: bool = False
) -> nn.Module:
    """From samples [b, C, H, W] to logits [b], and logits of classes [b, K].

    Every second layer halves the side, three times at most, down to the square from which G grows
    the picture: so the last map for 28·28 pixels has 7·7, as MD-GAN's numbers of parameters say.
    """
    inputs, *sides = shape
    layers: list[nn.Module] = []
    num_halvings = min(_MOST_HALVINGS, growth_of(shape).doublings)
    for number in range(_NUM_CONVOLUTIONS):
        outputs, stride = width << number, 2 if number in range(0, 2 * num_halvings, 2) else 1
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride, 1),
            *([nn.BatchNorm2d(outputs)] if number else []),
            nn.LeakyReLU(_SLOPE),
            nn.Dropout(_DROPPED),
        ]
        inputs, sides = outputs, [side // stride for side in sides]
    num_features = inputs * prod(sides)
    layers.append(nn.Flatten())
    if sees_batch:
        layers.append(MinibatchDiscrimination(num_features))
        num_features += NUM_KERNELS
    layers.append(nn.Linear(num_features, 1 + num_classes))
    return _with_weights(NamingDiscriminator(num_classes, *layers))


def _doubling(inputs: int, outputs: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, 5, 2, padding=2, output_padding=1)


def _with_weights(model: nn.Module) -> nn.Module:
    """Draws all weights with a standard deviation of 0.02 (table 2)."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, _DEVIATION)
    return model
