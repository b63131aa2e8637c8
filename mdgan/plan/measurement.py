"""A few seconds on this machine: what a run takes, how much memory it needs, and what it sends.

Short runs of the server and a few hosts say so: first each role computes alone; then, in processes,
all at the same time, so that what processes that share cores cost each other is measured, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.message_sizes import MessageSizes
from mdgan.families.contract import Algorithm, Planning
from mdgan.plan.layout import Layout, consecutive
from mdgan.plan.phases import (
    MESSAGES,
    HostStages,
    Seconds,
    exchange_seconds,
    host_stages,
    stages,
    step_seconds,
)
from mdgan.plan.prediction import Costs, ServerSeconds, Traffic, WorkerSeconds, friction
from mdgan.plan.short_run import Role, play_here, play_together

_ALONE_HOSTS = 2
_ALONE_ANSWERS, _LEAST_STEPS = 48, 6
"""Of workers, in so many steps at least."""
_EXCHANGE_STEPS, _EXCHANGES = 6, 2
"""After the second and the fourth step; there is none after the last."""
_HOSTS_A_CORE = 2
"""That play together, where there are so many."""
_CARRIED = 3
"""Workers of each of them, if there are so many: enough that one does not find its weights in the
caches."""
_LEAST = (3, 3.0)
"""Steps and seconds that they play."""


class Measured(NamedTuple):
    """What was found.

    Attributes:
        costs: seconds, of workers as long as a step of the planned run is.
        server: by phase, seconds of the server alone.
        worker: by phase, seconds of a worker; of messages, those of its host.
        shared_bytes: memory of every process: Python, torch, mdgan.
        server_bytes: what the server has besides.
        host_bytes: what a host with one worker has besides.
        worker_bytes: what each further worker takes.
        traffic: bytes of a step.
    """

    costs: Costs
    server: Seconds
    worker: HostStages
    shared_bytes: int
    server_bytes: int
    host_bytes: int
    worker_bytes: int
    traffic: Traffic


class Measurement:
    """Measures an algorithm on this machine; all methods raise ForkFailed if it cannot run here.

    Args:
        entry: the algorithm.
        dataset: its models and shape; no data are read.
        layout: of the planned run.
    """

    def __init__(self, entry: Algorithm[Any], dataset: DatasetFile, layout: Layout) -> None:
        self._entry = entry
        self._dataset = dataset
        self._layout = layout

    def take(self, planning: Planning[Any]) -> Measured:
        """Measures everything.

        Args:
            planning: what the algorithm says of itself.
        """
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared_bytes = psutil.Process().memory_info().rss
        shared, first = self._layout.shared, self._entry.server_phases[0]
        few, (server, *hosts), traffic = self._alone(planning)
        server_stages = stages(server.charges, first, busy=False)
        alone = busy = _server_seconds(server_stages, len(hosts))
        worker = _mean_stages(few, hosts, busy=False)
        exchange, thing = self._exchange(planning, worker)

        few = self._few(planning, _HOSTS_A_CORE * self._layout.slots, _CARRIED)
        least = _LEAST if shared else (0, 0.0)
        server, *hosts = play_together(self._dataset, planning.settings, few, least)
        factor = 1.0
        if shared:
            worker = _mean_stages(few, hosts, busy=True)
            busy = _server_seconds(stages(server.charges, first, busy=True), len(hosts))
            costs = Costs(_worker_seconds(worker, exchange), alone, busy)
            factor = friction(few, costs, step_seconds(server.charges, first))
        longer = planning.iterations / planning.played_iterations
        asked = {p: s if p in MESSAGES else longer * s for p, s in worker.asked.items()}
        worker = worker._replace(asked=asked)
        each = planning.worker_bytes or self._sizes(planning).state_bytes
        return Measured(
            Costs(_worker_seconds(worker, exchange), alone, busy, factor),
            server_stages,
            worker,
            shared_bytes,
            server.own_bytes,
            max(0, hosts[0].own_bytes - (len(few.hosts[0]) - 1) * each),
            each,
            replace(traffic, thing=thing),
        )

    def count(self, planning: Planning[Any]) -> Traffic:
        """Counts the bytes of a step; arguments as `take`."""
        return self._alone(planning)[2]

    def _alone(self, planning: Planning[Any]) -> tuple[Layout, list[Role], Traffic]:
        """Plays with a few hosts, which it gives, and tells what all hosts send in a step."""
        settings, kinds = planning.settings, self._sizes(planning)
        asked = self._layout.asked(settings.participation).sizes
        carried = planning.enough_in_a_host + 1
        few = self._few(planning, _ALONE_HOSTS, carried)
        if max(asked) > carried:  # one host of the size below shows what one more worker adds
            few = replace(few, hosts=consecutive([*few.sizes, carried - 1]))
        steps = max(_LEAST_STEPS, _ALONE_ANSWERS // few.num_workers)
        iterations = steps * planning.played_iterations
        roles = play_here(self._dataset, settings, few, iterations, in_turns=True)
        out = [_sum(host.received, kinds.from_server(1)) / steps for host in roles[1:]]
        back = [_sum(host.sent, kinds.from_host(1)) / steps for host in roles[1:]]
        moved = planning.exchange.moved(self._layout.hosts) if planning.exchange else 0.0
        known = bytes_of_hosts(few.sizes, out, asked), bytes_of_hosts(few.sizes, back, asked)
        return few, roles, Traffic(*known, moved=moved)

    def _exchange(self, planning: Planning[Any], usual: HostStages) -> tuple[float, float]:
        """A worker's seconds for an exchange, and the bytes of one thing that is handed over."""
        if planning.exchange is None:
            return 0.0, 0.0
        # A host with one worker hands over one thing, or sits out.
        few = replace(self._layout, hosts=consecutive([1] * max(2, planning.enough_workers)))
        iterations = _EXCHANGE_STEPS * planning.played_iterations
        settings = planning.exchange.settings
        _, *hosts = play_here(self._dataset, settings, few, iterations, in_turns=False)
        kinds = self._sizes(planning).between_hosts(1)
        thing = max(_sum(host.sent, kinds) for host in hosts) / _EXCHANGES
        return fmean(exchange_seconds(host.charges, usual) for host in hosts), thing

    def _sizes(self, planning: Planning[Any]) -> MessageSizes:
        return self._entry.build().message_sizes(planning.settings, self._dataset)

    def _few(self, planning: Planning[Any], most: int, carried: int) -> Layout:
        asked = self._layout.asked(planning.settings.participation).sizes
        sizes = hosts_to_play(asked, carried, planning.enough_workers, most)
        return replace(self._layout, hosts=consecutive(sizes))


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


