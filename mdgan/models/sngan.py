"""SNGAN's residual networks (Miyato et al. 2018, appendix B.4, tables 3 and 5).

Pictures of up to three doublings have the networks of the table for CIFAR-10, in which all layers
are equally wide; larger pictures have those of the table for ImageNet.
"""

from functools import partial
from itertools import pairwise
from math import sqrt
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.gan.build import Parts
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from mdgan.models.blocks import UpBlock, down_blocks, growth_of

Z_DIM = 128
_FEW_DOUBLINGS = 3
_MOST = 16  # no layer has more channels than this many times the width


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the models for pictures of a shape; see `Architecture.parts`.

    Args:
        width: channels of the layers nearest to a large picture; a small one has four times as many
            in G and twice as many in D.
    """
    del num_classes
    side, doublings = growth_of(shape)
    if doublings <= _FEW_DOUBLINGS:
        up, down, flat = [4 * width] * doublings, [2 * width] * 2, [2 * width] * 2
    else:
        down = [width * min(_MOST, 1 << level) for level in range(doublings)]
        up, flat = down[::-1], down[-1:]
    generator = partial(SNGANGenerator, side, up, shape[0])
    return generator, partial(SNGANDiscriminator, shape[0], down, flat), Z_DIM


class SNGANGenerator(nn.Module):
    """From z [b, 128] to samples [b, C, H, W] in [−1, 1]."""

    def __init__(self, side: int, channels: list[int], image_channels: int) -> None:
        super().__init__()
        self._first = (channels[0], side, side)
        self.linear = nn.Linear(Z_DIM, channels[0] * side * side)
        pairs = pairwise([channels[0], *channels])
        self.blocks = nn.Sequential(*(UpBlock(before, after) for before, after in pairs))
        self.norm = nn.BatchNorm2d(channels[-1])
        self.conv = nn.Conv2d(channels[-1], image_channels, 3, padding=1)
        _draw_weights(self)

    def forward(self, z: Tensor) -> Tensor:
        maps = self.blocks(self.linear(z).view(-1, *self._first))
        samples: Tensor = self.conv(F.relu(self.norm(maps))).tanh()
        return samples


class SNGANDiscriminator(nn.Module):
    """From samples [b, C, H, W] to logits [b, 1], with spectral norm on every layer."""

    def __init__(self, image_channels: int, down: list[int], flat: list[int]) -> None:
        super().__init__()
        self.blocks = down_blocks(image_channels, down, flat)
        self.linear = nn.Linear(flat[-1], 1)
        _draw_weights(self)
        add_spectral_norm(self)

    def forward(self, samples: Tensor) -> Tensor:
        logits: Tensor = self.linear(F.relu(self.blocks(samples)).sum((2, 3)))
        return logits


def _draw_weights(model: nn.Module) -> None:
    """Draws weights as Glorot and Bengio 2010; with √2 times the deviation for 3×3 convolutions."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            is_3x3 = isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)
            nn.init.xavier_uniform_(layer.weight, gain=sqrt(2) if is_3x3 else 1.0)
            nn.init.zeros_(cast(Tensor, layer.bias))
