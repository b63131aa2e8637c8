"""Reads files that others may have put into a folder: regular ones alone, up to a size."""

import os
import stat
from errno import EINVAL
from io import BufferedReader
from pathlib import Path

MOST_DOCUMENT_BYTES = 1 << 26
"""Of a file that is read as a whole: settings, the status of a run, a picture."""
MOST_RECORDS_BYTES = 1 << 32  # of a file that is read line by line
LONGEST_LINE_BYTES = 1 << 26


def open_regular(path: Path, most_bytes: int | None = None) -> BufferedReader:
    """Opens a file to read.

    Args:
        most_bytes: the largest size; None for any.

    Raises:
        OSError: it cannot be read, is larger, or is no regular file. A pipe would keep the reader
            waiting for ever, and a device may have no end.
    """
    _check(path.stat(), path, most_bytes)  # to open some devices does something already
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor), path, most_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_whole(path: Path, most_bytes: int = MOST_DOCUMENT_BYTES) -> bytes:
    """The content of a file; raises as `open_regular`."""
    with open_regular(path, most_bytes) as file:
        return file.read(most_bytes)


def _check(status: os.stat_result, path: Path, most_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(EINVAL, "is no regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise OSError(EINVAL, f"is larger than {most_bytes >> 20} MiB", str(path))
