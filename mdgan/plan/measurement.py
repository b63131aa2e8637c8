"""A few seconds on this machine: what a run takes, how much memory it needs, and what it sends.

Short runs of the server and a few hosts say so: in one, all compute at the same time, so that what
processes that share cores cost each other is measured, too; in the other, each alone.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import psutil

from mdgan.data.dataset_file import DatasetFile
from mdgan.families.contract import Algorithm, Planning
from mdgan.launch.models import models_of
from mdgan.plan.layout import Layout, consecutive
from mdgan.plan.phases import (
    MESSAGES,
    HostStages,
    Seconds,
    host_stages,
    per_worker,
    stages,
    step_seconds,
)
from mdgan.plan.prediction import Costs, Traffic, friction
from mdgan.plan.short_run import Role, play

_log = logging.getLogger(__name__)

_IN_TURNS, _TOGETHER, _SHORTEST = (6, 1.0), (3, 3.0), (1, 0.0)
"""The least steps and seconds of a short run."""
_HOSTS_A_CORE = 2
"""That play together, where there are so many."""
_CARRIED = 3
"""Workers of a host, where there are so many: enough that one does not find its weights in the
caches."""


class Measured(NamedTuple):
    """What was found.

    Attributes:
        costs: seconds, of workers as long as a step of the planned run is.
        server: by phase, seconds of the server alone.
        worker: by phase, seconds of a worker.
        traffic: bytes of a step.
        shared_bytes: memory of every process: Python, torch, mdgan.
        server_bytes: what the server has besides.
        host_bytes: what a host with one worker has besides.
        worker_bytes: what each further worker takes.
    """

    costs: Costs
    server: Seconds
    worker: HostStages
    traffic: Traffic
    shared_bytes: int
    server_bytes: int
    host_bytes: int
    worker_bytes: int


@dataclass(frozen=True)
class Measurement:
    """Measures an algorithm on this machine; all methods raise ForkFailed if it cannot run here.

    Attributes:
        entry: the algorithm.
        dataset: its models and shape; no data are read.
        layout: of the planned run.
        planning: what the algorithm says of itself.
    """

    entry: Algorithm[Any]
    dataset: DatasetFile
    layout: Layout
    planning: Planning[Any]

    def take(self) -> Measured:
        """Measures everything."""
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared_bytes = psutil.Process().memory_info().rss
        planning, first = self.planning, self.entry.server_phases[0]
        _tell("measuring the server and a few hosts at the same time, on noise (step 1 of 2)")
        sizes, (server, *hosts), traffic = self._together(_TOGETHER)
        _tell("measuring the server and two hosts in turns (step 2 of 2)")
        (server_alone, *workers), special = self._in_turns()
        found = stages([server_alone.charges], first, busy=False)
        alone = {phase: seconds for phase, seconds in found.items() if phase not in special}
        charges = [host.charges for host in workers]
        exchange = sum(host_stages(charges, special, busy=True).special.values())
        if planning.exchange is not None:
            thing = max(host.moved_bytes(special) for host in workers) / 2  # one given, one taken
            moved = planning.exchange.moved(self.layout.hosts)
            traffic = replace(traffic, thing=thing, moved=moved)
        if self.layout.shared:
            busy = stages([server.charges], first, busy=True)
            each = [per_worker(h.charges, size) for h, size in zip(hosts, sizes, strict=True)]
            worker = host_stages(each, (), busy=True)
            costs = _costs(worker, exchange, alone, busy, len(hosts), planning.questions)
            few = replace(self.layout, hosts=consecutive(sizes))
            factor = friction(few, costs, step_seconds(server.charges, first))
            costs = replace(costs, friction=factor)
        else:
            worker = host_stages(charges, special, busy=False)
            costs = _costs(worker, exchange, alone, alone, len(workers), planning.questions)
        longer = planning.iterations / planning.played_iterations
        limits = self.entry.build().message_sizes(
            planning.settings, models_of(planning.settings, self.dataset)
        )
        worker_bytes = planning.worker_bytes or limits.state_bytes
        return Measured(
            replace(costs, answer=longer * costs.answer),
            alone,
            worker._replace(asked={phase: longer * s for phase, s in worker.asked.items()}),
            traffic,
            shared_bytes,
            server.own_bytes,
            max(0, hosts[0].own_bytes - (sizes[0] - 1) * worker_bytes),
            worker_bytes,
        )

    def count(self) -> Traffic:
        """Counts the bytes of a step, and none of an exchange."""
        _tell("counting the bytes that a remedy would leave")
        return self._together(_SHORTEST)[2]

    def _together(self, least: tuple[int, float]) -> tuple[list[int], list[Role], Traffic]:
        """Plays with hosts of some sizes, which it gives, and tells what all send in a step."""
        planning = self.planning
        asked = self.layout.asked(planning.settings.participation).sizes
        carried = max(_CARRIED, planning.enough_in_a_host + 1)
        most = _HOSTS_A_CORE * self.layout.slots
        sizes = hosts_to_play(asked, carried, planning.enough_workers, most)
        if max(asked) > carried:  # a host of the size below shows what one more worker adds
            sizes.append(carried - 1)
        few = replace(self.layout, hosts=consecutive(sizes))
        roles = play(self.dataset, planning.settings, few, least)
        out, back = (
            bytes_of_hosts(sizes, [host.moved_bytes([phase]) for host in roles[1:]], asked)
            for phase in ("receive", "send")
        )
        return sizes, roles, Traffic(out, back)

    def _in_turns(self) -> tuple[list[Role], set[str]]:
        """Plays with hosts of one worker, each process alone; also gives exchanges' phases."""
        planning, entry = self.planning, self.entry
        count = max(min(2, self.layout.num_workers), planning.enough_workers)
        single = replace(self.layout, hosts=consecutive([1] * count))
        settings, special = planning.settings, set()
        if planning.exchange is not None:
            settings = planning.exchange.settings
            usual = set(chain(*entry.phases(planning.settings)))
            special = set(chain(*entry.phases(settings))) - usual
        roles = play(self.dataset, settings, single, _IN_TURNS, special=special, in_turns=True)
        return roles, special


