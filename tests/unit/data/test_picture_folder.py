"""Folders as users have them: files that are no pictures are counted and named."""

import dataclasses
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFile

from mdgan.data import readable
from mdgan.data.dataset_file import DatasetFile, load
from mdgan.errors import BadInput, warn_once
from mdgan.samples.pictures.files import readable_formats
from mdgan.samples.pictures.reading import read_image
from tests.unit.data.picture_files import messages_of, refusal, save, write

HEIC = b"\0\0\0\x18ftypheic" + bytes(100)
DICOM = bytes(128) + b"DICM" + bytes(100)


@pytest.fixture
def folder() -> DatasetFile:
    return load("folder", None)


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    warn_once.cache_clear()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("{}.heic", HEIC, "20 .heic (HEIC: pip install pillow-heif)"),
        ("{}.HEIC", HEIC, "20 .heic (HEIC: pip install pillow-heif)"),
        ("{}.dcm", DICOM, "20 .dcm (DICOM: --dataset volumes reads it)"),
        ("IM{}", DICOM, "20 without an ending (DICOM: --dataset volumes reads it)"),
        ("1.2.840.{}", DICOM, "20 without an ending (DICOM"),
        ("{}.svg", b"<svg/>", "20 .svg (drawing: save it as PNG)"),
        ("{}.pdf", b"%PDF-1.4", "20 .pdf (PDF: save its pages as PNG)"),
        ("{}.raw", b"?", "20 .raw (raw picture: save it as PNG)"),
        ("{}.NEF", b"II*\0", "20 .nef (raw picture: save it as PNG)"),
    ],
)
def test_few_pictures_beside_many_that_cannot_be_read_are_refused(
    name: str,
    content: bytes,
    told: str,
    folder: DatasetFile,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(20):
        write(tmp_path / name.format(number), content)
    for number in range(2):
        save(tmp_path / f"{number}.png")
    text = refusal(folder, tmp_path)
    assert told in text
    assert "2 would be left" in text
    for number in range(2, 20):
        save(tmp_path / f"{number}.png")
    assert len(folder.open(tmp_path)) == 20
    assert told in messages_of(caplog)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEIC, "HEIC: pip install pillow-heif"),
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS: git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page: download it again"),
        (b"%PDF-1.4 ", "PDF: save its pages as PNG"),
        (DICOM, "DICOM: --dataset volumes reads it"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a damaged PNG"),
        (b"anything", "no picture of a known format"),
    ],
)
def test_content_decides_what_a_file_is(
    content: bytes,
    reason: str,
    folder: DatasetFile,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    save(tmp_path / "a.png")
    write(tmp_path / "b.png", content)
    assert len(folder.open(tmp_path)) == 1
    assert f"b.png ({reason}" in messages_of(caplog) or f"but {reason})" in messages_of(caplog)
    write(tmp_path / "c.jpg", content)
    text = refusal(folder, tmp_path)
    assert "2 of 3 pictures" in text
    assert "b.png (" in text


def test_pictures_under_another_ending_or_none_are_read(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (name, kind) in enumerate(
        [
            ("a.png", "WEBP"),
            ("b.heic", "JPEG"),
            ("c", "PNG"),
            ("d.JFIF", "JPEG"),
            ("e.pgm", "PPM"),
            ("f.dcm", "PNG"),
            ("scan.0001", "TIFF"),
        ]
    ):
        Image.new("L", (64, 64), 30 * number).save(tmp_path / name, kind)
    for name, kind in (("g.jp2", "JPEG2000"), ("h.avif", "AVIF"), ("i.png", "AVIF")):
        if kind in readable_formats():
            Image.new("L", (64, 64), 255).save(tmp_path / name, kind)
    number = len(list(tmp_path.iterdir()))
    assert len(folder.open(tmp_path)) == number
    assert not caplog.messages


@pytest.fixture
def heic_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that reads HEIC as `pillow_heif` does, by a plugin of Pillow: as bytes of grey."""

    class Heic(ImageFile.ImageFile):
        format = "HEIF"

        def _open(self) -> None:
            self._size, self._mode = (10, 10), "L"
            self.tile = [ImageFile._Tile("raw", (0, 0, 10, 10), 12, "L")]

    def register_heif_opener() -> None:
        Image.register_open("HEIF", Heic, lambda start: start[4:8] == b"ftyp")

    package = SimpleNamespace(register_heif_opener=register_heif_opener)
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    readable_formats.cache_clear()
    yield
    readable_formats.cache_clear()
    Image.OPEN.pop("HEIF", None)
    Image.ID.remove("HEIF")


@pytest.mark.usefixtures("heic_package")
def test_heic_is_read_where_its_package_is(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.heic", HEIC)
    write(tmp_path / "b.jpg", HEIC)
    assert folder.open(tmp_path).images(torch.arange(2)).eq(-1).all()
    assert not caplog.messages


def test_folders_of_machines_links_and_what_is_no_file(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    of_machines = ("@eaDir", "__MACOSX", ".ipynb_checkpoints", "$RECYCLE.BIN", "#recycle")
    for name in ("0.png", "1.png", *(f"{name}/x.png" for name in of_machines)):
        save(data / "cat" / name)
        save(data / name.replace("0.png", "dog/0.png").replace("1.png", "dog/1.png"))
    for name in ("Thumbs.db", ".DS_Store", "._0.png", "desktop.ini"):
        write(data / "cat" / name, b"?")
    save(elsewhere / "kept" / "x.png")
    save(elsewhere / "kept" / "y.png")
    (data / "linked").symlink_to(elsewhere / "kept")
    (data / "again").symlink_to(data / "cat")
    (data / "all").symlink_to(data)
    (data / "cat" / "below").symlink_to(elsewhere)
    (data / "cat" / "2.png").symlink_to(elsewhere / "kept" / "x.png")
    (data / "cat" / "3.png").symlink_to("nowhere")
    (data / "cat" / "4.png").symlink_to("4.png")
    os.mkfifo(data / "cat" / "5.png")
    source = folder.open(data)
    assert source.class_names == ("cat", "dog", "linked")
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    text = messages_of(caplog)
    for told in (
        "2 link(s) that lead nowhere",
        "2 link(s) to a folder in it",
        "1 link(s) to a folder below a class",
        "1 pipe(s) or sockets",
        "14 hidden or of machines (#recycle, $RECYCLE.BIN, .DS_Store, ._0.png, ",
    ):
        assert told in text


def test_dangling_links_in_the_place_of_pictures_count_as_lost(
    folder: DatasetFile, tmp_path: Path
) -> None:
    save(tmp_path / "0.png")
    for number in range(1, 4):
        (tmp_path / f"{number}.png").symlink_to("../.git/annex/objects/x")
    assert "3 link(s) that lead nowhere; 1 would be left" in refusal(folder, tmp_path)


def test_peculiar_classes_are_named(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["Cat/1.png", "Cat/2.png", "cat/1.png", "loose.png", "dog/old/1.png", "train/1.png"]
    names += ["dog/1.png", "dog/1_mask.png", "dog/1_mask_2.png", "dog/thumb_1.png", "masks/1.png"]
    for name in [*names, "dog/masked man.png"]:
        save(tmp_path / "data" / name)
    (tmp_path / "data" / "empty").mkdir()
    write(tmp_path / "data" / "notes" / "a.txt", b"?")
    assert len(folder.open(tmp_path / "data")) == 12
    text = messages_of(caplog)
    for told in (
        "1 picture(s) beside the class folders are a class (loose.png)",
        "2 classes whose names differ by case, spaces or the coding of accents alone (Cat, cat)",
        "2 class folder(s) without a picture (empty, notes)",
        "2 look like parts of data, not like classes (masks, train)",
        "3 look like masks or thumbnails beside their pictures, and are trained on (1_mask.png, "
        "1_mask_2.png, thumb_1.png)",
        "not read: 1 .txt",
    ):
        assert told in text


def test_a_usual_folder_is_read_without_a_word(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ant/1.png", "ant/2.JPG", "bee/1.tif", "bee/2.gif"):
        save(tmp_path / name)
    folder.open(tmp_path)
    assert not caplog.messages


def test_odd_pictures_are_counted_with_an_example(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        save(tmp_path / f"a{number}.png")
    save(tmp_path / "thin.png", (3, 900))
    save(tmp_path / "wide.jpg", (900, 30))
    save(tmp_path / "clear.png", (64, 64), "RGBA")
    Image.new("RGBA", (64, 64), (1, 2, 3, 255)).save(tmp_path / "opaque.png")
    Image.fromarray(np.full((64, 64), 1.5, np.float32)).save(tmp_path / "float.tif")
    some = [Image.new("L", (64, 64), 10 * number) for number in range(12)]
    some[0].save(tmp_path / "pages.tif", save_all=True, append_images=some[1:])
    some[0].save(tmp_path / "film.gif", save_all=True, append_images=some[1:3])
    assert folder.open(tmp_path).images(torch.tensor([7])).eq(-1).all()
    seen = readable.tried_all(folder.partitioner(tmp_path))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=type(seen)) == seen  # so it is kept
    text = messages_of(caplog)
    for told in (
        "2 long and thin (3 to 1 or more), of which only the middle square is seen, such as "
        "thin.png (3 × 900)",
        "2 of several pages or frames, of which the first is read, such as film.gif (3 pages)",
        "1 transparent, on white, such as clear.png",
        "1 of floating point, taken as from 0 to 255, such as float.tif (1.5 to 1.5)",
    ):
        assert told in text


def test_a_folder_that_lacks_a_class_of_a_conditional_model_is_refused(
    folder: DatasetFile, tmp_path: Path
) -> None:
    """Else the second class of another machine would be the first here."""
    of_classes = dataclasses.replace(folder, num_classes=2)
    save(tmp_path / "dog/1.png")
    with pytest.raises(BadInput, match=r"1 of 2 classes, so their numbers are not those of others"):
        of_classes.open(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadInput, match="1 of 2 classes"):
        of_classes.open(tmp_path)
    save(tmp_path / "cat/1.png")
    assert of_classes.open(tmp_path).labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_tiff_whose_zero_is_white_is_no_negative(tmp_path: Path, kind: type) -> None:
    most = 65535 if kind is np.uint16 else 255
    ramp: NDArray[Any] = np.tile(np.linspace(0, most, 8), (8, 1)).astype(kind)
    for name, values, photometric in (("a.tif", ramp, 1), ("b.tif", most - ramp, 0)):
        Image.fromarray(values).save(tmp_path / name)
        entry, new = (struct.pack("<HHIHH", 262, 3, 1, n, 0) for n in (1, photometric))
        data = (tmp_path / name).read_bytes()
        assert data.count(entry) == 1
        (tmp_path / name).write_bytes(data.replace(entry, new))
    upright, negative = (read_image(tmp_path / name, (1, 8, 8)) for name in ("a.tif", "b.tif"))
    assert upright[0, 0, 0] < -0.9 < 0.9 < upright[0, 0, -1]
    assert (upright - negative).abs().max() < 0.01
