"""Reads files that other users may have written: regular files only, and only up to a size."""

import os
import stat
from collections.abc import Iterator
from errno import EINVAL
from io import BufferedReader
from pathlib import Path

from mdgan.storage.budget import check_whole

MOST_DOCUMENT_BYTES = 1 << 24
"""The largest file that is read whole, such as settings. In memory JSON takes 25 times as much."""
MOST_PICTURE_BYTES = 1 << 26
MOST_RECORDS_BYTES = 1 << 32
"""The largest file that is read line by line."""
LONGEST_LINE_BYTES = 1 << 23
_END_BYTES = 1 << 14


def open_regular(path: Path, most_bytes: int | None = None) -> BufferedReader:
    """Opens a file to read.

    Args:
        most_bytes: the largest size; None for any.

    Raises:
        OSError: the file cannot be read, is larger, or is not regular. A pipe could make the
            reader wait for ever, and a device may have no end.
    """
    _check(path.stat(), path, most_bytes)  # before opening, which makes some devices act
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor), path, most_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_whole(path: Path, most_bytes: int | None = MOST_DOCUMENT_BYTES) -> bytes:
    """Reads a file; raises as `open_regular`, or if `most_bytes` is None also as `check_whole`."""
    with open_regular(path, most_bytes) as file:
        if most_bytes is None:
            check_whole(path)
        return file.read(most_bytes)


def read_given(path: Path, most_bytes: int) -> bytes:
    """Reads a file that the user names, which may be a pipe; raises OSError."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    _check_size(len(data), path, most_bytes)
    return data


def lines_of(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file, a line that is too long in pieces; raises as `open_regular`."""
    with open_regular(path, MOST_RECORDS_BYTES) as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            yield line


def _check(status: os.stat_result, path: Path, most_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(EINVAL, "is no regular file", str(path))
    _check_size(status.st_size, path, most_bytes)


def _check_size(size: int, path: Path, most_bytes: int | None) -> None:
    if most_bytes is not None and size > most_bytes:
        raise OSError(EINVAL, f"is larger than {most_bytes >> 10:,} KiB", str(path))


def ends_of(path: Path) -> bytes:
    """The length, beginning and end of a file, or of each file in a folder; raises OSError."""
    if path.is_dir():
        return b"".join(ends_of(file) for file in sorted(path.iterdir()) if file.is_file())
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(_END_BYTES)
        file.seek(max(len(begin), size - _END_BYTES))
        return b"%d %b%b" % (size, begin, file.read(_END_BYTES))
