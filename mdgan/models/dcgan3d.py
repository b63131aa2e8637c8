"""DCGAN for volumes: the layers of Radford et al. 2016 with one more dimension, and GroupNorm in D.

Wu et al. 2016 ("Learning a Probabilistic Latent Space of Object Shapes via 3D Generative-
Adversarial Modeling", section 3.1) make volumes so.
"""

from functools import partial
from math import gcd

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models.dcgan import MOST, Z_DIM, make_discriminator, make_generator
from mdgan.samples.contract import Shape

_SIDE = 4
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
    channels = [width * min(MOST, 1 << level) for level in range(doublings)]
    kinds = nn.ConvTranspose3d, nn.BatchNorm3d
    generator = partial(make_generator, _SIDE, channels[::-1], shape[0], *kinds)
    kinds_in_d = nn.Conv3d, _group_norm
    discriminator = partial(make_discriminator, _SIDE, channels, shape[0], *kinds_in_d)
    return generator, discriminator, Z_DIM


def _group_norm(channels: int) -> nn.Module:
    """Lets D judge each sample by itself."""
    return nn.GroupNorm(gcd(_GROUPS, channels), channels)
