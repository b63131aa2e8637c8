"""Volumes as a kind of sample: [C, D, H, W], such as a CT or MR scan."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of
from mdgan.samples.pictures.grid import class_grid_png, grid_png

_SIZES = 4
_COLOURS = 3
_EMPTY = -0.75


class Volumes(SampleKind):
    """Volumes, which are shown as their middle slices along depth, height and width."""

    name: ClassVar[str] = "volumes"
    is_seen: ClassVar[bool] = True
    most_scored: ClassVar[int] = 1000

    def why_not(self, shape: Shape) -> str:
        """They have channels, depth, height and width."""
        if len(shape) == _SIZES:
            return ""
        return "volumes have four sizes, (channels, depth, height, width)"

    def contents(self, samples: Tensor) -> list[bytes]:
        """The values of each, float32."""
        return [sample.tobytes() for sample in samples.contiguous().numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """Arrays, or a grid of middle slices."""
        return {".npz": npz_of, ".png": lambda samples, _: self.png(samples)}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A grid; of each volume its three middle slices, side by side."""
        return grid_png(middle_slices(samples), columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A grid with a row for each class."""
        return class_grid_png(middle_slices(samples), labels)


def middle_slices(volumes: Tensor) -> Tensor:
    """Pictures [n, 1 or 3, H', W'] of [n, C, D, H, W]: seen along depth, height and width.

    Of volumes with other than 1 or 3 channels, the first channel.
    """
    if volumes.shape[1] not in (1, _COLOURS):
        volumes = volumes[:, :1]
    depth, height, width = (size // 2 for size in volumes.shape[2:])
    slices = [volumes[:, :, depth], volumes[:, :, :, height], volumes[..., width]]
    tallest = max(one.shape[-2] for one in slices)
    padded = [F.pad(one, (0, 0, 0, tallest - one.shape[-2]), value=_EMPTY) for one in slices]
    return torch.cat(padded, dim=-1)


VOLUMES = Volumes()
