"""Small files that say they hold gigabytes: readers refuse them in a line, or read a part."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.data.dataset_file import load
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses
from mdgan.records.run_directory import RunDirectory
from mdgan.samples.pictures.reading import read_image
from mdgan.storage import budget
from tests.claims.registry import claim
from tests.hostile.measured import measured
from tests.unit.observe.fake_run import FakeRun

LISTS = ",".join(["[]"] * 1_000_000)
"""3 MB of JSON that take 64 MB as lists of Python's."""


def rows_of_parquet(folder: Path) -> None:
    """A number that sixty million rows have."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": np.zeros(60_000_000)})
    parquet.write_table(table, folder / "file.parquet", row_group_size=60_000_000)


def texts_of_parquet(folder: Path) -> None:
    """A text of 100,000 letters that forty thousand rows have, in 500 bytes."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    codes = pa.DictionaryArray.from_arrays(np.zeros(40_000, dtype=np.int32), ["y" * 100_000])
    table = pa.table({"a": codes})
    parquet.write_table(table, folder / "file.parquet", compression="zstd")


def footer_that_lies(folder: Path) -> None:
    """A text of 400 MB in each of six columns, whose footer says that all take five bytes."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column, path = pa.array(["y" * 400_000_000]), folder / "file.parquet"
    table = pa.table({f"c{n}": column for n in range(6)})
    parquet.write_table(
        table, path, compression="zstd", write_statistics=False, use_dictionary=False
    )
    data = path.read_bytes()
    about = parquet.read_metadata(path).row_group(0)
    for size in {about.total_byte_size, about.column(0).total_uncompressed_size}:
        written = varint(2 * size)
        assert written in data
        data = data.replace(written, b"\x8a" + b"\x80" * (len(written) - 2) + b"\0")
    path.write_bytes(data)


def varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def endless_line(folder: Path) -> None:
    """A line of 3 GB, which takes no room on the disk."""
    with (folder / "file.csv").open("wb") as file:
        file.write(b"a,b\n1," + b"9" * (1 << 16))
        file.truncate(3 << 30)


def pipe_as_schema(folder: Path) -> None:
    os.mkfifo(folder / "schema.json")
    (folder / "file.csv").write_text("a\n1\n")


@pytest.mark.parametrize(
    ("write", "command", "said"),
    [
        (rows_of_parquet, "schema draft file.parquet", "rows in"),
        (texts_of_parquet, "schema draft file.parquet", "rows in"),
        pytest.param(
            *(footer_that_lies, "schema draft file.parquet", "rows in"), marks=pytest.mark.slow
        ),
        (endless_line, "schema draft file.csv", "is no row of CSV"),
        (pipe_as_schema, "schema check schema.json file.csv", "is no regular file"),
    ],
)
def test_a_table_is_refused_by_its_header(
    tmp_path: Path, write: Callable[[Path], None], command: str, said: str
) -> None:
    write(tmp_path)
    ended = measured(tmp_path, *command.split())
    assert ended.status == 2, ended
    assert "Traceback" not in ended.text
    assert len(ended.text.splitlines()) == 1
    assert said in ended.text
    assert ended.peak_mb < (2000 if write is footer_that_lies else 800)


@cache
def png(side: int) -> bytes:
    """A black square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    data = zlib.compress(bytes((side + 1) * side))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def huge_pictures(run: Path) -> None:
    for iteration in (20, 40, 60):
        (run / "samples" / f"{iteration:07d}.png").write_bytes(png(9_000))


