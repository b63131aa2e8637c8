"""Series as a kind of sample: [C, T], such as an ECG of C leads."""

from typing import ClassVar

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from mdgan.samples.contract import Shape
from mdgan.samples.pictures.reading import pixels_to_float
from mdgan.samples.tensors.kind import SeenTensors

_SIZES = 2
_WIDTH, _HEIGHT = 160, 80
_FINER = 2
"""Curves are drawn so many times as large, and shrunk, which smooths them."""
_PAPER, _AXIS = (250, 250, 248), (205, 205, 200)
_INKS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
"""Okabe and Ito's colours, in turn."""


class Series(SeenTensors):
    """Series, which are shown as curves, one for each channel."""

    name: ClassVar[str] = "series"

    def why_not(self, shape: Shape) -> str:
        """They have channels and a length."""
        return "" if len(shape) == _SIZES else "series have two sizes, (channels, length)"

    def pictures(self, samples: Tensor) -> Tensor:
        """Curves, [n, 3, 80, 160]."""
        return torch.stack([_drawn(one) for one in samples])


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
