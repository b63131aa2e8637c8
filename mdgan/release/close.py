"""Whether two files of samples are the same but for last digits, which processors round apart.

A file holds nothing beside its samples: no other parts, and no bytes between or behind them.
"""

import io
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mdgan.samples.contract import SampleKind
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.writing import csv_of

_CLOSE = 1e-5
"""Of the width of what a value may be."""
_FEW = 0.01
"""Of all values, this share may have another last digit."""
_LOCAL, _END = 30, 22
_MOST_EXTRA = 32
_HEAD = b"\x89PNG\r\n\x1a\n"


def is_close(kind: SampleKind, name: str, theirs: bytes, ours: bytes) -> bool:
    """Whether two files `samples.*` have the same samples, up to rounding."""
    ending = Path(name).suffix
    try:
        if ending == ".png":
            a, b = _pixels(theirs), _pixels(ours)
            if a.shape != b.shape:
                return False
            apart = np.abs(a - b)
            return bool(apart.max() <= 1 and np.count_nonzero(apart) <= _FEW * apart.size)
        if ending == ".npz":
            return _arrays_are_close(_arrays(theirs, len(ours)), _arrays(ours, len(ours)))
        return isinstance(kind, TableKind) and _rows_are_close(kind, ending, theirs, ours)
    except Exception:  # files of strangers may be anything, and so is what libraries raise
        return False


def _arrays(data: bytes, most: int) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` that holds nothing else; raises ValueError."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        parts, place = file.infolist(), 0
        for part in parts:
            name, extra = struct.unpack("<HH", data[place + 26 : place + _LOCAL])
            if part.header_offset != place or part.flag_bits & 8 or extra > _MOST_EXTRA:
                raise ValueError("it has gaps")
            place += _LOCAL + name + extra + part.compress_size
        index = sum(46 + len(part.filename) + len(part.extra) for part in parts)
        if len(data) != place + index + _END or sum(p.file_size for p in parts) > 2000 * most:
            raise ValueError("it has more than arrays")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _arrays_are_close(a: dict[str, NDArray[Any]], b: dict[str, NDArray[Any]]) -> bool:
    """Samples are in [−1, 1]; classes must be equal."""
    return a.keys() == b.keys() and all(
        (x.dtype, x.shape) == (b[name].dtype, b[name].shape)
        and bool(np.all(np.abs(x - b[name]) <= (_CLOSE if x.dtype.kind == "f" else 0)))
        for name, x in a.items()
    )


def _pixels(data: bytes) -> NDArray[np.int64]:
    """The pixels of a PNG that holds nothing else, [H, W] or [H, W, C]; raises ValueError."""
    place, parts = len(_HEAD), list[tuple[bytes, bytes]]()
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        parts.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + size]))
        place += size + 12
    _, *body, end = parts
    if end != (b"IEND", b"") or {name for name, _ in body} != {b"IDAT"} or place != len(data):
        raise ValueError("it has more than pixels")
    stream = zlib.decompressobj()
    stream.decompress(b"".join(part for _, part in body), 1 << 28)
    if stream.unused_data or not stream.eof:
        raise ValueError("it has more than pixels")
    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        return np.asarray(picture, dtype=np.int64)


def _rows_are_close(kind: TableKind, ending: str, theirs: bytes, ours: bytes) -> bool:
    """Categories must be equal; numbers as their bounds are wide, or up to a last digit."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for data in (theirs, ours):
            path = Path(folder, f"rows{ending}")
            path.write_bytes(data)
            parts.append(read_rows(path, kind.schema).values)
    a, b = parts
    if ending == ".csv" and csv_of(Rows(kind.schema, a)) != theirs:
        return False
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    for place, column in enumerate(kind.schema.columns):
        apart = np.nan_to_num(np.abs(a[:, place] - b[:, place]))
        low, high = getattr(column, "bounds", (0.0, 0.0))
        unit = 10.0 ** -getattr(column, "decimals", 0) if high > low else 0.0
        far = apart > _CLOSE * (high - low)
        if (apart > _CLOSE * (high - low) + 1.01 * unit).any() or far.mean() > _FEW:
            return False
    return True
