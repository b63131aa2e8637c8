"""From picture files to tensors."""

import contextlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from mdgan.errors import BadInput, reason_of
from mdgan.storage.budget import check_picture, check_whole

PictureShape = tuple[int, int, int]
"""(C, H, W)."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""PIL reads more formats, but some of them start other programs."""
_MOST_IN_8_BITS, _MOST_IN_16_BITS = (1 << 8) - 1, (1 << 16) - 1


def image_to_tensor(image: Image.Image, shape: PictureShape) -> Tensor:
    """Turns a picture upright, puts it on white, makes it grey or RGB, crops and resizes it."""
    return _to_tensor(_fitted(image, shape))


def _to_tensor(image: Image.Image) -> Tensor:
    # numpy, as many threads may read at once: of torch each would start a team of threads.
    return torch.from_numpy(_OF_PIXEL[pil_to_tensor(image).numpy()])


def _fitted(image: Image.Image, shape: PictureShape) -> Image.Image:
    channels, height, width = shape
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of grey, which PIL would clip instead of scale
        values = np.asarray(upright)
        if values.min() < 0 or values.max() > _MOST_IN_16_BITS:
            raise ValueError(f"values from {values.min()} to {values.max()} are not of 16 bits")
        upright = Image.fromarray((values >> 8).astype(np.uint8))
    if upright.mode == "F":
        values = np.asarray(upright)
        low, high = float(values.min()), float(values.max())
        if low < 0 or not 1 < high <= _MOST_IN_8_BITS:
            raise ValueError(f"floating point values from {low:g} to {high:g}, not from 0 to 255")
    if upright.has_transparency_data:
        layers = upright.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        upright = Image.alpha_composite(white, layers)
    upright = upright.convert("L" if channels == 1 else "RGB")
    return ImageOps.fit(upright, (width, height), Image.Resampling.BILINEAR)


def read_image(path: Path, shape: PictureShape) -> Tensor:
    """Reads one picture file and converts it as `image_to_tensor` does."""
    try:
        return _to_tensor(read_fitted(path, shape))
    except Exception as error:  # a decoder may raise anything; the user must learn which file
        raise BadInput(
            f"{path}: cannot read this picture ({why_unreadable(error, path)}); remove or repair it"
        ) from error


def read_fitted(path: Path, shape: PictureShape, *, roughly: bool = False) -> Image.Image:
    """Decodes one picture file and makes it upright, grey or RGB, and of the right size.

    With `roughly` a JPEG is read whole but decoded coarsely, which is many times faster.
    """
    check_whole(path)  # what a TIFF tells of itself may be as long
    with Image.open(path, formats=_FORMATS) as image:
        check_picture(image.size, path.stat().st_size)
        if roughly:
            image.draft(image.mode, shape[:0:-1])
        return _fitted(image, shape)


def why_unreadable(error: Exception, path: Path | None) -> str:
    """Says in a few words, without the path, why a sample cannot be read."""
    if isinstance(error, OSError) and error.errno and error.strerror:
        return error.strerror
    if isinstance(error, UnidentifiedImageError) and path is not None:
        with contextlib.suppress(OSError):
            return "it is empty" if path.stat().st_size == 0 else "no picture of a known format"
    return reason_of(error)


def pixels_to_float(pixels: Tensor) -> Tensor:
    """Pixels, uint8 in [0, 255], to float32 in [−1, 1]."""
    return pixels.to(torch.float32).div_(127.5).sub_(1.0)


_OF_PIXEL = pixels_to_float(torch.arange(_MOST_IN_8_BITS + 1)).numpy()
"""The float of each pixel value, float32 [256]."""


def float_to_pixels(images: Tensor) -> Tensor:
    """Float in [−1, 1] to uint8 in [0, 255], rounded; values outside are clamped."""
    return images.add(1.0).mul(127.5).round().clamp(0, 255).to(torch.uint8)
