"""Reads the rows of a run's files: all that fit memory, or new ones as the files grow."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mdgan.errors import BadInput
from mdgan.records.rows import PLACEMENT, json_object
from mdgan.storage import foreign_file
from mdgan.storage.budget import most_decoded

METRICS = "metrics"  # the name of `metrics.jsonl`; all other files are named by their role

_FIRST_LOOK_BYTES = 1 << 18
_PIECE_BYTES = 1 << 20
_REMEMBERED_BYTES = 64
_TIMES_AS_ROWS = 25  # how many times the memory of its text a short row takes
_MANY = (None, "round", "swap", "fetching", "profile", PLACEMENT)
"""Events that may happen in every iteration; None stands for a row of losses."""
_SPREAD, _RANGE = 0x9E3779B1, 1 << 32


class RowReader:
    """Reads some files of one run; of huge files, only the rows of some iterations.

    A hash of its number decides about an iteration, so all files keep the same ones.

    Args:
        damage: a list to which this reader adds a line for each reason to leave rows out.
    """

    def __init__(self, files: Iterable[Path], damage: list[str]) -> None:
        self._damage = damage
        self._remaining_bytes = room = most_decoded() // _TIMES_AS_ROWS
        sizes = [file.stat().st_size for file in files if file.is_file()]
        # `read` refuses larger files.
        size = sum(n for n in sizes if n <= foreign_file.MOST_RECORDS_BYTES)
        self._one_in = 1 if size <= room else -(-2 * size // (room or 1))

    def read(self, path: Path, take: Callable[[dict[str, Any]], None]) -> None:
        """Passes each JSON object of a file to `take`; does nothing if the file is missing.

        Raises:
            BadInput: the file's events would take too much memory.
        """
        left_out = Counter[str]()
        try:
            for line in foreign_file.lines_of(path):
                left_out[self._hand_on(path, line, take)] += 1
        except FileNotFoundError:
            return
        except OSError as error:
            self._damage.append(f"{path}: {error.strerror}, and is left out")
        del left_out[""]
        self._damage += [f"{path}: {why.format(number)}" for why, number in left_out.items()]

    def _hand_on(self, path: Path, line: bytes, take: Callable[[dict[str, Any]], None]) -> str:
        """Passes a line on, or returns why not, with {} for the number of such lines."""
        if not line.endswith(b"\n"):
            return "ends in the middle of a line, which is left out"
        try:
            record = json_object(line)
        except ValueError:
            return "{} line(s) are damaged and left out"
        if self._is_left_out(record):
            why = f"one iteration in {self._one_in} is read, for the sake of memory"
            return f"{{:,}} line(s) are left out: {why}"
        self._remaining_bytes -= len(line)
        if self._remaining_bytes < 0:
            raise BadInput(path, "holds more than a run records", "name another folder")
        try:
            take(record)
        except (ValueError, RecursionError):
            return "{} line(s) make no sense and are left out"
        return ""

    def _is_left_out(self, record: dict[str, Any]) -> bool:
        if self._one_in == 1 or record.get("event") not in _MANY:
            return False
        iteration = record.get("iteration")
        spread = iteration * _SPREAD % _RANGE if isinstance(iteration, int) else 0
        return spread * self._one_in >= _RANGE


class News(NamedTuple):
    """New rows of a file; `anew` if the file was replaced, so that earlier rows are void."""

    name: str
    anew: bool
    records: list[dict[str, Any]]


class RunTail:
    """Reads new rows of all growing files of a run; at first only the end of a long timeline.

    `modified` has the time of the last change of each file, and of `run.json`.
    """

    def __init__(self, folder: Path) -> None:
        self._status = folder / "run.json"
        self._traces = folder / "trace"
        self._files = {METRICS: _FileTail(folder / "metrics.jsonl", None)}
        self.modified: dict[Path, float] = {}

    def read(self) -> Iterator[News]:
        """Yields the rows that are new since the last call, file by file, in small pieces."""
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
    """Reads the new lines of one growing file."""

    def __init__(self, path: Path, first_look_bytes: int | None) -> None:
        self.path = path
        self._first_look = first_look_bytes
        self._number: int | None = None
        self._offset = 0
        self._before = b""  # the bytes before the offset, which change if the file is rewritten
        self._in_line = False  # whether the offset is inside a line, whose rest is left out

    def read(self) -> Iterator[tuple[bool, list[dict[str, Any]]]]:
        """Yields whether the file was replaced, and the JSON objects in its new complete lines."""
        with (
            suppress(OSError),  # the file may not exist at the moment
            foreign_file.open_regular(self.path, foreign_file.MOST_RECORDS_BYTES) as file,
        ):
            anew, before = self._is_another(file), -1
            while self._offset > before:
                before = file.seek(self._offset)
                if b"\n" not in (data := file.read(_PIECE_BYTES)):
                    data += file.read(foreign_file.LONGEST_LINE_BYTES)
                records = list[dict[str, Any]]()
                for line in self._complete(data):
                    with suppress(ValueError):  # a crash may leave damaged lines
                        records.append(json_object(line))
                yield anew, records
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
        """Takes the complete lines at the offset and moves it behind them; skips endless lines."""
        length, is_endless = data.rfind(b"\n") + 1, len(data) > foreign_file.LONGEST_LINE_BYTES
        if is_endless and not length:
            length = len(data)
        self._offset += length
        self._before = (self._before + data[:length])[-_REMEMBERED_BYTES:]
        lines = data[:length].split(b"\n")[:-1]
        left_out = self._in_line and len(lines) > 0
        self._in_line = not lines and (self._in_line or is_endless)
        return lines[left_out:]
