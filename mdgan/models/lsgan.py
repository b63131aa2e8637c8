"""LSGAN (Mao et al. 2017) as FeGAN uses it for MNIST and Fashion-MNIST (its section 4).

FeGAN's paper counts the layers; the code that the paper names as its source gives the channels.
FeGAN's sigmoid at D's end is left out here: discriminators return logits, as LSGAN's does.
"""

from functools import partial

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models.blocks import growth_of, with_normal_weights

Z_DIM = 100
_TIMES_WIDTH = 8, 4
"""Channels of G's first and last maps in widths; D's layers have 1, 2, 4 and 8 times the width."""
_HALVINGS = 4
_SLOPE, _DROPPED = 0.2, 0.25


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the models for pictures of a shape; see `Architecture.parts`."""
    del num_classes
    growth_of(shape)  # refuses the shapes that other architectures refuse
    return partial(_generator, shape, width), partial(_discriminator, shape, width), Z_DIM


def _generator(shape: tuple[int, int, int], width: int) -> nn.Module:
    """From z [b, 100] to samples [b, C, H, W] in [−1, 1]: a linear layer and three convolutions."""
    half = _half(shape[1])
    side = _half(half)
    first, last = (times * width for times in _TIMES_WIDTH)
    return with_normal_weights(
        nn.Sequential(
            nn.Linear(Z_DIM, first * side * side),
            nn.Unflatten(1, (first, side, side)),
            nn.BatchNorm2d(first),
            *_growing(first, first, half),
            *_growing(first, last, shape[1]),
            nn.Conv2d(last, shape[0], 3, padding=1),
            nn.Tanh(),
        )
    )


def _half(side: int) -> int:
    return (side + 1) // 2


def _growing(inputs: int, outputs: int, side: int) -> list[nn.Module]:
    return [
        nn.Upsample(side),
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(_SLOPE),
    ]


def _discriminator(shape: tuple[int, int, int], width: int) -> nn.Module:
    """From samples [b, C, H, W] to logits [b, 1]: four convolutions and a linear layer."""
    inputs, side = shape[0], shape[1]
    layers: list[nn.Module] = []
    for number in range(_HALVINGS):
        outputs, side = width << number, _half(side)
        layers += [
            nn.Conv2d(inputs, outputs, 3, 2, 1),
            nn.LeakyReLU(_SLOPE),
            nn.Dropout2d(_DROPPED),
            *([nn.BatchNorm2d(outputs)] if number in (1, 2) else []),
        ]
        inputs = outputs
    last = nn.Linear(inputs * side * side, 1)
    return with_normal_weights(nn.Sequential(*layers, nn.Flatten(), last))
