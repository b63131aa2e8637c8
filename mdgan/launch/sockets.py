"""Where the ranks of one machine talk to each other."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sockets:
    """A folder with a socket for each rank, which is its user's alone.

    Attributes:
        folder: it exists, with mode 0700.
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
