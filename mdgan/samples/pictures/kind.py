"""Pictures as a kind of sample, and grids of them."""

import io
from collections.abc import Mapping
from math import ceil, sqrt
from typing import ClassVar

import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of
from mdgan.samples.pictures.reading import float_to_pixels

_LEAST_SIDE_PIXELS = 48
_BACKGROUND = 32


def grid_png(images: Tensor, columns: int | None = None) -> bytes:
    """A grid of float [n, C, H, W] in [−1, 1] as PNG, small images enlarged without smoothing."""
    factor = max(1, ceil(_LEAST_SIDE_PIXELS / max(images.shape[-2:])))
    pixels = float_to_pixels(images)
    pixels = pixels.repeat_interleave(factor, dim=-2).repeat_interleave(factor, dim=-1)
    grid = make_grid(
        pixels, nrow=columns or ceil(sqrt(len(images))), padding=2, pad_value=_BACKGROUND
    )
    buffer = io.BytesIO()
    to_pil_image(grid).save(buffer, format="PNG")
    return buffer.getvalue()


def class_grid_png(images: Tensor, labels: Tensor) -> bytes:
    """Draws a grid with a row for each class of `labels`, int64 [n], the lowest above."""
    counts = torch.bincount(labels)
    columns = int(counts.max())
    empty = torch.full_like(images[:1], _BACKGROUND / 127.5 - 1).expand(columns, *images.shape[1:])
    rows = [
        torch.cat([images[labels == c], empty])[:columns] for c in range(len(counts)) if counts[c]
    ]
    return grid_png(torch.cat(rows), columns)


class Pictures(SampleKind):
    """Pictures [C, H, W], of which two are the same if their pixels in 8 bits are."""

    name: ClassVar[str] = "pictures"
    is_seen: ClassVar[bool] = True

    def why_not(self, shape: Shape) -> str:
        """They have channels, height and width."""
        return "" if len(shape) == 3 else "pictures have three sizes, (channels, height, width)"

    def contents(self, samples: Tensor) -> list[bytes]:
        """The pixels of each, uint8."""
        return [picture.tobytes() for picture in float_to_pixels(samples).numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """A grid, with a row for each class; or arrays."""
        return {".png": self._written_png, ".npz": npz_of}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A grid; see `grid_png`."""
        return grid_png(samples, columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A grid with a row for each class."""
        return class_grid_png(samples, labels)

    def _written_png(self, samples: Tensor, labels: Tensor | None) -> bytes:
        if labels is None or bool((labels == labels[0]).all()):
            return self.png(samples)
        return self.class_png(samples, labels)


PICTURES = Pictures()
