"""BigGAN (Brock, Donahue and Simonyan 2019, section 3 and appendix B).

From 128×128 pixels on the channels are those of the paper's tables 4 to 6; up to 64×64 those of its
authors' code, in which small pictures have layers of equal width.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mdgan.gan.build import Parts
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from mdgan.models.blocks import ConditionalBatchNorm, SelfAttention, UpBlock, down_blocks, growth_of

_CHUNK = 20  # this many numbers of z go to the first layer, and as many to each block
_CLASS_NUMBERS = 128  # the length of a class's embedding, which all blocks of G share
_ATTENTION_SIDE = 64
"""The side of the maps with self-attention; half of the picture's side if that is smaller."""
_SMALL, _SMALL_HALVING = (4, 4, 4, 4), 2
_UP = {
    4: (16, 16, 8, 4, 2),
    5: (16, 16, 8, 4, 2, 1),
    6: (16, 16, 8, 8, 4, 2, 1),
    7: (16, 16, 8, 8, 4, 2, 1, 1),
}
_DOWN = {
    4: (1, 2, 4, 8, 16),
    5: (1, 2, 4, 8, 16, 16),
    6: (1, 2, 4, 8, 8, 16, 16),
    7: (1, 1, 2, 4, 8, 8, 16, 16),
}
"""By the number of doublings, the blocks' channels in widths. G's first, D's last keep the side."""


def make(shape: tuple[int, int, int], num_classes: int, width: int) -> Parts:
    """Returns the models for pictures of a shape; see `Architecture.parts`.

    Args:
        width: channels of the layers nearest to a large picture; a small one has four times as
            many.
    """
    side, doublings = growth_of(shape)
    if doublings > max(_UP):
        raise ValueError(f"has no table for pictures of {shape[1]}×{shape[2]} pixels")
    up = [width * times for times in _UP.get(doublings, _SMALL[: doublings + 1])]
    down = [width * times for times in _DOWN.get(doublings, _SMALL)]
    num_halving = doublings if doublings in _DOWN else _SMALL_HALVING
    # The number of G's blocks before the attention; D counts from the picture.
    from_square = min(doublings - 1, (_ATTENTION_SIDE // side).bit_length() - 1)
    halving, flat = down[:num_halving], down[num_halving:]
    return (
        partial(BigGANGenerator, side, up, from_square, shape[0], num_classes),
        partial(BigGANDiscriminator, shape[0], halving, flat, doublings - from_square, num_classes),
        _CHUNK * (doublings + 1),
    )


class BigGANGenerator(nn.Module):
    """From z [b, 20 (k + 1)] and classes y [b] to samples [b, C, H, W] in [−1, 1]."""

    def __init__(
        self, side: int, channels: list[int], attends_at: int, image_channels: int, num_classes: int
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self._first = (channels[0], side, side)
        self._attends_at = attends_at
        self.classes = nn.Embedding(num_classes, _CLASS_NUMBERS)
        self.linear = nn.Linear(_CHUNK, channels[0] * side * side)
        norm = partial(ConditionalBatchNorm, condition_size=_CLASS_NUMBERS + _CHUNK)
        self.blocks = nn.ModuleList(
            UpBlock(before, after, norm) for before, after in pairwise(channels)
        )
        self.attention = SelfAttention(channels[attends_at])
        self.norm = nn.BatchNorm2d(channels[-1])
        self.conv = nn.Conv2d(channels[-1], image_channels, 3, padding=1)
        _draw_weights(self)
        for part in (self.linear, self.blocks, self.attention, self.conv):
            add_spectral_norm(part)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        classes = self.classes(labels)
        first, *chunks = torch.split(z, _CHUNK, 1)
        maps = self.linear(first).view(-1, *self._first)
        for number, (block, chunk) in enumerate(zip(self.blocks, chunks, strict=True)):
            if number == self._attends_at:
                maps = self.attention(maps)
            maps = block(maps, torch.cat([classes, chunk], 1))
        samples: Tensor = self.conv(F.relu(self.norm(maps))).tanh()
        return samples


class BigGANDiscriminator(nn.Module):
    """From samples [b, C, H, W] and their classes to logits [b, 1], by projection.

    The logit is a linear function of the features, plus their inner product with the embedding of
    the class (Miyato and Koyama 2018).
    """

    def __init__(
        self,
        image_channels: int,
        down: list[int],
        flat: list[int],
        attends_at: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.blocks = down_blocks(image_channels, down, flat)
        self.blocks.insert(attends_at, SelfAttention(down[attends_at - 1]))
        self.classes = nn.Embedding(num_classes, flat[-1])
        self.linear = nn.Linear(flat[-1], 1)
        _draw_weights(self)
        add_spectral_norm(self)

    def forward(self, samples: Tensor, labels: Tensor) -> Tensor:
        features = F.relu(self.blocks(samples)).sum((2, 3))
        projected = (self.classes(labels) * features).sum(1, keepdim=True)
        logits: Tensor = self.linear(features) + projected
        return logits


def _draw_weights(model: nn.Module) -> None:
    """Draws all weights as orthogonal matrices (Saxe et al. 2014)."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.Embedding):
            nn.init.orthogonal_(layer.weight)
