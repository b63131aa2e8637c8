"""A worker's own folder of pictures."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mdgan.data.dataset_file import DatasetFile, load, load_path
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.models.check import check_models
from tests.unit.dataset_formats import write_image_folder

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif")


@pytest.fixture
def folder() -> DatasetFile:
    return load("folder", None)


def with_shape(shape: tuple[int, ...], tmp_path: Path) -> DatasetFile:
    """A user's copy of the file with another SHAPE."""
    text = load("folder", None).path.read_text(encoding="utf-8")
    changed = text.replace("= (3, 64, 64)", f"= {shape}", 1)
    assert changed != text or shape == (3, 64, 64)
    copy = tmp_path / "copy.py"
    copy.write_text(changed, encoding="utf-8")
    return load_path(copy)


def save(path: Path, colour: int | tuple[int, ...], mode: str = "RGB", size: int = 64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (size, size), colour).save(path)


def refusal(folder: DatasetFile, data_dir: Path) -> str:
    with pytest.raises(BadInput) as caught:
        folder.open(data_dir)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_subfolders_are_classes_in_sorted_order(folder: DatasetFile, tmp_path: Path) -> None:
    written = write_image_folder(tmp_path, ["zebra", "ant", "bee"], 3)
    source = folder.open(tmp_path)
    assert source.class_names == ("ant", "bee", "zebra")
    assert source.labels.dtype == torch.int64
    assert source.labels.tolist() == written.labels.tolist()
    images = source.images(torch.arange(9))
    assert images.shape == (9, 3, 64, 64)
    assert torch.equal(images, torch.from_numpy(written.pixels).to(torch.float32) / 127.5 - 1)


def test_loose_pictures_are_the_first_class(folder: DatasetFile, tmp_path: Path) -> None:
    data_dir = tmp_path / "album"
    save(data_dir / "zoo.png", (255, 0, 0))
    save(data_dir / "ant" / "1.png", (0, 255, 0))
    save(data_dir / "ant" / "old" / "2.png", (0, 0, 255))
    source = folder.open(data_dir)
    assert source.class_names == ("album", "ant")
    assert source.labels.tolist() == [0, 1, 1]
    assert source.images(torch.arange(3))[:, :, 0, 0].argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("suffix", [*SUFFIXES, *(suffix.upper() for suffix in SUFFIXES)])
def test_every_format(suffix: str, folder: DatasetFile, tmp_path: Path) -> None:
    save(tmp_path / f"picture{suffix}", (255, 255, 255))
    image = folder.open(tmp_path).images(torch.tensor([0]))[0]
    assert image.ge(0.97).all()


def test_files_that_do_not_count(folder: DatasetFile, tmp_path: Path) -> None:
    save(tmp_path / "class" / "picture.png", (0, 0, 0))
    save(tmp_path / "class" / ".thumbnails" / "small.png", (0, 0, 0))
    save(tmp_path / ".hidden" / "picture.png", (0, 0, 0))
    (tmp_path / "class" / "._picture.png").write_bytes(b"resource fork")
    (tmp_path / "class" / "notes.txt").write_text("not a picture")
    (tmp_path / "class" / "folder.png").mkdir()
    (tmp_path / "empty").mkdir()
    source = folder.open(tmp_path)
    assert source.class_names == ("class",)
    assert len(source) == 1


@pytest.mark.parametrize(
    ("mode", "colour"),
    [("L", 255), ("1", 1), ("LA", (255, 255)), ("RGBA", (255,) * 4), ("CMYK", (0,) * 4)],
)
def test_pictures_of_other_kinds_become_rgb(
    mode: str, colour: int | tuple[int, ...], folder: DatasetFile, tmp_path: Path
) -> None:
    save(tmp_path / "picture.tif", colour, mode)
    image = folder.open(tmp_path).images(torch.tensor([0]))
    assert image.shape == (1, 3, 64, 64)
    assert image.eq(1).all()


def test_a_copy_with_one_channel_makes_grey(tmp_path: Path) -> None:
    grey = with_shape((1, 32, 32), tmp_path)
    check_models(grey.models)
    save(tmp_path / "data" / "red.png", (255, 0, 0))
    image = grey.open(tmp_path / "data").images(torch.tensor([0]))
    assert image.shape == (1, 1, 32, 32)
    red = round(0.299 * 255) / 127.5 - 1  # ITU-R 601
    torch.testing.assert_close(image, torch.full_like(image, red))


