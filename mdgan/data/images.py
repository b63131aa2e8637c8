"""From picture files to tensors."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from mdgan.errors import BadInput

Shape = tuple[int, int, int]
"""(C, H, W)."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""PIL reads more formats, but some of them start other programs."""
_ALWAYS_PIXELS = 1 << 23
_MOST_PIXELS_A_BYTE = 200


def image_to_tensor(image: Image.Image, shape: Shape) -> Tensor:
    """Turns a picture upright, puts it on white, makes it grey or RGB, crops and resizes it.

    Args:
        image: a picture of any size and mode.
        shape: (C, H, W) with C = 1 (grey) or 3 (RGB).

    Returns:
        float32 [C, H, W] in [−1, 1].
    """
    channels, height, width = shape
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of grey, which PIL would clip instead of scale
        upright = Image.fromarray((np.asarray(upright, dtype=np.uint32) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        layers = upright.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        upright = Image.alpha_composite(white, layers)
    upright = upright.convert("L" if channels == 1 else "RGB")
    fitted = ImageOps.fit(upright, (width, height), Image.Resampling.BILINEAR)
    pixels: Tensor = pil_to_tensor(fitted)
    return pixels_to_float(pixels)


def read_image(path: Path, shape: Shape) -> Tensor:
    """Reads one picture file and converts it as `image_to_tensor` does.

    Raises:
        BadInput: the file cannot be read as a picture, or claims to be far larger than it is.
    """
    try:
        with Image.open(path, formats=_FORMATS) as image:
            _check_size(image.size, path.stat().st_size)
            return image_to_tensor(image, shape)
    except Exception as error:  # a decoder may raise anything; the user must learn which file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(
            f"{path}: cannot read this picture ({reason}); remove or repair it"
        ) from error


def _check_size(size: tuple[int, int], num_bytes: int) -> None:
    """Refuses a small file that would fill the memory when decoded.

    Raises:
        ValueError: it claims more pixels than a picture of so few bytes has.
    """
    width, height = size
    if width * height > max(_ALWAYS_PIXELS, _MOST_PIXELS_A_BYTE * num_bytes):
        raise ValueError(f"{num_bytes} bytes that claim to be {width} × {height} pixels")


def pixels_to_float(pixels: Tensor) -> Tensor:
    """Pixels, uint8 in [0, 255], to float32 in [−1, 1]."""
    return pixels.to(torch.float32).div_(127.5).sub_(1.0)


def float_to_pixels(images: Tensor) -> Tensor:
    """Float in [−1, 1] to uint8 in [0, 255], rounded; values outside are clamped."""
    return images.add(1.0).mul(127.5).round().clamp(0, 255).to(torch.uint8)
