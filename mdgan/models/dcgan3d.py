"""DCGAN for volumes: the layers of Radford et al. 2016 with one more dimension, and GroupNorm in D.

Wu et al. 2016 ("Learning a Probabilistic Latent Space of Object Shapes via 3D Generative-
Adversarial Modeling", section 3.1) make volumes so.
"""

from functools import partial
from itertools import pairwise
from math import gcd

from torch import nn

from mdgan.gan.build import Parts
from mdgan.samples.contract import Shape

Z_DIM = 100
_SIDE = 4
_MOST = 8
"""Times the width: no layer has more channels."""
_DEVIATION = 0.02
_SLOPE = 0.2
_SIZES = 4
_GROUPS = 8


def make(shape: Shape, num_classes: int, width: int) -> Parts:
    """The models for volumes of a shape; see `Architecture.parts`."""
    del num_classes
    sides = shape[1:]
    doublings = (sides[0] // _SIDE).bit_length() - 1 if len(shape) == _SIZES else 0
    if doublings < 1 or set(sides) != {_SIDE << doublings}:
        raise ValueError(
            f"makes volumes (channels, D, H, W) with D = H = W one of 8, 16, 32, …, not {shape}"
        )
    channels = [width * min(_MOST, 1 << level) for level in range(doublings)]
    generator = partial(_generator, channels[::-1], shape[0])
    return generator, partial(_discriminator, channels, shape[0]), Z_DIM


def _generator(channels: list[int], volume_channels: int) -> nn.Module:
    """From z [b, 100] to samples [b, C, D, H, W] in [−1, 1]."""
    layers: list[nn.Module] = [
        nn.Unflatten(1, (Z_DIM, 1, 1, 1)),
        nn.ConvTranspose3d(Z_DIM, channels[0], _SIDE, bias=False),
        nn.BatchNorm3d(channels[0]),
        nn.ReLU(),
    ]
    for before, after in pairwise(channels):
        layers += [
            nn.ConvTranspose3d(before, after, 4, 2, 1, bias=False),
            nn.BatchNorm3d(after),
            nn.ReLU(),
        ]
    last = nn.ConvTranspose3d(channels[-1], volume_channels, 4, 2, 1, bias=False)
    return _with_weights(nn.Sequential(*layers, last, nn.Tanh()))


def _discriminator(channels: list[int], volume_channels: int) -> nn.Module:
    """From samples [b, C, D, H, W] to logits [b, 1]; it judges each sample by itself."""
    layers: list[nn.Module] = [
        nn.Conv3d(volume_channels, channels[0], 4, 2, 1, bias=False),
        nn.LeakyReLU(_SLOPE),
    ]
    for before, after in pairwise(channels):
        layers += [
            nn.Conv3d(before, after, 4, 2, 1, bias=False),
            nn.GroupNorm(gcd(_GROUPS, after), after),
            nn.LeakyReLU(_SLOPE),
        ]
    last = nn.Conv3d(channels[-1], 1, _SIDE, bias=False)
    return _with_weights(nn.Sequential(*layers, last, nn.Flatten()))


def _with_weights(model: nn.Sequential) -> nn.Sequential:
    """Draws all weights with a deviation of 0.02 (Radford et al., section 4)."""
    for layer in model:
        if isinstance(layer, nn.Conv3d | nn.ConvTranspose3d):
            nn.init.normal_(layer.weight, 0.0, _DEVIATION)
        elif isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.weight, 1.0, _DEVIATION)
    return model
