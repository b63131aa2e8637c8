"""DCGAN (Radford, Metz and Chintala 2016, section 3 and figure 1).

The paper does not give the widths of D. Its authors' code has as many channels in D as in G.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import gcd

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models.blocks import growth_of, with_normal_weights
from mdgan.samples.contract import Shape

Z_DIM = 100
SUITED = {
    "batch_size": 64,
    "generator_optimizer": "lr=5e-4",
    "discriminator_optimizer": "lr=5e-4",
    "ema": 200.0,
}
"""Settings with which DCGANs of small pictures learn well, with one discriminator or several.

`docs/quality.md` measures them. `--architecture dcgan` has the paper's settings instead.
"""
_MOST = 8  # no layer has more channels than this many times the width
_SLOPE = 0.2
_SIDE, _SIZES, _GROUPS = 4, 4, 8
"""For volumes: the side of G's first map, dimensions of a sample, and groups of channels in D."""


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the models for pictures of a shape; see `Architecture.parts`."""
    del num_classes
    layers_of_d = nn.Conv2d, nn.BatchNorm2d
    return _parts(*growth_of(shape), shape[0], width, nn.ConvTranspose2d, *layers_of_d)


def make_volumes(shape: Shape, num_classes: int, width: int) -> Parts:
    """Returns the models for volumes of a shape, with GroupNorm in D; see `Architecture.parts`.

    As in Wu et al. 2016 ("Learning a Probabilistic Latent Space of Object Shapes via 3D Generative-
    Adversarial Modeling", section 3.1).
    """
    del num_classes
    sides = shape[1:]
    doublings = (sides[0] // _SIDE).bit_length() - 1 if len(shape) == _SIZES else 0
    if doublings < 1 or set(sides) != {_SIDE << doublings}:
        raise ValueError(
            f"makes volumes (channels, D, H, W) with D = H = W one of 8, 16, 32, …, not {shape}"
        )
    return _parts(_SIDE, doublings, shape[0], width, nn.ConvTranspose3d, nn.Conv3d, _group_norm)


def _group_norm(channels: int) -> nn.Module:
    """The norm of D for volumes, with which D judges each sample by itself."""
    return nn.GroupNorm(gcd(_GROUPS, channels), channels)


def _parts(
    side: int,
    doublings: int,
    sample_channels: int,
    width: int,
    growing: Callable[..., nn.Module],
    shrinking: Callable[..., nn.Module],
    norm_of_d: Callable[[int], nn.Module],
) -> Parts:
    channels = [width * min(_MOST, 1 << level) for level in range(doublings)]
    generator = partial(_generator, side, channels[::-1], sample_channels, growing)
    discriminator = partial(_discriminator, side, channels, sample_channels, shrinking, norm_of_d)
    return generator, discriminator, Z_DIM


def _generator(
    side: int, channels: list[int], sample_channels: int, convolution: Callable[..., nn.Module]
) -> nn.Module:
    """From z [b, 100] to samples [b, C, H, W] in [−1, 1], or to volumes."""
    is_flat = convolution is nn.ConvTranspose2d
    ones, norm = ((1, 1), nn.BatchNorm2d) if is_flat else ((1, 1, 1), nn.BatchNorm3d)
    layers = [
        nn.Unflatten(1, (Z_DIM, *ones)),
        *(convolution(Z_DIM, channels[0], side, bias=False), norm(channels[0]), nn.ReLU()),
    ]
    for wide, narrow in pairwise(channels):
        layers += [convolution(wide, narrow, 4, 2, 1, bias=False), norm(narrow), nn.ReLU()]
    last = convolution(channels[-1], sample_channels, 4, 2, 1, bias=False)
    return with_normal_weights(nn.Sequential(*layers, last, nn.Tanh()))


def _discriminator(
    side: int,
    channels: list[int],
    sample_channels: int,
    convolution: Callable[..., nn.Module],
    norm: Callable[[int], nn.Module],
) -> nn.Module:
    """From samples [b, C, H, W], or volumes, to logits [b, 1]."""
    layers = [convolution(sample_channels, channels[0], 4, 2, 1, bias=False), nn.LeakyReLU(_SLOPE)]
    for narrow, wide in pairwise(channels):
        inner = convolution(narrow, wide, 4, 2, 1, bias=False)
        layers += [inner, norm(wide), nn.LeakyReLU(_SLOPE)]
    last = convolution(channels[-1], 1, side, bias=False)
    return with_normal_weights(nn.Sequential(*layers, last, nn.Flatten()))
