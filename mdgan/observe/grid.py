"""Pictures of what a generator makes."""

import io
from math import ceil, sqrt

import torch
from torch import Tensor, nn
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from mdgan.data.images import float_to_pixels
from mdgan.gan.labels import num_classes_of
from mdgan.gan.sampling import draw_samples

_LEAST_SIDE_PIXELS = 48
_BACKGROUND = 32
_NUM_SAMPLES = 64
_MOST_ROWS, _OF_A_CLASS = 16, 10


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


def usual_grid(generator: nn.Module, z_dim: int, seed: int) -> tuple[bytes, int]:
    """A PNG file of what is shown of a generator by default, and how many samples are in it.

    These are 64, or 10 of each class if G is conditional; of more than 16 classes 16 are shown.
    """
    num_classes = num_classes_of(generator)
    if num_classes is None:
        return grid_png(draw_samples(generator, _NUM_SAMPLES, z_dim, seed)), _NUM_SAMPLES
    num_rows = min(num_classes, _MOST_ROWS)
    classes = torch.arange(num_rows) * num_classes // num_rows
    labels = classes.repeat_interleave(_OF_A_CLASS)
    samples = draw_samples(generator, len(labels), z_dim, seed, labels)
    return class_grid_png(samples, labels), len(labels)
