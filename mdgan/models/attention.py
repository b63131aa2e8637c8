"""Self-attention over the pixels of a map (Zhang et al. 2019, section 3), as BigGAN has it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_KEY_SHARE, _VALUE_SHARE = 8, 2


class SelfAttention(nn.Module):
    """Adds to every pixel what it attends to in the whole map; at first nothing (γ = 0).

    Keys and values are pooled to half the side, as in the code of Zhang et al.

    Args:
        channels: c.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        keys, values = max(1, channels // _KEY_SHARE), max(1, channels // _VALUE_SHARE)
        self.query = nn.Conv2d(channels, keys, 1, bias=False)
        self.key = nn.Conv2d(channels, keys, 1, bias=False)
        self.value = nn.Conv2d(channels, values, 1, bias=False)
        self.output = nn.Conv2d(values, channels, 1, bias=False)
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, maps: Tensor) -> Tensor:
        """Attends.

        Args:
            maps: [b, c, h, w].

        Returns:
            The same shape.
        """
        queries = self.query(maps).flatten(2)
        keys = F.max_pool2d(self.key(maps), 2).flatten(2)
        values = F.max_pool2d(self.value(maps), 2).flatten(2)
        weights = torch.bmm(queries.transpose(1, 2), keys).softmax(-1)
        found = torch.bmm(values, weights.transpose(1, 2)).view(len(maps), -1, *maps.shape[2:])
        attended: Tensor = maps + self.gamma * self.output(found)
        return attended