def _tell(text: str) -> None:
    _log.info("%s …", text, extra={"shown": "doing"})


def hosts_to_play(asked: Sequence[int], carried: int, enough: int, most: int) -> list[int]:
    """The workers of each host of a short run.

    Args:
        asked: how many workers of each host of the planned run are asked in a step.
        carried: the most workers of a host, and
        most: the most hosts, unless it takes more for
        enough: workers in all, and for hosts of all sizes.
    """
    enough = min(enough, sum(asked))
    while sum(min(size, carried) for size in asked) < enough:
        carried += 1
    others = [min(size, carried) for size in asked]
    sizes = list(dict.fromkeys(others))
    for size in sizes:
        others.remove(size)
    while others and (len(sizes) < most or sum(sizes) < enough):
        sizes.append(others.pop(0))
    return sizes


def bytes_of_hosts(
    sizes: Sequence[int], counted: Sequence[float], asked: Iterable[int]
) -> tuple[float, ...]:
    """The bytes of hosts of any size; above the largest that was counted they grow evenly.

    Args:
        sizes: of hosts.
        counted: their bytes.
        asked: the sizes that are wanted.
    """
    known = dict(zip(sizes, counted, strict=True))
    largest = max(known)
    growth = known[largest] - known.get(largest - 1, 0.0)
    return tuple(known.get(n, known[largest] + growth * (n - largest)) for n in asked)


def _costs(
    worker: HostStages,
    exchange: float,
    alone: Seconds,
    busy: Seconds,
    num_hosts: int,
    questions: int,
) -> Costs:
    def parts(seconds: Seconds) -> tuple[float, float]:
        messages = sum(seconds.get(phase, 0.0) for phase in MESSAGES)
        return sum(seconds.values()) - messages, messages

    answer, messages_once = parts(worker.asked)  # in a usual question
    server_busy, messages = parts(busy)
    return Costs(
        answer,
        sum(worker.ahead.values()),
        exchange,
        questions * messages_once,
        parts(alone)[0],
        server_busy,
        messages / num_hosts,
    )