def fat_rows(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for _ in range(25):
            file.write(f'{{"event": "own", "iteration": 60, "x": [{LISTS}]}}\n')


def fat_line(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f'{{"iteration": 60, "x": [{",".join([LISTS] * 20)}]}}\n')


def fat_settings(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    text = json.dumps({**config, "x": []})
    (run / "config.json").write_text(text.replace("[]", f"[{','.join([LISTS] * 20)}]", 1))


def fat_fields(run: Path) -> None:
    header = {"__metadata__": {"fields": f"[{','.join([LISTS] * 20)}]"}}
    text = json.dumps(header).encode()
    (run / "generator.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def hollow_generator(run: Path) -> None:
    """A terabyte of weights, which takes no room on the disk."""
    size = 1 << 40
    tensor = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    text = json.dumps({"__metadata__": {"fields": '{"iteration": 1}'}, "w": tensor}).encode()
    with (run / "generator.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)


def fat_manifest(run: Path) -> None:
    folder = run / "checkpoints" / "0000060"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f"[{','.join([LISTS] * 20)}]")


def test_fields_in_a_list_are_refused(tmp_path: Path) -> None:
    text = b'{"__metadata__": {"fields": "[1]"}}'
    (tmp_path / "generator.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(BadInput, match=r"generator.safetensors: damaged"):
        RunDirectory(tmp_path).read_generator()


@pytest.mark.parametrize(
    ("spoil", "command", "status", "most_mb"),
    [
        pytest.param(fat_rows, "report run", 2, 1400, marks=pytest.mark.slow),
        pytest.param(fat_rows, "watch run", 0, 800, marks=pytest.mark.slow),
        (fat_line, "report run", 0, 800),
        (fat_line, "watch run", 0, 800),
        (fat_settings, "report run", 2, 800),
        pytest.param(fat_settings, "evaluate run", 2, 1200, marks=pytest.mark.slow),
        (fat_fields, "evaluate run", 2, 1200),
        (hollow_generator, "evaluate run", 2, 1200),
        pytest.param(fat_manifest, "train --resume run", 2, 1200, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_folder_fills_no_memory(
    tmp_path: Path, spoil: Callable[[Path], None], command: str, status: int, most_mb: int
) -> None:
    run = FakeRun(workers=2).write(tmp_path / "run")
    spoil(run)
    ended = measured(tmp_path, *command.split())
    assert ended.status == status, ended
    assert "Traceback" not in ended.text
    if status:
        assert ended.text.splitlines()[-1].startswith("mdgan: ")
    assert ended.peak_mb < most_mb, ended


def test_a_page_shows_no_huge_picture(tmp_path: Path) -> None:
    run = FakeRun(workers=2).write(tmp_path / "run")
    huge_pictures(run)
    (run / "samples" / "0000010.png").write_bytes(png(64))
    ended = measured(tmp_path, "report", "run")
    assert ended.status == 0, ended
    assert ended.peak_mb < 800, ended
    page = (run / "report.html").read_text()
    assert "3 left out, which cannot be read or are too large" in page
    assert "Warning" not in ended.text


def test_of_a_huge_honest_run_some_iterations_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(workers=2, iterations=2000, log_interval=1).write(tmp_path / "run")
    whole = RecordedRun.read(run)
    monkeypatch.setattr(budget, "_ALWAYS_BYTES", 8 << 20)
    part = RecordedRun.read(run)
    every = {row.iteration for row in whole.of(Losses)}
    some = {row.iteration for row in part.of(Losses)}
    assert some < every
    assert len(some) > len(every) / 20
    assert any("for the sake of memory" in line for line in part.damage)
    assert part.state.workers.keys() == whole.state.workers.keys()
    spans = [set(trace.spans) for trace in part.traces.values() if trace.spans]
    assert all(each <= set.union(*spans) for each in spans)


@claim(
    "file-budget",
    "a file that would take more than 1 GiB once it is decoded, and more than 800 times "
    "its size, or half of the free memory, is refused",
)
def test_the_budget_grows_with_the_file_and_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_ALWAYS_BYTES", 1 << 20)
    path = tmp_path / "a.png"
    path.write_bytes(png(2_000))
    with pytest.raises(BadInput, match=r"2000 × 2000 pixels in .* --set file_memory=GIB"):
        read_image(path, (1, 8, 8))
    try:
        load("digits", None).prepared(DataSettings.read({"file_memory": 2}))
        assert read_image(path, (1, 8, 8)).shape == (1, 8, 8)
    finally:
        budget.allow(None)
    noise = np.random.default_rng(0).integers(0, 255, (500, 500), dtype=np.uint8)
    torch.manual_seed(0)
    from PIL import Image

    Image.fromarray(noise).save(path)
    assert read_image(path, (1, 8, 8)).shape == (1, 8, 8)


def test_a_tag_in_a_hole_is_not_read(tmp_path: Path) -> None:
    """A TIFF of one pixel, and 3 GB of text that takes no room on the disk."""
    size = 3 << 30
    tags = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1, 200)]
    tags += [(279, 4, 1, 1), (700, 7, size, 1024)]
    data = struct.pack("<2sHIH", b"II", 42, 8, len(tags))
    data += b"".join(struct.pack("<HHII", *tag) for tag in tags)
    with (tmp_path / "a.tif").open("wb") as file:
        file.write(data)
        file.truncate(1024 + size)
    with pytest.raises(BadInput, match=r"content in .* would take 3.22 GB"):
        read_image(tmp_path / "a.tif", (1, 8, 8))
