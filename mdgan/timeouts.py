"""The time limits that several rooms share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Limits that users set or that several rooms share, in seconds; others are constants."""

    connect: float = 300.0  # until the server answers, and until all workers have joined
    link: float = 30.0  # until a link between two processes is open
    swap: float = 60.0  # until a partner's discriminator has arrived
    answer: float = 600.0  # until a host has answered; after that it counts as lost
    farewell: float = 2.0  # for the last messages before a process ends
    liveness: float = 30.0  # until a peer that answers no ping counts as gone
    # How long a server without workers waits for one, and a host for a server.
    patience: float = 300.0

    def __post_init__(self) -> None:
        """A host that waits for a swap must outlast the opening of its link."""
        if not 0 < self.farewell < self.link < self.swap < self.answer:
            raise ValueError(f"time limits must rise from farewell to answer: {self}")
