"""Which machines a run has, and what joins them. Without torch, so it is quick."""

from dataclasses import dataclass
from math import inf

_PAYLOAD = 1448 / 1538
"""The part of Ethernet's bits that is left for what is sent over TCP."""


@dataclass(frozen=True)
class Layout:
    """Who computes where.

    Attributes:
        hosts: the workers of each host process.
        cores: of a machine.
        host_threads: compute threads of a host.
        server_threads: compute threads of the server.
        shared: whether one machine runs everything; else the server and every host have their own.
    """

    hosts: tuple[tuple[int, ...], ...]
    cores: int
    host_threads: int
    server_threads: int
    shared: bool

    @property
    def num_workers(self) -> int:
        """N."""
        return sum(map(len, self.hosts))

    @property
    def most_carried(self) -> int:
        """The workers of the largest host."""
        return max(map(len, self.hosts))


@dataclass(frozen=True)
class Link:
    """What joins a machine to the others, in both directions at once.

    Attributes:
        bits_per_second: infinite if it is no limit.
        latency_seconds: one way.
    """

    bits_per_second: float = inf
    latency_seconds: float = 0.0

    def seconds(self, num_bytes: float) -> float:
        """How long bytes take, without the latency."""
        return 8 * num_bytes / (_PAYLOAD * self.bits_per_second)
