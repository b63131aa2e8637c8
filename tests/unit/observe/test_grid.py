import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from mdgan.observe.grid import draw_samples, grid_png

Z_DIM = 5


def generator() -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(Z_DIM, 8),
        nn.BatchNorm1d(8),
        nn.Dropout(0.5),
        nn.Linear(8, 12),
        nn.Tanh(),
        nn.Unflatten(1, (3, 2, 2)),
    )
    model(torch.randn(20, Z_DIM))
    return model


def test_samples_have_shape_type_and_no_graph() -> None:
    samples = draw_samples(generator(), 7, Z_DIM, 0)
    assert samples.shape == (7, 3, 2, 2)
    assert samples.dtype == torch.float32
    assert not samples.requires_grad
    assert samples.abs().max() <= 1


@pytest.mark.parametrize("num_samples", [1, 2, 16, 255, 256, 257])
def test_a_sample_does_not_depend_on_how_many_there_are(num_samples: int) -> None:
    model = generator()
    many = draw_samples(model, 300, Z_DIM, 3)
    few = draw_samples(model, num_samples, Z_DIM, 3)
    # Kernels may add up in another order for another batch size; noise or statistics would show.
    torch.testing.assert_close(few, many[:num_samples], rtol=0, atol=1e-6)


def test_samples_are_the_same_for_the_same_seed_only() -> None:
    model = generator()
    samples = draw_samples(model, 4, Z_DIM, 3)
    assert torch.equal(draw_samples(model, 4, Z_DIM, 3), samples)
    assert not torch.equal(draw_samples(model, 4, Z_DIM, 4), samples)
    assert len({tuple(sample.flatten().tolist()) for sample in samples}) == 4


def test_samples_do_not_depend_on_random_numbers_outside() -> None:
    model = generator()
    torch.manual_seed(1)
    samples = draw_samples(model, 4, Z_DIM, 3)
    torch.manual_seed(2)
    assert torch.equal(draw_samples(model, 4, Z_DIM, 3), samples)


class NoisyGenerator(nn.Module):
    """Draws noise of its own even in evaluation, as some generators do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(Z_DIM, 4)

    def forward(self, z: Tensor) -> Tensor:
        made: Tensor = self.linear(z) + torch.randn(4)
        return made.tanh().view(-1, 1, 2, 2)


def test_even_a_noisy_generator_gives_the_same_for_the_same_seed() -> None:
    model = NoisyGenerator()
    samples = draw_samples(model, 4, Z_DIM, 3)
    before = torch.get_rng_state()
    assert torch.equal(draw_samples(model, 4, Z_DIM, 3), samples)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("training", [True, False])
def test_drawing_leaves_the_generator_and_random_numbers_as_they_were(training: bool) -> None:
    model = generator().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    draw_samples(model, 300, Z_DIM, 3)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


def test_a_part_that_was_frozen_in_evaluation_stays_so() -> None:
    model = generator().train()
    model[1].eval()
    draw_samples(model, 4, Z_DIM, 3)
    assert model.training
    assert [part.training for part in model] == [True, False, True, True, True, True]


def test_a_generator_that_fails_is_put_back_into_training() -> None:
    model = nn.Sequential(nn.Linear(Z_DIM + 1, 4))
    random_state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        draw_samples(model, 4, Z_DIM, 3)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


def decoded(png: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    assert png.startswith(b"\x89PNG")
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def shades(num: int, channels: int, side: int) -> Tensor:
    """Image i is of one grey, i steps of 10/127.5 above black."""
    values = torch.arange(num) * 10 / 127.5 - 1
    return values.view(-1, 1, 1, 1).expand(num, channels, side, side).contiguous()


@pytest.mark.parametrize(
    ("num", "columns", "rows"), [(2, 2, 1), (4, 2, 2), (5, 3, 2), (9, 3, 3), (10, 4, 3)]
)
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


def test_one_image_is_a_grid_too() -> None:
    pixels = decoded(grid_png(shades(2, 1, 48)[1:]))
    height, width, _ = pixels.shape
    assert 48 <= height <= 52
    assert 48 <= width <= 52
    assert (
        pixels[height // 2 - 20 : height // 2 + 20, width // 2 - 20 : width // 2 + 20] == 10
    ).all()


def test_pixels_keep_their_places_and_colours() -> None:
    image = torch.tensor(
        [
            [[-1.0, 1.0], [0.0, -1.0]],
            [[-1.0, 0.0], [1.0, -1.0]],
            [[1.0, -1.0], [0.5, -1.0]],
        ]
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


def test_images_need_not_be_square() -> None:
    pixels = decoded(grid_png(torch.zeros(4, 1, 10, 25)))
    assert pixels.shape == (2 * 22 + 2, 2 * 52 + 2, 3)


def test_values_outside_are_clamped() -> None:
    pixels = decoded(grid_png(torch.stack([torch.full((1, 48, 48), v) for v in (-7.0, 7.0)])))
    assert (pixels[2:50, 2:50] == 0).all()
    assert (pixels[2:50, 52:100] == 255).all()


def test_the_images_are_left_as_they_were() -> None:
    images = shades(4, 1, 8)
    grid_png(images)
    assert torch.equal(images, shades(4, 1, 8))
