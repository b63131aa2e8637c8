import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mdgan.observe.grid import grid_png


def decoded(png: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    assert png.startswith(b"\x89PNG")
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def shades(num: int, channels: int, side: int) -> Tensor:
    """Image i is of one grey, i steps of 10/127.5 above black."""
    values = torch.arange(num) * 10 / 127.5 - 1
    return values.view(-1, 1, 1, 1).expand(num, channels, side, side).contiguous()


@pytest.mark.parametrize(("num", "columns", "rows"), [(2, 2, 1), (5, 3, 2), (9, 3, 3)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "shown"), [(8, 48), (28, 56), (48, 48), (64, 64)])
def test_a_grid_is_as_square_as_can_be_and_large_enough_to_see(
    num: int, columns: int, rows: int, channels: int, side: int, shown: int
) -> None:
    pixels = decoded(grid_png(shades(num, channels, side)))
    cell = shown + 2
    assert pixels.shape == (rows * cell + 2, columns * cell + 2, 3)
    for n in range(num):
        top, left = n // columns * cell + 2, n % columns * cell + 2
        assert (pixels[top : top + shown, left : left + shown] == 10 * n).all()
    assert (pixels[:2] == 32).all()
    assert (pixels[:, :2] == 32).all()
    assert (pixels[-2:] == 32).all()
    assert (pixels[:, -2:] == 32).all()


def test_pixels_keep_their_places_and_colours() -> None:
    image = torch.tensor(
        [[[-1.0, 1.0], [0.0, -1.0]], [[-1.0, 0.0], [1.0, -1.0]], [[1.0, -1.0], [0.5, -1.0]]]
    )
    pixels = decoded(grid_png(torch.stack([image, torch.zeros(3, 2, 2)])))
    assert pixels.shape == (52, 102, 3)
    shown = pixels[2:50, 2:50]
    for row, column, colour in [
        (0, 0, (0, 0, 255)),
        (0, 1, (255, 128, 0)),
        (1, 0, (128, 255, 191)),
        (1, 1, (0, 0, 0)),
    ]:
        quarter = shown[24 * row : 24 * row + 24, 24 * column : 24 * column + 24]
        assert (np.abs(quarter.astype(int) - colour) <= 1).all()


def test_values_outside_are_clamped() -> None:
    pixels = decoded(grid_png(torch.stack([torch.full((1, 48, 48), v) for v in (-7.0, 7.0)])))
    assert (pixels[2:50, 2:50] == 0).all()
    assert (pixels[2:50, 52:100] == 255).all()
