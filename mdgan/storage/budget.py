"""How much memory the content of a file may take, by what its header says, before it is decoded.

A file of a thousand bytes can say that it holds four billion. All readers of files that others may
have made ask here.
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
"""Pictures of one colour, masks and columns that hardly change get as small as that."""
_MEMORY_SHARE = 2
_PIXEL_BYTES, _MOST_PICTURES = 4, 32
"""Of a decoded picture, and as many are read at the same time."""
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_allowed_bytes: int | None = None

warnings.filterwarnings("ignore", r"Image size \(")  # of PIL; `check_picture` refuses instead


def allow(gib: int | None) -> None:
    """Lets the files that this process reads take so much memory each; None for what is usual."""
    global _allowed_bytes
    _allowed_bytes = None if gib is None else gib << 30


def most_decoded(stored_bytes: int = 0) -> int:
    """How many bytes a file of some size on disk may take once it is decoded.

    Returns:
        1 GiB, or 800 times its size if that is more, but no more than half of the memory that is
        free; what the user allows instead.
    """
    if _allowed_bytes is not None:
        return _allowed_bytes
    free = min(psutil.virtual_memory().available, limit_of_container()) // _MEMORY_SHARE
    return int(min(free, max(_ALWAYS_BYTES, _TIMES_STORED * stored_bytes)))


@cache
def limit_of_container() -> float:
    """How much memory the control group of a container may take; infinite if that is not known."""
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # ValueError: the word `max`
            return int(Path("/sys/fs/cgroup", name).read_text())
    return math.inf


class TooLarge(ValueError):
    """The content of a file would take too much memory; the text is one line without its name."""


def check_decoded(num_bytes: float, stored: Path | int, what: str = "content") -> None:
    """Raises TooLarge if the content of a file would take too much memory.

    Args:
        num_bytes: that it takes once it is decoded.
        stored: the file, or its size; the holes that a file may have do not count.
        what: it holds, for the message.
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
    """Raises TooLarge for a file that cannot be read whole, as most of it are holes."""
    check_decoded(path.stat().st_size, path)


def check_picture(size: tuple[int, int], stored_bytes: int) -> None:
    """Raises TooLarge if as many pictures of some width and height as are read at a time are."""
    wide, high = size
    num_bytes = _MOST_PICTURES * _PIXEL_BYTES * wide * high
    what = f"{_MOST_PICTURES} pictures of {wide} × {high} pixels"
    check_decoded(num_bytes, _MOST_PICTURES * stored_bytes, what)
