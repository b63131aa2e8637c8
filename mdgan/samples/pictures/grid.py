"""Pictures of what a generator makes."""

import io
from math import ceil, sqrt

import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

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
