"""Residual blocks that double or halve the side of a map (Miyato et al. 2018, figure 8).

BigGAN's are the same, with a norm that depends on the sample's class and noise (Brock et al. 2019,
figure 15).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UpBlock(nn.Module):
    """From [b, c, h, w] to [b, c', 2h, 2w]: norm, ReLU, twice the side, conv, norm, ReLU, conv.

    Args:
        before: c.
        after: c'.
        norm: makes a norm for a number of channels; it is called with the map and the condition.
    """

    def __init__(
        self, before: int, after: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = norm(before), norm(after)
        self.conv_1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv_2 = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Conv2d(before, after, 1)

    def forward(self, maps: Tensor, *condition: Tensor) -> Tensor:
        """Doubles the side.

        Args:
            maps: [b, c, h, w].
            condition: what the norms take besides; nothing for BatchNorm.
        """
        found = _doubled(F.relu(self.norm_1(maps, *condition)))
        found = F.relu(self.norm_2(self.conv_1(found), *condition))
        return torch.add(self.conv_2(found), self.shortcut(_doubled(maps)))


class DownBlock(nn.Module):
    """From [b, c, h, w] to [b, c', h/2, w/2]: ReLU, conv, ReLU, conv, mean of four.

    Args:
        before: c.
        after: c'.
        first: whether it sees the picture itself, which no ReLU may cut.
        halves: whether the side becomes half; else it stays.
    """

    def __init__(
        self, before: int, after: int, *, first: bool = False, halves: bool = True
    ) -> None:
        super().__init__()
        self._first, self._halves = first, halves
        self.conv_1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv_2 = nn.Conv2d(after, after, 3, padding=1)
        changes = before != after or halves
        self.shortcut = nn.Conv2d(before, after, 1) if changes else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        """Halves the side.

        Args:
            maps: [b, c, h, w].
        """
        found = self.conv_1(maps if self._first else F.relu(maps))
        found = self.conv_2(F.relu(found))
        if not self._halves:
            return torch.add(found, self.shortcut(maps))
        # On the picture a mean before the 1×1 convolution gives the same for less work.
        short = self.shortcut(_halved(maps)) if self._first else _halved(self.shortcut(maps))
        return torch.add(_halved(found), short)


def _doubled(maps: Tensor) -> Tensor:
    return F.interpolate(maps, scale_factor=2)


def _halved(maps: Tensor) -> Tensor:
    return F.avg_pool2d(maps, 2)


def down_blocks(image_channels: int, down: Sequence[int], flat: Sequence[int]) -> nn.Sequential:
    """The blocks of a discriminator, the first of which sees the picture.

    Args:
        image_channels: C.
        down: channels that the blocks make which halve the side.
        flat: channels that the blocks after them make.
    """
    pairs = pairwise([image_channels, *down, *flat])
    return nn.Sequential(
        *(
            DownBlock(before, after, first=place == 0, halves=place < len(down))
            for place, (before, after) in enumerate(pairs)
        )
    )