def _server_seconds(seconds: Seconds, hosts: int) -> ServerSeconds:
    send, receive = seconds.get("send", 0.0), seconds.get("wait", 0.0)
    return ServerSeconds(sum(seconds.values()) - send - receive, send / hosts, receive / hosts)


def _worker_seconds(worker: HostStages, exchange: float) -> WorkerSeconds:
    receive, send = worker.asked.get("receive", 0.0), worker.asked.get("send", 0.0)
    answer = sum(worker.asked.values()) - receive - send
    return WorkerSeconds(answer, sum(worker.ahead.values()), receive, send, exchange)


def _mean_stages(layout: Layout, hosts: Sequence[Role], *, busy: bool) -> HostStages:
    """The mean over hosts; of a worker, but for messages, which are a host's."""
    asked_of, ahead_of = [], []
    for host, size in zip(hosts, layout.sizes, strict=True):
        asked, ahead = host_stages(host.charges, busy=busy)
        asked_of.append({p: s if p in MESSAGES else s / size for p, s in asked.items()})
        ahead_of.append({phase: s / size for phase, s in ahead.items()})
    return HostStages(_mean(asked_of), _mean(ahead_of))


def _mean(found: Sequence[Seconds]) -> Seconds:
    phases = dict.fromkeys(phase for seconds in found for phase in seconds)
    return {phase: fmean(seconds.get(phase, 0.0) for seconds in found) for phase in phases}


def _sum(traffic: Mapping[str, int], kinds: Iterable[str]) -> int:
    return sum(traffic.get(kind, 0) for kind in kinds)
