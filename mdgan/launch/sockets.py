"""Where the ranks of one machine talk to each other."""

import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mdgan.errors import BadInput


def make_private_folder() -> "tempfile.TemporaryDirectory[str]":
    """A new folder for sockets, with mode 0700 and a name that cannot be foretold.

    Raises:
        BadInput: another user could put a folder of theirs in its place.
    """
    above = tempfile.gettempdir()
    mode = Path(above).stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise BadInput(
            f"TMPDIR {above}: other users may rename what is in it; `chmod +t {above}` forbids "
            "that, or name another folder"
        )
    return tempfile.TemporaryDirectory(prefix="mdgan-", ignore_cleanup_errors=True)


@dataclass(frozen=True)
class Sockets:
    """A folder with a socket for each rank, which is its user's alone.

    Attributes:
        alone: whether no rank of the run is on another machine.
    """

    folder: Path
    alone: bool

    @property
    def server(self) -> str:
        """Where the server listens."""
        return f"unix:{self.folder / 'server'}"

    def host(self, number: int) -> str:
        """Where a host hands out parcels."""
        return f"unix:{self.folder / str(number)}"
