"""Which machines a run has, and what joins them. Without torch, so it is quick."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from mdgan.engine.settings import num_participants

_PAYLOAD = 1448 / 1538
"""The part of Ethernet's bits that is left for what is sent over TCP."""


Workers = tuple[int, ...]
"""Those of one host, in increasing order."""


@dataclass(frozen=True)
class Layout:
    """Who computes where.

    Attributes:
        hosts: the workers of each host process.
        cores: of a machine.
        host_threads: compute threads of a host.
        server_threads: compute threads of the server.
        shared: whether one machine runs everything; else the server and every host have their own.
        speeds: of each host; 1 as on this machine. Empty if all are.
    """

    hosts: tuple[Workers, ...]
    cores: int
    host_threads: int
    server_threads: int
    shared: bool
    speeds: tuple[float, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """How many workers each host carries."""
        return [len(carried) for carried in self.hosts]

    @property
    def num_workers(self) -> int:
        """N."""
        return sum(self.sizes)

    @property
    def slots(self) -> int:
        """How many hosts of a machine compute at a time."""
        return max(1, self.cores // self.host_threads)

    def asked(self, participation: float) -> "Layout":
        """The same with the workers that are asked in a step, spread evenly over the hosts.

        Args:
            participation: C, in ]0, 1].
        """
        workers = [worker for carried in self.hosts for worker in carried]
        count = num_participants(participation, len(workers))
        chosen = {workers[n * len(workers) // count] for n in range(count)}
        hosts = [tuple(n for n in carried if n in chosen) for carried in self.hosts]
        speeds = [speed for speed, carried in zip(self.speeds, hosts, strict=False) if carried]
        return replace(self, hosts=tuple(filter(None, hosts)), speeds=tuple(speeds))


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


def consecutive(sizes: Sequence[int]) -> tuple[Workers, ...]:
    """The workers of hosts that carry so many, numbered from 1."""
    ends = accumulate(sizes)
    return tuple(tuple(range(end - n + 1, end + 1)) for n, end in zip(sizes, ends, strict=True))
