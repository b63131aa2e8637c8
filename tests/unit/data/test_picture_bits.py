"""How many of 16 bits the pictures of a run use, and which process has to say so."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput, warn_once
from mdgan.launch import settled
from mdgan.launch.given import Given
from mdgan.spelling import spelled
from tests.unit.data.picture_files import messages_of, scan, write


@pytest.fixture
def folder() -> DatasetFile:
    return load("folder", None)


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    warn_once.cache_clear()


def loaded(data: Path, **settings: object) -> settled.Loaded:
    values = {"dataset": "folder", "data_dir": str(data), "world_size": 3, "transport": "memory"}
    return settled.load(Given([{**values, **settings}]).named())


@pytest.mark.parametrize(
    ("highs", "bits"),
    [
        ((4095, 900), 12),
        ((1023, 1000), 10),
        ((16383, 200), 14),
        ((255, 3), 8),
        ((16384, 3), None),
        ((65535, 4095), None),
    ],
)
def test_the_bits_of_scans_are_those_of_all_folders_here(
    highs: tuple[int, int], bits: int | None, tmp_path: Path
) -> None:
    for rank, high in enumerate(highs, start=1):
        scan(tmp_path / str(rank) / "1.png", high)
        scan(tmp_path / str(rank) / "2.tif", high)
    run = loaded(tmp_path / "{rank}")
    assert run.from_folders.get("picture_bits") == bits
    notes = spelled(" ".join(run.notes))
    message = "all 4 16-bit picture(s) stay below"
    assert (message in notes) == (bits is not None)
    ramp = run.dataset.open(tmp_path / "1").images(torch.tensor([0]))
    used = highs[0] >> ((bits or 16) - 8)
    assert ramp.max() == pytest.approx(used / 127.5 - 1)
    assert len(set(ramp.flatten().tolist())) == used + 1


def test_machines_that_do_not_know_each_other_must_say_the_bits(tmp_path: Path) -> None:
    scan(tmp_path / "1" / "1.png", 4095)
    scan(tmp_path / "1" / "2.png", 4095)
    for ranks in ("1", "0,1"):
        with pytest.raises(BadInput) as caught:
            loaded(tmp_path / "{rank}", ranks=ranks, transport="tcp")
        text = spelled(str(caught.value))
        assert "all 2 16-bit picture(s) stay below 4,096" in text
        assert "--set picture_bits=12" in text
    for bits in (12, 16):
        run = loaded(tmp_path / "{rank}", ranks="1", transport="tcp", picture_bits=bits)
        assert run.dataset.open(tmp_path / "1").images(torch.tensor([0])).max() == (
            1 if bits == 12 else pytest.approx(15 / 127.5 - 1)
        )


def test_dark_scans_of_a_run_that_says_no_bits_are_told(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scan(tmp_path / "1.png", 4095)
    folder.open(tmp_path)
    assert (
        "all 1 16-bit picture(s) stay below 4,096, but this run reads all 16 bits"
        in messages_of(caplog)
    )


def test_values_beyond_the_bits_are_refused_by_file(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.png", "b.png", "c.tif", "d.png", "e.png"):
        scan(tmp_path / name, 4095)
    scan(tmp_path / "bright.png", 4096)
    scan(tmp_path / "signed.tif", 900, np.int32, low=-1024)
    scan(tmp_path / "float.tif", 1, np.float32)
    said_12 = folder.prepared(DataSettings.read({"picture_bits": 12}))
    assert len(said_12.open(tmp_path)) == 5
    text = messages_of(caplog)
    assert "bright.png (values from 0 to 4096 are not of 12 bits;" in text
    assert "signed.tif (values from -1024 to 900 are not of 12 bits;" in text
    assert (
        "float.tif (floating point values from 0 to 1, not from 0 to 255; save it with 8 or 16 bits"
        in text
    )


def test_bits_are_refused_where_there_are_no_picture_files(tmp_path: Path) -> None:
    digits = load("digits", None).prepared(DataSettings.read({"picture_bits": 12}))
    with pytest.raises(BadInput, match="reads no picture files"):
        digits.open(tmp_path)


def test_colours_of_16_bits_that_use_fewer_are_refused_by_file(
    folder: DatasetFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.png", deep_png(4095))
    write(tmp_path / "b.png", deep_png(4095))
    assert folder.found_bits([tmp_path], everywhere=True)[0] == 12
    folder.open(tmp_path)
    assert "all 2 16-bit picture(s) stay below 4,096" in messages_of(caplog)
    with pytest.raises(BadInput, match="of 16 bits a colour the upper 8 are read: save it with 8"):
        folder.prepared(DataSettings.read({"picture_bits": 12})).open(tmp_path)


def deep_png(value: int) -> bytes:
    """A picture of 64 × 64 pixels of one grey, with 16 bits a colour; Pillow writes none."""
    import zlib

    def chunk(name: bytes, content: bytes) -> bytes:
        return b"".join(
            (
                struct.pack(">I", len(content)),
                name,
                content,
                struct.pack(">I", zlib.crc32(name + content)),
            )
        )

    row = b"\0" + struct.pack(">H", value) * 3 * 64
    head = struct.pack(">IIBBBBB", 64, 64, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(row * 64)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
