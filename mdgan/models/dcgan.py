"""DCGAN (Radford, Metz and Chintala 2016, section 3 and figure 1).

Widths that the paper does not give, those of D, are of its authors' code, which has as many
channels in D as in G.
"""

from functools import partial
from itertools import pairwise

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models.blocks import growth_of

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
_MOST = 8
"""Times the width: no layer has more channels."""
_DEVIATION = 0.02
_SLOPE = 0.2


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """The models for pictures of a shape; see `Architecture.parts`."""
    del num_classes
    side, doublings = growth_of(shape)
    channels = [width * min(_MOST, 1 << level) for level in range(doublings)]
    generator = partial(_generator, side, channels[::-1], shape[0])
    discriminator = partial(_discriminator, side, channels, shape[0])
    return generator, discriminator, Z_DIM


def _generator(side: int, channels: list[int], image_channels: int) -> nn.Module:
    """From z [b, 100] to samples [b, C, H, W] in [−1, 1]."""
    layers: list[nn.Module] = [
        nn.Unflatten(1, (Z_DIM, 1, 1)),
        nn.ConvTranspose2d(Z_DIM, channels[0], side, bias=False),
        nn.BatchNorm2d(channels[0]),
        nn.ReLU(),
    ]
    for before, after in pairwise(channels):
        layers += [
            nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    layers += [nn.ConvTranspose2d(channels[-1], image_channels, 4, 2, 1, bias=False), nn.Tanh()]
    return _with_weights(nn.Sequential(*layers))


def _discriminator(side: int, channels: list[int], image_channels: int) -> nn.Module:
    """From samples [b, C, H, W] to logits [b, 1]."""
    layers: list[nn.Module] = [
        nn.Conv2d(image_channels, channels[0], 4, 2, 1, bias=False),
        nn.LeakyReLU(_SLOPE),
    ]
    for before, after in pairwise(channels):
        layers += [
            nn.Conv2d(before, after, 4, 2, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.LeakyReLU(_SLOPE),
        ]
    layers += [nn.Conv2d(channels[-1], 1, side, bias=False), nn.Flatten()]
    return _with_weights(nn.Sequential(*layers))


def _with_weights(model: nn.Sequential) -> nn.Sequential:
    """Draws all weights with a deviation of 0.02 (section 4)."""
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, _DEVIATION)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, _DEVIATION)
    return model
