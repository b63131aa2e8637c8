"""Limits the memory that the content of a file may take, before a reader decodes the file.

The header of a file of a thousand bytes can announce four billion. Every reader of files that other
users may have made checks the header's numbers here.
"""

import math
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from mdgan.spelling import key

SETTING = key("file_memory", "GIB")
_ALWAYS_BYTES = 1 << 30
_TIMES_STORED = 800
"""Pictures of one colour, masks and columns that hardly change are compressed as much as that."""
_MEMORY_SHARE = 2  # the free memory divided by this is the most for one file
_PIXEL_BYTES, _MOST_PICTURES = 4, 32
"""Bytes of a pixel of a decoded picture, and how many pictures are decoded at the same time."""
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_allowed_bytes: int | None = None

warnings.filterwarnings("ignore", r"Image size \(")  # of PIL; `check_picture` refuses instead


def allow(gib: int | None) -> None:
    """Sets how much memory each file that this process reads may take; None: the default."""
    global _allowed_bytes
    _allowed_bytes = None if gib is None else gib << 30


def most_decoded(stored_bytes: int = 0) -> int:
    """How many bytes a file of some size on disk may take once it is decoded.

    Returns:
        The limit that `allow` has set; or 1 GiB, or 800 times the size if that is more, but no more
        than half of the free memory.
    """
    if _allowed_bytes is not None:
        return _allowed_bytes
    free = min(psutil.virtual_memory().available, limit_of_container()) // _MEMORY_SHARE
    return int(min(free, max(_ALWAYS_BYTES, _TIMES_STORED * stored_bytes)))


@cache
def limit_of_container() -> float:
    """The memory limit of the container's control group; infinite if none is known."""
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # ValueError: the word `max`
            return int(Path("/sys/fs/cgroup", name).read_text())
    return math.inf


class TooLarge(ValueError):
    """The content of a file would take too much memory; the text, one line, does not name it."""


def check_decoded(num_bytes: float, stored: Path | int, what: str = "content") -> None:
    """Raises TooLarge if the content of a file would take too much memory.

    Args:
        num_bytes: how many bytes the content takes once it is decoded.
        stored: the file, or its size; holes in a sparse file do not count.
        what: names the content in the message.
    """
    if isinstance(stored, Path):
        about = stored.stat()
        stored = min(about.st_size, 512 * about.st_blocks)
    most = most_decoded(stored)
    if not num_bytes <= most:
        raise TooLarge(
            f"{what} in {stored:,} bytes would take {num_bytes / 1e9:,.2f} GB of memory, more than "
            f"{most / 1e9:,.2f} GB; split it, or if that is meant, train with {SETTING}"
        )


def check_whole(path: Path) -> None:
    """Raises TooLarge for a sparse file, mostly holes, that is too large to read whole."""
    check_decoded(path.stat().st_size, path)


def check_picture(size: tuple[int, int], stored_bytes: int) -> None:
    """Raises TooLarge if pictures of this width and height, 32 at a time, take too much memory."""
    width, height = size
    num_bytes = _MOST_PICTURES * _PIXEL_BYTES * width * height
    what = f"{_MOST_PICTURES} pictures of {width} × {height} pixels"
    check_decoded(num_bytes, _MOST_PICTURES * stored_bytes, what)
