"""Which machines a run has, what joins them, and what each carries; quick, without torch."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from mdgan.engine.settings import num_participants
from mdgan.errors import BadInput
from mdgan.spelling import flag

_PAYLOAD = 1448 / 1538  # the part of Ethernet's bits that is left for what is sent over TCP
_FORM = re.compile(r"(\d{1,5})x ([^\s:/,][^:/,]{0,40}?)(?::([0-9.]{1,12}))?(?:/(\d{1,4}))?")
_MOST, _MOST_SPEED, _MOST_SLOTS = 10_000, 1e4, 1024

Workers = tuple[int, ...]  # those of one host, in increasing order


@dataclass(frozen=True)
class Layout:
    """Who computes where."""

    hosts: tuple[Workers, ...]
    cores: int
    host_threads: int
    server_threads: int
    # Whether one machine runs everything; else the server and every host have their own.
    shared: bool
    speeds: tuple[float, ...] = ()  # of each host; 1 as on this machine. Empty if all are.

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
        """The same with the workers that are asked in a step, spread evenly over the hosts."""
        workers = [worker for carried in self.hosts for worker in carried]
        count = num_participants(participation, len(workers))
        chosen = {workers[n * len(workers) // count] for n in range(count)}
        hosts = [tuple(n for n in carried if n in chosen) for carried in self.hosts]
        speeds = [speed for speed, carried in zip(self.speeds, hosts, strict=False) if carried]
        return replace(self, hosts=tuple(filter(None, hosts)), speeds=tuple(speeds))


@dataclass(frozen=True)
class Link:
    """What joins a machine to the others in both directions; without a limit infinite bits."""

    bits_per_second: float = inf
    latency_seconds: float = 0.0

    def seconds(self, num_bytes: float) -> float:
        """How long bytes take, without the latency."""
        return 8 * num_bytes / (_PAYLOAD * self.bits_per_second)


@dataclass(frozen=True)
class Machines:
    """Some machines that are alike."""

    count: int
    name: str
    speed: float = 1.0  # of a worker or a slot there; 1 as here
    slots: int | None = None  # of each of them; None for as many as here

    def __str__(self) -> str:
        return f"{self.count}x {self.name}"


def parse_machines(text: str) -> tuple[Machines, ...]:
    """Reads a list of machines: `COUNTx NAME`, with `:SPEED` and `/SLOTS` where they differ."""
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
            fast = float(speed or 1)
        except ValueError:
            fast = 0.0
        if not 0 < fast <= _MOST_SPEED:
            why = "its speed must be above 0"
            raise BadInput(flag("machines", part.strip()), why, "here it is 1")
        if slots is not None and not 1 <= int(slots) <= _MOST_SLOTS:
            raise BadInput(flag("machines", part.strip()), f"slots must be from 1 to {_MOST_SLOTS}")
        machines.append(
            Machines(int(count), name, fast, slots=None if slots is None else int(slots))
        )
    if not all(each.count for each in machines) or sum(each.count for each in machines) > _MOST:
        why = f"a number of machines must be 1 to {_MOST:,}"
        raise BadInput(flag("machines", f"{text!r:.60}"), why)
    return tuple(machines)


def shared_out(num_workers: int, speeds: Sequence[float]) -> list[int]:
    """How many workers each machine carries so that the last of them is done first.

    All workers cost the same: each goes to the machine that would then be done first, of equal ones
    to the first.
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
    """The workers of hosts that carry so many, numbered from 1."""
    ends = accumulate(sizes)
    return tuple(tuple(range(end - n + 1, end + 1)) for n, end in zip(sizes, ends, strict=True))
