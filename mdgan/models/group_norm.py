"""GroupNorm instead of BatchNorm (Wu and He 2018): each sample is normalised by itself."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_MOST_GROUPS, _LEAST_IN_A_GROUP = 32, 4


def with_group_norm(build: Callable[[], nn.Module]) -> nn.Module:
    """Builds a model, and puts GroupNorm where it has BatchNorm, with the same scale and shift."""
    model = build()
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, _BatchNorm):
                setattr(module, name, _like(layer))
    return _like(model) if isinstance(model, _BatchNorm) else model


def num_groups(channels: int) -> int:
    """As many as divide the channels: 32 at most, of 4 channels at least where that goes."""
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
