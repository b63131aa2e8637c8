"""Series and volumes as they are shown and written; and the kind that a shape belongs to."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from mdgan.samples.kinds import SERIES, VOLUMES, kind_of


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((2, 50), "series"),
        ((3, 8, 8), "pictures"),
        ((1, 8, 8, 8), "volumes"),
        ((7,), "tensors"),
        ((1, 2, 3, 4, 5), "tensors"),
    ],
)
def test_shapes_speak_of_kinds(shape: tuple[int, ...], name: str) -> None:
    kind = kind_of(shape)
    assert kind.name == name
    assert not kind.why_not(shape)
    samples = torch.rand(4, *shape) * 2 - 1
    arrays = np.load(io.BytesIO(kind.writers()[".npz"](samples, torch.arange(4))))
    assert np.array_equal(arrays["images"], samples.numpy())
    assert arrays["labels"].tolist() == [0, 1, 2, 3]
    assert len(set(kind.contents(samples))) == 4
    if kind.is_seen:
        labels = torch.tensor([0, 1, 1, 0])
        for png in (kind.png(samples), kind.class_png(samples, labels)):
            with Image.open(io.BytesIO(png)) as picture:
                picture.verify()
    assert kind.why_not((1,) * 9) or name == "tensors"


def test_middle_slices_are_seen_from_three_sides() -> None:
    volume = torch.full((1, 1, 4, 6, 8), -1.0)
    volume[0, 0, 2, 3, 4] = 1.0
    (picture,) = VOLUMES.pictures(volume)
    assert picture.shape == (1, 6, 8 + 8 + 6)
    bright = (picture[0] == 1).nonzero().tolist()
    assert bright == [[2, 12], [2, 19], [3, 4]]
    assert VOLUMES.pictures(torch.zeros(2, 5, 4, 4, 4)).shape == (2, 1, 4, 12)


def test_curves_rise_with_values() -> None:
    low, high = SERIES.pictures(torch.stack([torch.full((1, 40), -0.8), torch.full((1, 40), 0.8)]))
    assert low.shape == (3, 80, 160)

    def inked(picture: torch.Tensor) -> float:
        """The mean row of the curve, which is blue: red is least there."""
        rows = (picture[0] < 0).nonzero()[:, 0]
        return float(rows.double().mean())

    assert inked(high) < 20 < 60 < inked(low)
