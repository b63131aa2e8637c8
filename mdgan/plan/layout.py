"""Machines of a planned run, the link between them, and their workers. Imports no torch."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.spelling import flag

_PAYLOAD = 1448 / 1538  # the part of Ethernet's bits that TCP leaves for content
_FORM = re.compile(r"(\d{1,5})x ([^\s:/,][^:/,]{0,40}?)(?::([0-9.]{1,12}))?(?:/(\d{1,4}))?")
_MOST, _MOST_SPEED, _MOST_SLOTS = 10_000, 1e4, 1024

Workers = tuple[int, ...]  # ranks of the workers of one host, in increasing order


@dataclass(frozen=True)
class Layout:
    """Which host carries which workers, and which cores and threads it has."""

    hosts: tuple[Workers, ...]
    cores: int
    host_threads: int
    server_threads: int
    shared: (
        bool  # whether one machine runs everything; else the server and each host have their own
    )
    speeds: tuple[float, ...] = ()  # of each host beside this machine; empty: all as fast as it

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
        """How many hosts of a machine compute at the same time."""
        return max(1, self.cores // self.host_threads)

    def asked(self, participation: float) -> "Layout":
        """This layout with only the workers that are asked in a step, evenly from all hosts."""
        workers = [worker for carried in self.hosts for worker in carried]
        count = num_participants(participation, len(workers))
        asked = {workers[n * len(workers) // count] for n in range(count)}
        hosts = [tuple(n for n in carried if n in asked) for carried in self.hosts]
        speeds = [speed for speed, carried in zip(self.speeds, hosts, strict=False) if carried]
        return replace(self, hosts=tuple(filter(None, hosts)), speeds=tuple(speeds))


@dataclass(frozen=True)
class Link:
    """The network link of a machine to the others, equal in both directions."""

    bits_per_second: float = inf  # no limit
    latency_seconds: float = 0.0

    def seconds(self, num_bytes: float) -> float:
        """How long the link takes to carry these bytes, without the latency."""
        return 8 * num_bytes / (_PAYLOAD * self.bits_per_second)


@dataclass(frozen=True)
class Machines:
    """A group of equal machines, as `--machines` names them."""

    count: int
    name: str
    speed: float = 1.0  # of a worker or slot there; on this machine it is 1
    slots: int | None = None  # of each machine; None: as many as this machine has

    def __str__(self) -> str:
        return f"{self.count}x {self.name}"


def parse_machines(text: str) -> tuple[Machines, ...]:
    """Reads a list of `COUNTx NAME`, with `:SPEED` and `/SLOTS` if they differ from here."""
    machines = []
    for part in text.split(","):
        match = _FORM.fullmatch(part.strip())
        if match is None:
            raise BadInput(
                flag("machines", f"{part.strip()!r:.60}"),
                'must be one, each, or machines such as "4x fast, 8x slow:0.5" (COUNTx '
                "NAME:SPEED/SLOTS)",
            )
        count, name, speed, slots = match.groups()
        try:
            speed_here = float(speed or 1)
        except ValueError:
            speed_here = 0.0
        if not 0 < speed_here <= _MOST_SPEED:
            why = "its speed must be above 0"
            raise BadInput(flag("machines", part.strip()), why, "this machine's speed is 1")
        if slots is not None and not 1 <= int(slots) <= _MOST_SLOTS:
            raise BadInput(flag("machines", part.strip()), f"slots must be from 1 to {_MOST_SLOTS}")
        machines.append(
            Machines(int(count), name, speed_here, slots=None if slots is None else int(slots))
        )
    counts = [group.count for group in machines]
    if not all(counts) or sum(counts) > _MOST:
        why = f"a number of machines must be 1 to {_MOST:,}"
        raise BadInput(flag("machines", f"{text!r:.60}"), why)
    return tuple(machines)


def shared_out(num_workers: int, speeds: Sequence[float]) -> list[int]:
    """How many workers each machine carries so that the slowest is done as early as possible.

    All workers cost the same. Each goes to the (first) machine that would be done first with it.
    """
    counts = [0] * len(speeds)
    queue = [(1 / speed, place) for place, speed in enumerate(speeds)]
    heapq.heapify(queue)
    for _ in range(num_workers):
        _, place = queue[0]
        counts[place] += 1
        heapq.heapreplace(queue, ((counts[place] + 1) / speeds[place], place))
    return counts


def consecutive(sizes: Sequence[int]) -> tuple[Workers, ...]:
    """The workers of each host, numbered from 1 in order; `sizes` says how many each carries."""
    ends = accumulate(sizes)
    return tuple(tuple(range(end - n + 1, end + 1)) for n, end in zip(sizes, ends, strict=True))
