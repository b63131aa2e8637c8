"""The models of MD-GAN's experiments (Hardy et al. 2019, section V-A.b): an MLP, and CNNs.

The MLP as the paper describes it has the number of parameters that the paper gives; the CNNs have
not. What the paper leaves open is as in ACGAN, since the paper calls its models so.
"""

from functools import partial
from math import prod

from torch import nn

from mdgan.gan.build import Parts
from mdgan.models import acgan
from mdgan.models.acgan import NamingDiscriminator, ToldGenerator
from mdgan.models.blocks import growth_of

_INPUT_SIZE = 100
"""The number of G's inputs, noise and class, which follows from the MLP's 716,560 parameters."""
_SLOPE = 0.2
_TIMES_WIDTH = {4: 6, 7: 2}
_GROWTH = {4: 2, 7: 4}
"""By the side of G's first map: channels of G's last map in those of D's first layer, and channels
of each other map in those of the next. 32·32 pixels come from 384, 192 and 96 channels, 28·28 from
128 and 32."""
_MOST = 4


def make_mlp(shape: tuple[int, ...], num_classes: int, width: int) -> Parts:
    """Returns the MLPs for samples of a shape; see `Architecture.parts`."""
    noise_size = _noise_size(num_classes)
    generator = partial(_mlp_generator, noise_size, num_classes, width, shape)
    return generator, partial(_mlp_discriminator, shape, num_classes, width), noise_size


def make_cnn(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the CNNs for pictures of a shape; see `Architecture.parts`.

    Args:
        width: channels of D's first layer; each of the five others has twice as many as the last
            one. G's last map has six times as many, or twice as many for sides of 7·2ᵏ pixels.
    """
    side, doublings = growth_of(shape)
    last, noise_size = _TIMES_WIDTH[side] * width, _noise_size(num_classes)
    channels = [last * min(_MOST, _GROWTH[side] ** level) for level in range(doublings)]
    generator = partial(
        acgan.make_generator, noise_size, num_classes, side, channels[::-1], shape[0]
    )
    discriminator = partial(acgan.make_discriminator, shape, num_classes, width, sees_batch=True)
    return generator, discriminator, noise_size


def _noise_size(num_classes: int) -> int:
    """The length of z: 100 less the classes, or 100 if there are more than 50 classes."""
    return _INPUT_SIZE - (num_classes if 2 * num_classes <= _INPUT_SIZE else 0)


def _mlp_generator(
    noise_size: int, num_classes: int, width: int, shape: tuple[int, ...]
) -> nn.Module:
    """From z [b, n] and classes y [b] to samples [b, C, H, W] in [−1, 1]."""
    return ToldGenerator(
        num_classes,
        nn.Linear(noise_size + num_classes, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, prod(shape)),
        nn.Tanh(),
        nn.Unflatten(1, shape),
    )


def _mlp_discriminator(shape: tuple[int, ...], num_classes: int, width: int) -> nn.Module:
    """From samples [b, C, H, W] to logits [b], and logits of classes [b, K]."""
    return NamingDiscriminator(
        num_classes,
        nn.Flatten(),
        nn.Linear(prod(shape), width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, width),
        nn.LeakyReLU(_SLOPE),
        nn.Linear(width, 1 + num_classes),
    )