@pytest.mark.parametrize(("width", "height"), [(128, 64), (64, 128), (100, 300), (20, 10), (9, 60)])
def test_other_proportions_keep_the_centre(
    width: int, height: int, folder: DatasetFile, tmp_path: Path
) -> None:
    side = min(width, height)
    pixels = np.zeros((height, width, 3), np.uint8)
    top, left = (height - side) // 2, (width - side) // 2
    pixels[top : top + side, left : left + side] = 255
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    image = folder.open(tmp_path).images(torch.tensor([0]))
    assert image.shape == (1, 3, 64, 64)
    # Pixels at the rim of the square are mixed with what was cut off.
    assert image[:, :, 16:48, 16:48].eq(1).all()


def test_a_picture_is_read_when_it_is_drawn(folder: DatasetFile, tmp_path: Path) -> None:
    save(tmp_path / "1.png", (255, 255, 255))
    source = folder.open(tmp_path)
    save(tmp_path / "1.png", (0, 0, 0))
    assert source.images(torch.tensor([0])).eq(-1).all()


@pytest.mark.parametrize(
    "shape", [(3, 64, 32), (3, 48, 48), (3, 4, 4), (3, 2, 2), (2, 64, 64), (4, 64, 64), (3, 65, 65)]
)
def test_a_shape_that_the_models_cannot_have(shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ValueError: SHAPE = .* must be") as caught:
        with_shape(shape, tmp_path)
    assert str(shape) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", ["absent", "notes.txt", "class/notes.txt"])
def test_folder_without_pictures(content: str, folder: DatasetFile, tmp_path: Path) -> None:
    data = tmp_path / "data"
    if content != "absent":
        (data / content).parent.mkdir(parents=True)
        (data / content).write_text("not a picture")
    message = refusal(folder, data)
    assert f"{data}: no {'such folder' if content == 'absent' else 'picture'}" in message
    assert ".png" in message
    assert "subfolder" in message


def test_sixteen_bits_are_scaled_and_transparent_pixels_are_white(
    folder: DatasetFile, tmp_path: Path
) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "1.png")
    save(tmp_path / "2.png", (255, 0, 0, 0), "RGBA")
    scan, clear = folder.open(tmp_path).images(torch.arange(2))
    assert abs(scan.mean().item()) < 0.02
    assert scan[0, 0, 0] == -1
    assert scan[0, -1, -1] == 1
    assert clear.min() == 1


def test_phone_pictures_are_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels[:32] = 255  # white above, black below
    turned = Image.fromarray(pixels).rotate(90)
    exif = turned.getexif()
    exif[0x0112] = 6  # "turn me a quarter clockwise to show me"
    turned.save(tmp_path / "phone.png", exif=exif)
    (image,) = load("folder", None).open(tmp_path).images(torch.tensor([0]))
    assert image[:, :31].min() > 0.9
    assert image[:, 33:].max() < -0.9


def test_a_subfolder_that_cannot_be_listed_is_refused(
    folder: DatasetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image_folder(tmp_path, ["ant", "bee"], 3)
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith("bee"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert f"Permission denied: {tmp_path / 'bee'}" in refusal(folder, tmp_path)


@pytest.mark.parametrize(
    ("sizes", "side"),
    [([8], 8), ([28], 32), ([32] * 3 + [900], 32), ([33], 64), ([64], 64), ([900] * 2, 64)],
)
def test_the_usual_size_is_that_of_the_files_up_to_64(
    sizes: list[int], side: int, folder: DatasetFile, tmp_path: Path
) -> None:
    for n, size in enumerate(sizes):
        save(tmp_path / f"{n}.png", n, "L", size)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert folder.usual_size is not None
    assert folder.usual_size(tmp_path) == side
    sized = folder.prepared(DataSettings.read({"image_size": side}))
    assert sized.shape == (3, side, side)
    check_models(sized.models, None)
    assert sized.open(tmp_path).images(torch.tensor([0])).shape[1:] == sized.shape
