"""DCGAN (Radford, Metz and Chintala 2016, section 3 and figure 1).

Widths that the paper does not give, those of D, are of its authors' code, which has as many
channels in D as in G.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models.blocks import growth_of, with_normal_weights

Z_DIM = 100
SUITED = {
    "generator_optimizer": "lr=5e-4",
    "discriminator_optimizer": "lr=5e-4",
    "ema": 200.0,
    "swap": "means",
}
"""Settings with which DCGANs of small pictures learn well, with one discriminator or several.

They are measured in `docs/quality.md`; the paper's are those of `--architecture dcgan`.
"""
MOST = 8
"""Times the width: no layer has more channels."""
_SLOPE = 0.2


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """The models for pictures of a shape; see `Architecture.parts`."""
    del num_classes
    side, doublings = growth_of(shape)
    channels = [width * min(MOST, 1 << level) for level in range(doublings)]
    kinds = nn.ConvTranspose2d, nn.BatchNorm2d
    generator = partial(make_generator, side, channels[::-1], shape[0], *kinds)
    kinds_in_d = nn.Conv2d, nn.BatchNorm2d
    discriminator = partial(make_discriminator, side, channels, shape[0], *kinds_in_d)
    return generator, discriminator, Z_DIM


def make_generator(
    side: int,
    channels: list[int],
    sample_channels: int,
    convolution: Callable[..., nn.Module],
    norm: Callable[[int], nn.Module],
) -> nn.Module:
    """From z [b, 100] to samples [b, C, H, W] in [−1, 1], or to volumes."""
    ones = (1,) * (2 if convolution is nn.ConvTranspose2d else 3)
    layers = [
        nn.Unflatten(1, (Z_DIM, *ones)),
        *(convolution(Z_DIM, channels[0], side, bias=False), norm(channels[0]), nn.ReLU()),
    ]
    for before, after in pairwise(channels):
        layers += [convolution(before, after, 4, 2, 1, bias=False), norm(after), nn.ReLU()]
    last = convolution(channels[-1], sample_channels, 4, 2, 1, bias=False)
    return with_normal_weights(nn.Sequential(*layers, last, nn.Tanh()))


def make_discriminator(
    side: int,
    channels: list[int],
    sample_channels: int,
    convolution: Callable[..., nn.Module],
    norm: Callable[[int], nn.Module],
) -> nn.Module:
    """From samples [b, C, H, W], or volumes, to logits [b, 1]."""
    layers = [convolution(sample_channels, channels[0], 4, 2, 1, bias=False), nn.LeakyReLU(_SLOPE)]
    for before, after in pairwise(channels):
        inner = convolution(before, after, 4, 2, 1, bias=False)
        layers += [inner, norm(after), nn.LeakyReLU(_SLOPE)]
    last = convolution(channels[-1], 1, side, bias=False)
    return with_normal_weights(nn.Sequential(*layers, last, nn.Flatten()))
