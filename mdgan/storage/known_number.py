"""Caches a number that a run has measured on its machine, for later runs."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from mdgan.settings.machine import cache_folder
from mdgan.storage.whole_file import write_whole


class KnownNumber:
    """A whole number from 1 to `most` in the cache folder, in its own file for each `about`."""

    def __init__(self, name: str, about: str, most: int) -> None:
        self._name, self._most = name, most
        self._file: Path | None = None
        folder = cache_folder()
        if folder is not None:
            digest = hashlib.sha256(about.encode()).hexdigest()
            self._file = folder / name / f"{digest[:32]}.json"

    def read(self) -> int | None:
        """The number; None if no earlier run has written it, or its file cannot be used."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            if self._file is not None:
                number = json.loads(self._file.read_text())[self._name]
                if isinstance(number, int) and 1 <= number <= self._most:
                    return number
        return None

    def write(self, number: int) -> None:
        """Writes the number; if the disk refuses, the next run has to measure it again."""
        with suppress(OSError):
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._file, json.dumps({self._name: number}).encode())
