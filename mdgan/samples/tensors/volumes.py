"""Volumes as a kind of sample: [C, D, H, W], such as a CT or MR scan."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.samples.contract import Shape
from mdgan.samples.tensors.kind import SeenTensors

_SIZES = 4
_COLOURS = 3
_EMPTY = -0.75


class Volumes(SeenTensors):
    """Volumes, which are shown as their middle slices along depth, height and width."""

    name: ClassVar[str] = "volumes"
    most_scored: ClassVar[int] = 1000

    def why_not(self, shape: Shape) -> str:
        """They have channels, depth, height and width."""
        if len(shape) == _SIZES:
            return ""
        return "volumes have four sizes, (channels, depth, height, width)"

    def pictures(self, samples: Tensor) -> Tensor:
        """Of each volume its middle slices along depth, height and width, side by side.

        Of volumes with other than 1 or 3 channels, the first channel.
        """
        if samples.shape[1] not in (1, _COLOURS):
            samples = samples[:, :1]
        depth, height, width = (size // 2 for size in samples.shape[2:])
        slices = [samples[:, :, depth], samples[:, :, :, height], samples[..., width]]
        tallest = max(one.shape[-2] for one in slices)
        padded = [F.pad(one, (0, 0, 0, tallest - one.shape[-2]), value=_EMPTY) for one in slices]
        return torch.cat(padded, dim=-1)


VOLUMES = Volumes()
