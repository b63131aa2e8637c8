"""Series as a kind of sample: [C, T], such as an ECG of C leads."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from mdgan.samples.contract import SampleKind, Shape, Writer
from mdgan.samples.npz import npz_of
from mdgan.samples.pictures.grid import class_grid_png, grid_png
from mdgan.samples.pictures.reading import pixels_to_float

_SIZES = 2
_WIDTH, _HEIGHT = 160, 80
_FINER = 2
"""Curves are drawn so many times as large, and shrunk, which smooths them."""
_PAPER, _AXIS = (250, 250, 248), (205, 205, 200)
_INKS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
"""Okabe and Ito's colours, in turn."""


class Series(SampleKind):
    """Series, which are shown as curves, one for each channel."""

    name: ClassVar[str] = "series"
    is_seen: ClassVar[bool] = True

    def why_not(self, shape: Shape) -> str:
        """They have channels and a length."""
        return "" if len(shape) == _SIZES else "series have two sizes, (channels, length)"

    def contents(self, samples: Tensor) -> list[bytes]:
        """The values of each, float32."""
        return [sample.tobytes() for sample in samples.contiguous().numpy()]

    def writers(self) -> Mapping[str, Writer]:
        """Arrays, or a grid of curves."""
        return {".npz": npz_of, ".png": lambda samples, _: self.png(samples)}

    def png(self, samples: Tensor, columns: int | None = None) -> bytes:
        """A grid of curves."""
        return grid_png(curves(samples), columns)

    def class_png(self, samples: Tensor, labels: Tensor) -> bytes:
        """A grid with a row for each class."""
        return class_grid_png(curves(samples), labels)


def curves(series: Tensor) -> Tensor:
    """Pictures [n, 3, 80, 160] of [n, C, T] in [−1, 1]."""
    return torch.stack([_drawn(one) for one in series])


def _drawn(series: Tensor) -> Tensor:
    width, height = _FINER * _WIDTH, _FINER * _HEIGHT
    picture = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(picture)
    draw.line([(0, height / 2), (width, height / 2)], fill=_AXIS, width=_FINER)
    length = series.shape[1]
    x = [width * (step + 0.5) / length for step in range(length)]
    for channel, values in enumerate(series.clamp(-1, 1)):
        y = (height * (0.5 - 0.47 * values)).tolist()
        ink = _INKS[channel % len(_INKS)]
        draw.line(list(zip(x, y, strict=True)), fill=ink, width=_FINER, joint="curve")
    small = picture.resize((_WIDTH, _HEIGHT), Image.Resampling.BOX)
    return pixels_to_float(torch.from_numpy(np.array(small)).permute(2, 0, 1))


SERIES = Series()
