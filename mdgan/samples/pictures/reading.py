"""Reads picture files as tensors."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from mdgan.errors import BadInput, reason_of
from mdgan.samples.pictures.files import OF_PAGES, kind_of_content, readable_formats
from mdgan.spelling import key
from mdgan.storage.budget import check_picture, check_whole

PictureShape = tuple[int, int, int]
"""(C, H, W)."""

_MOST_IN_8_BITS = (1 << 8) - 1
_PHOTOMETRIC = 262  # a tag of TIFF
_THIN = 3
"""Of a picture this many times as long as wide, networks see at most a third."""
MOST_OF_16_BITS = "the largest value of 16 bits"
_WAY_OUT = "; save it with 8 or 16 bits a value"


Seen = dict[str, tuple[float, str]]
"""Traits of a sample that networks do not see: a text about all samples with the trait, or the
trait's name, → a number, 0 without the trait, and a text about this sample."""


def image_to_tensor(image: Image.Image, shape: PictureShape) -> Tensor:
    """Turns a picture upright, puts it on white, makes it grey or RGB, crops and resizes it."""
    return _to_tensor(_fitted(image, shape))


def _to_tensor(image: Image.Image) -> Tensor:
    # numpy, since many threads may read at once: with torch, each would start a team of threads.
    return torch.from_numpy(_OF_PIXEL[np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)])


def _fitted(image: Image.Image, shape: PictureShape, bits: int = 16) -> Image.Image:
    channels, height, width = shape
    if bits < 16 and _has_deep_colours(image):
        way_out = f"save it with 8, or use {key('picture_bits', 16)}"
        raise ValueError(f"of 16 bits a colour the upper 8 are read: {way_out}")
    # PIL inverts such pictures itself only if they have 8 bits.
    has_white_zero = getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of grey, which PIL would clip instead of scale
        values = np.asarray(upright)
        if values.min() < 0 or values.max() >= 1 << bits:
            extremes = f"values from {values.min()} to {values.max()}"
            raise ValueError(f"{extremes} are not of {bits} bits{_WAY_OUT}")
        values = (1 << bits) - 1 - values if has_white_zero else values
        upright = Image.fromarray((values >> (bits - 8)).astype(np.uint8))
    if upright.mode == "F":
        values = np.asarray(upright)
        low, high = float(values.min()), float(values.max())
        if low < 0 or not 1 < high <= _MOST_IN_8_BITS:
            extremes = f"floating point values from {low:g} to {high:g}"
            raise ValueError(f"{extremes}, not from 0 to 255{_WAY_OUT}")
        upright = Image.fromarray(_MOST_IN_8_BITS - values) if has_white_zero else upright
    if upright.has_transparency_data:
        layers = upright.convert("RGBA")
        white = Image.new("RGBA", layers.size, "white")
        upright = Image.alpha_composite(white, layers)
    upright = upright.convert("L" if channels == 1 else "RGB")
    return ImageOps.fit(upright, (width, height), Image.Resampling.BILINEAR)


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether an undecoded picture has 16 bits a colour, of which PIL reads only 8."""
    layout = str(getattr(image, "tile", ""))
    return ";16" in layout and not image.mode.startswith("I")


def read_image(path: Path, shape: PictureShape, bits: int = 16) -> Tensor:
    """Reads one picture file and converts it as `image_to_tensor` does.

    Args:
        bits: how many bits values have, if more than 8.
    """
    try:
        with _opened(path) as image:
            return _to_tensor(_fitted(image, shape, bits))
    except Exception as error:  # a decoder may raise anything; the user must learn which file
        why = f"cannot read this picture ({why_unreadable(error, path)})"
        raise BadInput(path, why, "remove or repair it") from error


def look_at(path: Path, shape: PictureShape, bits: int = 16) -> Seen:
    """Decodes one picture file and returns its traits; may raise any error if it cannot be read.

    It reads a JPEG whole but decodes it coarsely, which is many times faster.
    """
    with _opened(path) as image:
        size, in_colour = image.size, _has_deep_colours(image)
        image.draft(image.mode, shape[:0:-1])
        _fitted(image, shape, bits)
        pages = getattr(image, "n_frames", 1) if image.format in OF_PAGES else 1
        alpha = image.getchannel("A").getextrema() if image.mode.endswith("A") else (0, 0)
        is_clear, most = image.has_transparency_data and alpha != (255, 255), 0.0
        if in_colour or image.mode.startswith("I"):
            values = np.asarray(image.convert("RGB") if in_colour else image)
            most = float(values.max()) * (256 if in_colour else 1)
        thin = f"long and thin ({_THIN} to 1 or more), of which only the middle square is seen"
        several = "of several pages or frames, of which the first is read"
        floats = np.asarray(image) if image.mode == "F" else np.zeros(1)
        least, largest = float(floats.min()), float(floats.max())
        return {
            thin: (max(size) >= _THIN * min(size), f"{size[0]} × {size[1]}"),
            several: (pages - 1, f"{pages:,} pages"),
            "transparent, on white": (is_clear, ""),
            "of floating point, taken as from 0 to 255": (largest, f"{least:g} to {largest:g}"),
            MOST_OF_16_BITS: (most, ""),
        }


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    check_whole(path)  # the tags of a TIFF may be as long as the file
    with Image.open(path, formats=readable_formats()) as image:
        check_picture(image.size, path.stat().st_size)
        yield image


def why_unreadable(error: Exception, path: Path | None) -> str:
    """Says in a few words, without the path, why a sample cannot be read."""
    if isinstance(error, OSError) and error.errno and error.strerror:
        return error.strerror
    if isinstance(error, UnidentifiedImageError) and path is not None:
        with contextlib.suppress(OSError):
            kind = kind_of_content(path)
            if path.stat().st_size == 0:
                return "it is empty"
            if kind is not None and kind.is_read:
                return f"a damaged {kind.name}, or one of a layout that is not read"
            known = "" if kind is None else f" but {kind.name}: {kind.way_out}"
            return f"no picture of a known format{known}"
    is_damaged = path is not None and not isinstance(error, ValueError | MemoryError)
    return f"{'damaged: ' if is_damaged else ''}{reason_of(error)}"


def pixels_to_float(pixels: Tensor) -> Tensor:
    """Converts pixels, uint8 in [0, 255], to float32 in [−1, 1]."""
    return pixels.to(torch.float32).div_(127.5).sub_(1.0)


_OF_PIXEL = pixels_to_float(torch.arange(_MOST_IN_8_BITS + 1)).numpy()
"""The float of each pixel value, float32 [256]."""


def float_to_pixels(images: Tensor) -> Tensor:
    """Converts floats in [−1, 1] to uint8 in [0, 255], rounded; clamps values outside."""
    return images.add(1.0).mul(127.5).round().clamp(0, 255).to(torch.uint8)
