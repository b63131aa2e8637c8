"""Writes and verifies `audit-log.jsonl`: who joined, asked, left or was refused.

Each line holds the SHA-256 of the line before. So an attacker cannot change, remove or insert a
line, except at the end, without rewriting all later ones. The last line's hash stands for all.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mdgan.errors import BadInput
from mdgan.records.rows import json_object
from mdgan.storage.whole_file import OWNER_ALONE

AUDIT_LOG_FILE = "audit-log.jsonl"
_BEFORE_ALL = "0" * 64
_MOST_LINE_BYTES = 1 << 16
_MOST_RANKS_TOLD = 64


class _Last(NamedTuple):
    """The last complete line of a log: its number, its hash, and where it ends."""

    number: int = 0
    sha256: str = _BEFORE_ALL
    end: int = 0


class AuditLog:
    """Adds lines to the log of a run, after the last complete line in the file."""

    def __init__(self, run: Path) -> None:
        self._path = run / AUDIT_LOG_FILE
        self._last: _Last | None = None

    def add(
        self,
        action: str,
        outcome: str,
        iteration: int,
        ranks: Sequence[int] = (),
        certificate: str = "",
        address: str = "",
    ) -> None:
        """Adds a line in one write; `certificate` is the fingerprint of the caller's."""
        with _opened(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            last, self._last = self._last or _whole_end(file), None  # None stays if this fails
            entry = {
                "number": last.number + 1,
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "action": action,
                "outcome": outcome,
                "iteration": iteration,
                "ranks": list(ranks[:_MOST_RANKS_TOLD]),
                "fingerprint": certificate,
                "address": address,
                "before": last.sha256,
            }
            line = json.dumps(entry).encode()
            file.write(line + b"\n")
        self._last = _Last(last.number + 1, sha256(line).hexdigest())


class Verified(NamedTuple):
    """The result of verifying a log."""

    entries: int  # how many lines, from the first on, each follow from the line before
    sha256: str  # the hash of the last of them
    trouble: str = ""  # what is wrong with the next line; empty if there is none


def verify(run: Path) -> Verified:
    """Verifies a run's log up to the first wrong line; BadInput if the log cannot be read."""
    path = run / AUDIT_LOG_FILE
    last = _Last()
    try:
        with _opened(path, os.O_RDONLY) as file:
            for line, now in _lines(file):
                if trouble := _trouble(line, now.number, last.sha256):
                    return Verified(last.number, last.sha256, trouble)
                last = now
    except FileNotFoundError as error:
        raise BadInput(path, "is not there", "name a run that others have joined") from error
    except OSError as error:
        raise BadInput(path, f"cannot be read ({error.strerror})") from error
    return Verified(last.number, last.sha256)


def _trouble(line: bytes, number: int, before: str) -> str:
    if not line.endswith(b"\n"):
        return "it is not complete"
    try:
        entry = json_object(line)
    except ValueError:
        return "it is no entry"
    if entry.get("before") != before:
        return f"it does not follow from line {number - 1}" if number > 1 else "it is not the first"
    return "" if entry.get("number") == number else "its number is wrong"


def _whole_end(file: BinaryIO) -> _Last:
    """Finds the last complete line; cuts off a line that was not written to its end."""
    last = _Last()
    for line, now in _lines(file):
        if line.endswith(b"\n"):
            last = now
    file.truncate(last.end)
    return last


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, _Last]]:
    """Yields the lines of a log, each with its number, hash and end."""
    last = _Last()
    while line := file.readline(_MOST_LINE_BYTES):
        digest = sha256(line.removesuffix(b"\n")).hexdigest()
        last = _Last(last.number + 1, digest, last.end + len(line))
        yield line, last


@contextmanager
def _opened(path: Path, how: int) -> Iterator[BinaryIO]:
    """Opens the log, for this user alone; OSError if it is a link or no regular file."""
    flags = how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    number = os.open(path, flags, OWNER_ALONE)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    with os.fdopen(number, "r+b" if how & os.O_RDWR else "rb") as file:
        yield file
