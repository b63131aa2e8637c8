"""Reads the files of a run while they are written, each from where the last reading ended."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mdgan.records.rows import json_object
from mdgan.storage.foreign_file import LONGEST_LINE_BYTES, MOST_RECORDS_BYTES, open_regular

METRICS = "metrics"  # the name of `metrics.jsonl`; all other files are named by their role

_FIRST_LOOK_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20
_REMEMBERED_BYTES = 64


class News(NamedTuple):
    """A piece of what is new in a file; `anew` if it was replaced: what was read before is void."""

    name: str
    anew: bool
    records: list[dict[str, Any]]


class RunTail:
    """All files of a run that grow; of a long timeline only the last part, and nothing twice.

    `modified` says when each of them, and `run.json`, was last written to.
    """

    def __init__(self, folder: Path) -> None:
        self._status = folder / "run.json"
        self._traces = folder / "trace"
        self._files = {METRICS: _FileTail(folder / "metrics.jsonl", None)}
        self.modified: dict[Path, float] = {}

    def read(self) -> Iterator[News]:
        """Everything new since the last call, by file, so that no huge file fills the memory."""
        for path in sorted(self._traces.glob("*.jsonl")):
            if path.stem not in self._files:
                self._files[path.stem] = _FileTail(path, _FIRST_LOOK_BYTES)
        for name, file in self._files.items():
            for anew, records in file.read():
                if anew or records:
                    yield News(name, anew, records)
        for path in (self._status, *(file.path for file in self._files.values())):
            with suppress(OSError):
                self.modified[path] = path.stat().st_mtime


class _FileTail:
    """One file that grows."""

    def __init__(self, path: Path, first_look_bytes: int | None) -> None:
        self.path = path
        self._first_look = first_look_bytes
        self._number: int | None = None
        self._offset = 0
        self._before = b""  # the bytes before the offset; if they change, the file was rewritten
        self._in_line = False  # whether the offset is inside a line; the rest of it is left out

    def read(self) -> Iterator[tuple[bool, list[dict[str, Any]]]]:
        """Whether the file has been replaced, and the objects in its new complete lines."""
        with (
            suppress(OSError),  # it does not exist, or not at the moment
            open_regular(self.path, MOST_RECORDS_BYTES) as file,
        ):
            anew, before = self._is_another(file), -1
            while self._offset > before:
                before = file.seek(self._offset)
                if b"\n" not in (data := file.read(_PIECE_BYTES)):
                    data += file.read(LONGEST_LINE_BYTES)
                found = list[dict[str, Any]]()
                for line in self._complete(data):
                    with suppress(ValueError):  # a crash may leave damaged lines
                        found.append(json_object(line))
                yield anew, found
                anew = False

    def _is_another(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        file.seek(self._offset - len(self._before))
        if status.st_ino == self._number and file.read(len(self._before)) == self._before:
            return False
        self._number = status.st_ino
        self._before = b""
        self._offset = 0
        if self._first_look is not None:
            self._offset = max(0, status.st_size - self._first_look)
        self._in_line = self._offset > 0
        return True

    def _complete(self, data: bytes) -> list[bytes]:
        """The complete lines at the offset, which moves behind them; none of one without end."""
        length, is_endless = data.rfind(b"\n") + 1, len(data) > LONGEST_LINE_BYTES
        if is_endless and not length:
            length = len(data)
        self._offset += length
        self._before = (self._before + data[:length])[-_REMEMBERED_BYTES:]
        lines = data[:length].split(b"\n")[:-1]
        left_out = self._in_line and len(lines) > 0
        self._in_line = not lines and (self._in_line or is_endless)
        return lines[left_out:]
