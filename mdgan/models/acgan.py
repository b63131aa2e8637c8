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
_TIMES_WIDTH = 6
"""How much wider than D's first layer G's last one is."""
_NUM_CONVOLUTIONS, _MOST_HALVINGS = 6, 3
_SLOPE = 0.2
_DROPPED = 0.5
_DEVIATION = 0.02


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """The models for pictures of a shape; see `Architecture.parts`.

    Args:
        width: channels of D's first layer; each of its five others has twice as many as the one
            before. G's last map has six times as many.
    """
    side, doublings = growth_of(shape)
    channels = [_TIMES_WIDTH * width * min(_MOST, 1 << level) for level in range(doublings)]
    generator = partial(ACGANGenerator, NOISE_SIZE, num_classes, side, channels[::-1], shape[0])
    return generator, partial(ACGANDiscriminator, shape, num_classes, width), NOISE_SIZE


def with_classes(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Noise, [b, n], and the class of each sample as K numbers, all 0 but one: [b, n + K]."""
    return torch.cat([z, F.one_hot(labels, num_classes).to(z.dtype)], 1)


class ACGANGenerator(nn.Module):
    """From z [b, n] and classes y [b] to samples [b, C, H, W] in [−1, 1]."""

    def __init__(
        self,
        noise_size: int,
        num_classes: int,
        side: int,
        channels: Sequence[int],
        image_channels: int,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        layers: list[nn.Module] = [
            nn.Linear(noise_size + num_classes, channels[0] * side * side),
            nn.ReLU(),
            nn.Unflatten(1, (channels[0], side, side)),
        ]
        for before, after in pairwise(channels):
            layers += [_doubling(before, after), nn.BatchNorm2d(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, _doubling(channels[-1], image_channels), nn.Tanh())
        _draw_weights(self)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Makes samples."""
        samples: Tensor = self.layers(with_classes(z, labels, self.num_classes))
        return samples


class ACGANDiscriminator(nn.Module):
    """From samples [b, C, H, W] to logits [b], and logits of classes [b, K].

    Every second layer halves the side, but pictures of less than three doublings are halved to the
    square that they grow from: then the last map of 28·28 pixels has 7·7, as MD-GAN's counts say.
    """

    def __init__(
        self, shape: tuple[int, int, int], num_classes: int, width: int, *, sees_batch: bool = False
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        before, *sides = shape
        layers: list[nn.Module] = []
        num_halvings = min(_MOST_HALVINGS, growth_of(shape).doublings)
        for number in range(_NUM_CONVOLUTIONS):
            after, stride = width << number, 2 if number in range(0, 2 * num_halvings, 2) else 1
            layers += [
                nn.Conv2d(before, after, 3, stride, 1),
                *([nn.BatchNorm2d(after)] if number else []),
                nn.LeakyReLU(_SLOPE),
                nn.Dropout(_DROPPED),
            ]
            before, sides = after, [side // stride for side in sides]
        num_features = before * prod(sides)
        layers.append(nn.Flatten())
        if sees_batch:
            layers.append(MinibatchDiscrimination(num_features))
            num_features += NUM_KERNELS
        self.layers = nn.Sequential(*layers, nn.Linear(num_features, 1 + num_classes))
        _draw_weights(self)

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Judges samples."""
        del labels
        return first_and_others(self.layers(samples))


def first_and_others(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Of 1 + K outputs of D, [b, 1 + K], the logits, [b], and those of classes, [b, K]."""
    return outputs[:, 0], outputs[:, 1:]


def _doubling(before: int, after: int) -> nn.Module:
    return nn.ConvTranspose2d(before, after, 5, 2, padding=2, output_padding=1)


def _draw_weights(model: nn.Module) -> None:
    """Draws them with a deviation of 0.02 (table 2)."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, _DEVIATION)
