"""Reads the rows of a run's files as long as memory holds what they say."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.records.rows import PLACEMENT, json_object
from mdgan.storage.budget import most_decoded
from mdgan.storage.foreign_file import MOST_RECORDS_BYTES, lines_of

_TIMES_AS_ROWS = 25  # how much more memory a short row takes than its text
_MANY = (None, "round", "swap", "fetching", "profile", PLACEMENT)
"""Events that a run may have in every iteration, which has none itself."""
_SPREAD, _RANGE = 0x9E3779B1, 1 << 32


class RowReader:
    """Reads some files of one run; if they are huge, the rows of some iterations alone.

    Which these are follows from their numbers, so they are the same in all files.

    Args:
        damage: gets a line for each reason why rows are left out.
    """

    def __init__(self, files: Iterable[Path], damage: list[str]) -> None:
        self._damage = damage
        self._left = most_decoded() // _TIMES_AS_ROWS
        sizes = [file.stat().st_size for file in files if file.is_file()]
        size = sum(each for each in sizes if each <= MOST_RECORDS_BYTES)  # larger ones are not read
        self._one_in = 1 if size <= self._left else -(-2 * size // (self._left or 1))

    def read(self, path: Path, take: Callable[[dict[str, Any]], None]) -> None:
        """Hands on the JSON objects of a file, if it is there.

        Raises:
            BadInput: its events would take too much memory.
        """
        left_out = Counter[str]()
        try:
            for line in lines_of(path):
                left_out[self._hand_on(path, line, take)] += 1
        except FileNotFoundError:
            return
        except OSError as error:
            self._damage.append(f"{path}: {error.strerror}, and is left out")
        del left_out[""]
        self._damage += [f"{path}: {why.format(number)}" for why, number in left_out.items()]

    def _hand_on(self, path: Path, line: bytes, take: Callable[[dict[str, Any]], None]) -> str:
        """Why a line is left out, with a place for how many are; empty if it is not."""
        if not line.endswith(b"\n"):
            return "ends in the middle of a line, which is left out"
        try:
            record = json_object(line)
        except ValueError:
            return "{} line(s) are damaged and left out"
        if self._is_left_out(record):
            why = f"one iteration in {self._one_in} is read, for the sake of memory"
            return f"{{:,}} line(s) are left out: {why}"
        self._left -= len(line)
        if self._left < 0:
            raise BadInput(f"{path}: holds more than a run records; name another folder")
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
