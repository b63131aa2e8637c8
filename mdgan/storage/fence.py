"""Decides which server may write to a run's folder: the one with the highest generation."""

import errno
import json
import os
import re
import secrets
import socket
import time
from pathlib import Path

from mdgan.storage.foreign_file import read_whole
from mdgan.storage.whole_file import sync_folder


class Fenced(RuntimeError):
    """Another server has taken over this run."""


class Fence:
    """One server's claim to a run's folder.

    Each claim is a file `generation-<number>.json`. The files stay, as a record of a run's servers.

    Attributes:
        generation: 1 for the first server of a run; each later server has a higher one.
    """

    def __init__(self, folder: Path, generation: int, claim: bytes) -> None:
        self._folder = folder
        self._claim = claim
        self.generation = generation

    @classmethod
    def claim(cls, folder: Path) -> "Fence":
        """Takes the folder over; from now on `check` refuses the server that had it before.

        If two servers claim the folder at once, each gets its own generation, and `check` refuses
        the one with the lower.

        Args:
            folder: the folder that all servers of the run share; it must exist.
        """
        # The random part makes the claim unique, even among runs whose folders have the same name.
        about = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
        claim = json.dumps({**about, "claim": secrets.token_hex(8)}).encode()
        generation = _highest(folder) + 1
        while not _make(folder, generation, claim):
            generation += 1
        return cls(folder, generation, claim)

    def check(self) -> None:
        """Makes sure that no other server has taken over; call it before every lasting step.

        Raises:
            Fenced: a server of a higher generation has taken over.
            OSError: the folder cannot be read, or now belongs to another run.
        """
        path = self._folder / _name(self.generation)
        if path.read_bytes() != self._claim:
            raise OSError(errno.ESTALE, "another run is there now", str(self._folder))
        highest = _highest(self._folder)
        if highest > self.generation:
            successor = _describe(self._folder / _name(highest))
            raise Fenced(f"generation {highest} has taken over{successor}")

    def withdraw(self) -> None:
        """Removes this claim's file, as if this server had never claimed the folder."""
        (self._folder / _name(self.generation)).unlink()


def _name(generation: int) -> str:
    return f"generation-{generation}.json"


def _highest(folder: Path) -> int:
    with os.scandir(folder) as entries:
        matches = [re.fullmatch(r"generation-([0-9]{1,18})\.json", entry.name) for entry in entries]
    return max((int(match[1]) for match in matches if match), default=0)


def _make(folder: Path, generation: int, claim: bytes) -> bool:
    """Creates the file of a generation; False if another server has created it."""
    path = folder / _name(generation)
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    # The file's name alone decides, so a server may read it half written.
    try:
        with file:
            file.write(claim)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def _describe(path: Path) -> str:
    try:
        about = json.loads(read_whole(path))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["time"]))
        return f" ({about['host']}, process {about['process']}, at {since})"
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return ""
