"""Pictures of what a generator makes."""

import io
from math import ceil, sqrt

from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from mdgan.data.images import float_to_pixels

_LEAST_SIDE_PIXELS = 48


def grid_png(images: Tensor, columns: int | None = None) -> bytes:
    """Draws a grid; small images are enlarged without smoothing so that people can see them.

    Args:
        images: float [n, C, H, W] in [−1, 1].
        columns: images in a row; None for a square.

    Returns:
        A PNG file.
    """
    factor = max(1, ceil(_LEAST_SIDE_PIXELS / max(images.shape[-2:])))
    pixels = float_to_pixels(images)
    pixels = pixels.repeat_interleave(factor, dim=-2).repeat_interleave(factor, dim=-1)
    grid = make_grid(pixels, nrow=columns or ceil(sqrt(len(images))), padding=2, pad_value=32)
    buffer = io.BytesIO()
    to_pil_image(grid).save(buffer, format="PNG")
    return buffer.getvalue()
