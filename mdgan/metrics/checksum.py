"""Files told apart by their SHA-256."""

import hashlib
from pathlib import Path

from mdgan.errors import BadInput


def read_bytes(path: Path, flag: str = "--extractor") -> tuple[bytes, str]:
    """A file's content and its SHA-256, so that what was checked is what is used.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{flag} {path}: cannot be read ({error.strerror})") from error
    return content, hashlib.sha256(content).hexdigest()


def shortened(sha256: str) -> str:
    """The first 12 digits, enough to tell two files apart by eye."""
    return f"{sha256[:12]}…"
