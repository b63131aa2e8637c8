"""Unreadable pictures are left out at the start, and replaced during training."""

import io
import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mdgan.data import readable
from mdgan.data.dataset_file import DatasetFile, load_path
from mdgan.data.partitioner import ImageFilesPartitioner, Partitioner
from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.spelling import spelled

TINY = """
from pathlib import Path
import torch
from torch import nn
from mdgan.data import ImageFilesPartitioner

SHAPE, Z_DIM = (3, 8, 8), 4

class Partitioner(ImageFilesPartitioner):
    shape = SHAPE

    def find(self, data_dir):
        paths = sorted(data_dir.glob("*.*"))
        return paths, torch.arange(len(paths)) % 3

Generator = Discriminator = nn.Identity
"""
OWN = """
import torch
from torch import nn
from mdgan.data import Partitioner as Base

SHAPE, Z_DIM = (1, 2, 2), 4

class Partitioner(Base):
    def __init__(self, data_dir):
        self.labels = torch.zeros(5, dtype=torch.int64)

    def images(self, indices):
        if (indices == 3).any():
            raise RuntimeError("a damaged record")
        return torch.zeros(len(indices), *SHAPE)

Generator = Discriminator = nn.Identity
"""


def picture(image: Image.Image, kind: str = "PNG", keep: float = 1.0) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()[: int(keep * buffer.tell())]


RGB = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8))
WHOLE = picture(RGB)
NUMBERS = np.arange(600).reshape(20, 30)

BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"no\nway", "no picture of a known format"),
    "half a PNG": (picture(RGB, "PNG", 0.5), "truncated"),
    "half a JPEG": (picture(RGB, "JPEG", 0.9), "truncated"),
    "half a GIF": (picture(RGB, "GIF", 0.9), "truncated"),
    "a flipped byte": (WHOLE[:-60] + b"!" + WHOLE[-59:], "broken"),
    "floating point": (
        picture(Image.fromarray(NUMBERS.astype(np.float32) / 600), "TIFF"),
        "floating",
    ),
    "negative": (
        picture(Image.fromarray(-1 - NUMBERS.astype(np.float32)), "TIFF"),
        "from -600 to -1",
    ),
    "32 bits": (picture(Image.fromarray((1000 * NUMBERS).astype(np.int32)), "TIFF"), "16 bits"),
}


