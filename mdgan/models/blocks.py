"""Blocks that several architectures share, and the doublings from a small square to a picture."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

NUM_KERNELS, KERNEL_SIZE = 100, 5
"""B and C of mini-batch discrimination, from the authors' code; the paper leaves them open."""
_KEY_SHARE, _VALUE_SHARE = 8, 2  # self-attention divides its channels by these
_MOST_GROUPS, _LEAST_IN_A_GROUP = 32, 4
_DEVIATION = 0.02
SMALLEST = (4, 7)  # sides of the squares that pictures grow from


class Growth(NamedTuple):
    """How a picture grows from a square of `side` pixels: after k doublings it has `side`·2ᵏ."""

    side: int
    doublings: int


def growth_of(shape: tuple[int, int, int]) -> Growth:
    """The growth of pictures of a shape; ValueError if their sides do not fit."""
    _, height, width = shape
    for side in SMALLEST:
        doublings = (height // side).bit_length() - 1
        if height == width == side << max(1, doublings):
            return Growth(side, doublings)
    raise ValueError(
        f"makes squares with sides of 4·2ᵏ or 7·2ᵏ pixels (8, 14, 16, 28, 32, 56, 64, …), not "
        f"{height}×{width}"
    )


class UpBlock(nn.Module):
    """From [b, c, h, w] to [b, c', 2h, 2w]: norm, ReLU, twice the side, conv, norm, ReLU, conv."""

    def __init__(
        self, inputs: int, outputs: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = norm(inputs), norm(outputs)
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, maps: Tensor, *condition: Tensor) -> Tensor:
        inner = F.interpolate(F.relu(self.norm_1(maps, *condition)), scale_factor=2)
        inner = F.relu(self.norm_2(self.conv_1(inner), *condition))
        return torch.add(self.conv_2(inner), self.shortcut(F.interpolate(maps, scale_factor=2)))


class DownBlock(nn.Module):
    """From [b, c, h, w] to [b, c', h/2, w/2]: ReLU, conv, ReLU, conv, mean of four.

    Args:
        first: whether its input is the picture itself, which no ReLU may cut.
        halves: whether it halves the side.
    """

    def __init__(
        self, inputs: int, outputs: int, *, first: bool = False, halves: bool = True
    ) -> None:
        super().__init__()
        self._first, self._halves = first, halves
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        changes = inputs != outputs or halves
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if changes else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.conv_1(maps if self._first else F.relu(maps))
        inner = self.conv_2(F.relu(inner))
        if not self._halves:
            return torch.add(inner, self.shortcut(maps))
        # On the picture, a mean before the 1×1 convolution has the same result for less work.
        halved = F.avg_pool2d(maps if self._first else self.shortcut(maps), 2)
        short = self.shortcut(halved) if self._first else halved
        return torch.add(F.avg_pool2d(inner, 2), short)


def down_blocks(image_channels: int, down: Sequence[int], flat: Sequence[int]) -> nn.Sequential:
    """The blocks of a discriminator; the first takes the picture, those of `flat` halve nothing."""
    pairs = pairwise([image_channels, *down, *flat])
    return nn.Sequential(
        *(
            DownBlock(inputs, outputs, first=place == 0, halves=place < len(down))
            for place, (inputs, outputs) in enumerate(pairs)
        )
    )


class ConditionalBatchNorm(nn.Module):
    """BatchNorm with the scale 1 + A·c and the shift B·c (Brock et al. 2019, figure 15)."""

    def __init__(self, channels: int, condition_size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.scale = nn.Linear(condition_size, channels, bias=False)
        self.shift = nn.Linear(condition_size, channels, bias=False)

    def forward(self, maps: Tensor, condition: Tensor) -> Tensor:
        scale, shift = 1 + self.scale(condition), self.shift(condition)
        scaled: Tensor = self.norm(maps) * scale[:, :, None, None] + shift[:, :, None, None]
        return scaled


class SelfAttention(nn.Module):
    """Adds to every pixel a weighted sum over the whole map; at first nothing (γ = 0).

    Keys and values are pooled to half the side, as in the code of Zhang et al.
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
        queries = self.query(maps).flatten(2)
        keys = F.max_pool2d(self.key(maps), 2).flatten(2)
        values = F.max_pool2d(self.value(maps), 2).flatten(2)
        weights = torch.bmm(queries.transpose(1, 2), keys).softmax(-1)
        inner = torch.bmm(values, weights.transpose(1, 2)).view(len(maps), -1, *maps.shape[2:])
        attended: Tensor = maps + self.gamma * self.output(inner)
        return attended


class MinibatchDiscrimination(nn.Module):
    """Adds to the features of each sample how close all samples of the batch are to it.

    With f(x_i) of A numbers, T of A × B × C and M_i = f(x_i) T:
    o(x_i)_k = Σ_j exp(−‖M_ik − M_jk‖₁) over the whole batch.
    """

    def __init__(self, num_features: int, num_kernels: int = NUM_KERNELS) -> None:
        super().__init__()
        self._num_kernels = num_kernels
        self.tensor = nn.Linear(num_features, num_kernels * KERNEL_SIZE, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Appends the closeness to the features."""
        rows = self.tensor(features).float().unflatten(1, (self._num_kernels, KERNEL_SIZE))
        distances = (rows[:, None] - rows[None]).abs().sum(3)
        return torch.cat([features, distances.neg().exp().sum(1).to(features.dtype)], 1)


def with_normal_weights(model: nn.Sequential) -> nn.Sequential:
    """Draws convolutions and norms with a deviation of 0.02 (Radford et al. 2016, section 4)."""
    for layer in model:
        if isinstance(layer, _ConvNd):
            nn.init.normal_(layer.weight, 0.0, _DEVIATION)
        elif isinstance(layer, _BatchNorm):
            nn.init.normal_(layer.weight, 1.0, _DEVIATION)
    return model


def with_group_norm(build: Callable[[], nn.Module]) -> nn.Module:
    """Builds a model with GroupNorm (Wu and He 2018), not BatchNorm: it judges samples apart."""
    model = build()
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, _BatchNorm):
                setattr(module, name, _like(layer))
    return _like(model) if isinstance(model, _BatchNorm) else model


def num_groups(channels: int) -> int:
    """The most groups that divide the channels: at most 32, of at least 4 channels if possible."""
    most = max(1, min(_MOST_GROUPS, channels // _LEAST_IN_A_GROUP))
    return max(groups for groups in range(1, most + 1) if channels % groups == 0)


@torch.no_grad()
def _like(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    norm = nn.GroupNorm(num_groups(channels), channels, layer.eps, layer.affine)
    if layer.affine:
        norm.weight.copy_(layer.weight)
        norm.bias.copy_(layer.bias)
    return norm
