"""Grids of pictures are those of torchvision, which takes seconds to import."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.utils import make_grid

from mdgan.samples.kinds import grid_png
from mdgan.samples.pictures.reading import float_to_pixels, image_to_tensor


@pytest.mark.parametrize(
    ("number", "channels", "columns"),
    [(1, 1, None), (3, 3, 2), (5, 1, 8), (16, 3, None), (7, 4, 3)],
)
def test_a_grid_has_the_pixels_of_torchvision(
    number: int, channels: int, columns: int | None
) -> None:
    images = torch.rand(number, channels, 64, 65) * 2 - 1
    drawn = np.asarray(Image.open(io.BytesIO(grid_png(images, columns))))
    expected = make_grid(float_to_pixels(images), nrow=columns or 4, padding=2, pad_value=32)
    assert np.array_equal(drawn, expected.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("1", 1)])
def test_a_picture_has_its_channels_first(mode: str, channels: int) -> None:
    pixels = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    picture = Image.fromarray(pixels).convert(mode)
    tensor = image_to_tensor(picture, (channels, 8, 8))
    wanted = np.array(picture.convert("L" if channels == 1 else "RGB")).reshape(8, 8, channels)
    assert torch.equal(tensor, torch.from_numpy(wanted).permute(2, 0, 1) / 127.5 - 1)