@pytest.fixture
def tiny(tmp_path: Path) -> DatasetFile:
    (tmp_path / "tiny.py").write_text(TINY)
    return load_path(tmp_path / "tiny.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(9):
        (tmp_path / "data" / f"{number}.png").write_bytes(WHOLE)
    return tmp_path / "data"


def shard_of(source: Partitioner, indices: list[int]) -> Shard:
    return Shard(source, torch.tensor(indices), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_picture_is_named_and_left_out(
    kind: str, tiny: DatasetFile, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, reason = BAD[kind]
    whole = tiny.open(folder)
    (folder / "4.png").write_bytes(data)
    source = tiny.open(folder)
    (line,) = caplog.messages
    assert f"1 of 9 pictures in {folder} cannot be read and will be left out: 4.png (" in line
    assert reason in line
    others = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    assert torch.equal(source.labels, whole.labels[others])
    assert torch.equal(source.images(torch.arange(8)), whole.images(others))
    with pytest.raises(
        BadInput, match=r"--set strict_data=true: 1 of 9 .*, first 4\.png \(.*; repair or"
    ):
        tiny.open(folder, strict=True)


def test_the_first_and_the_last_may_be_bad_and_many_are_counted(
    tiny: DatasetFile, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(29):
        (folder / f"0{number:02}.png").write_bytes(b"")
    for number in range(40):
        (folder / f"x{number}.png").write_bytes(WHOLE)
    (folder / "9.png").write_bytes(b"")
    (folder / os.fsdecode(b"\n\xff.png")).write_bytes(b"")
    assert len(tiny.open(folder)) == 49
    (line,) = caplog.messages
    assert "31 of 80 pictures" in line
    assert r"left out: '\n\udcff.png' (it is empty), 000.png (it is empty), " in line
    assert "018.png (it is empty), 11 more; --set strict_data=true would refuse" in spelled(line)


def test_what_was_found_is_kept_until_a_file_changes(
    tiny: DatasetFile, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[int] = []
    try_reading = ImageFilesPartitioner.try_reading

    def counted(source: ImageFilesPartitioner, index: int) -> None:
        tried.append(index)
        try_reading(source, index)

    monkeypatch.setattr(ImageFilesPartitioner, "try_reading", counted)
    monkeypatch.setattr(readable, "_WORTH_KEEPING_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder / "4.png").write_bytes(b"")
    for _ in range(3):
        assert len(tiny.open(folder)) == 8
        assert sorted(tried) == list(range(9))
    (kept,) = (tmp_path / "cache" / "mdgan" / "pictures").iterdir()
    assert "png" not in kept.read_text()
    kept.write_text(json.dumps({"bad": {"9": "there is none"}, "traits": {}}))
    monkeypatch.setattr(readable, "_tried", {})
    assert len(tiny.open(folder)) == 8
    (folder / "4.png").write_bytes(WHOLE)
    assert len(tiny.open(folder)) == 9
    assert len(tried) == 27


def test_a_picture_that_is_not_readable_today_is_tried_again(
    tiny: DatasetFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_source: ImageFilesPartitioner, _index: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(readable, "_WORTH_KEEPING_SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(ImageFilesPartitioner, "try_reading", refuse)
        with pytest.raises(BadInput, match=r"first 0\.png \(Permission denied\)"):
            tiny.open(folder)
    assert len(tiny.open(folder)) == 9


def test_a_folder_of_which_most_cannot_be_read_is_refused(tiny: DatasetFile, folder: Path) -> None:
    for number in range(4):
        (folder / f"{number}.png").write_bytes(b"")
    assert len(tiny.open(folder)) == 5
    (folder / "4.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"most of it is no use: 5 of 9 .*, first 0\.png \(it is e"):
        tiny.open(folder)


def test_how_far_it_is(
    tiny: DatasetFile,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(readable, "_SILENT_SECONDS", -1.0)
    monkeypatch.setattr(readable, "_AT_ONCE", 4)
    caplog.set_level(logging.INFO)
    tiny.open(folder)
    assert caplog.messages == [f"trying to read every sample: {n} of 9" for n in (4, 8, 9)]


def test_a_shard_replaces_what_is_lost_by_its_own_next_sample(
    tiny: DatasetFile, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(9):
        colour = (20 * number,) * 3
        (folder / f"{number}.png").write_bytes(picture(Image.new("RGB", (8, 8), colour)))
    (folder / "0.png").write_bytes(b"")
    source = tiny.open(folder)
    one, other = shard_of(source, [0, 2, 4, 6]), shard_of(source, [1, 3, 5, 7])
    caplog.clear()
    (folder / "5.png").unlink()
    (folder / "7.png").write_bytes(b"")

    def brightness(shard: Shard) -> list[int]:
        images = torch.cat(list(shard.pieces(2)))
        return images.mean((1, 2, 3)).add(1).mul(127.5 / 20).round().int().tolist()

    assert brightness(one) == [1, 3, 1, 1]
    assert brightness(other) == [2, 4, 6, 8]
    labels = one.next_batch(8).labels
    assert labels is not None
    assert sorted(labels.tolist()) == [0, 0, 1, 1, 1, 1, 1, 1]  # of what stands in, not of 5.png
    (line,) = caplog.messages
    assert f"{folder / '5.png'}: cannot read this picture (No such file or directory)" in line
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(BadInput, match="not one of 4 samples can be read any more") as caught:
        other.next_batch(2)
    assert str(folder) not in str(caught.value)


def test_samples_of_any_other_data_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert len(load_path(tmp_path / "own.py").open(tmp_path)) == 4
    (line,) = caplog.messages
    assert "1 of 5 samples in" in line
    assert "left out: sample 3 (a damaged record);" in line
