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
from mdgan.engine.settings import RunSettings
from mdgan.families.contract import Algorithm, Planning
from mdgan.plan.layout import Layout, consecutive
from mdgan.plan.phases import (
    MESSAGES,
    WARM_UP,
    HostStages,
    Seconds,
    host_stages,
    server_stages,
    step_seconds,
)
from mdgan.plan.prediction import Costs, ServerSeconds, Traffic, WorkerSeconds, friction
from mdgan.plan.short_run import Role, play_in_turns, play_together

_ALONE_HOSTS = 2
_ALONE_STEPS = WARM_UP + 6
_EXCHANGE_STEPS = 6
"""With exchanges after the second and the fourth."""
_TAKE_TURNS = 2
"""Hosts on a core that play together, where there are so many."""
_TOGETHER_STEPS = 3
_TOGETHER_SECONDS = 3.0


class Memory(NamedTuple):
    """Bytes of a process.

    Attributes:
        shared: what every process has: Python, torch, mdgan.
        server: what the server has besides.
        host: what a host with one worker has besides.
        worker: what each further worker takes.
    """

    shared: int
    server: int
    host: int
    worker: int


class Measured(NamedTuple):
    """What was found.

    Attributes:
        costs: seconds, of workers as long as a step of the planned run is.
        server_stages: seconds of the server alone.
        asked_stages: seconds of a worker from question to answer; of messages, those of its host.
        ahead_stages: seconds of a worker from an answer to the next question.
        memory: bytes.
        traffic: bytes of a step.
    """

    costs: Costs
    server_stages: Seconds
    asked_stages: Seconds
    ahead_stages: Seconds
    memory: Memory
    traffic: Traffic


class Measurement:
    """Measures an algorithm on this machine.

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

        Raises:
            ForkFailed: a step cannot be computed here.
        """
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared = psutil.Process().memory_info().rss
        phases, settings = self._entry.server_phases, planning.settings
        traffic, (server, *hosts), few = self._count(planning)
        server_alone = server_stages(server.charges, phases, busy=False)
        alone = _server_seconds(server_alone, len(hosts))
        stages = self._mean_stages(few, hosts, busy=False)
        thing_bytes, exchange = self._exchange(planning)
        costs = Costs(_worker_seconds(stages, exchange), alone, alone)

        slots = max(1, self._layout.cores // self._layout.host_threads)
        few = self._few(planning, _TAKE_TURNS * slots)
        server, *hosts = play_together(
            self._dataset, settings, few, _TOGETHER_STEPS, _TOGETHER_SECONDS
        )
        if self._layout.shared:
            stages = self._mean_stages(few, hosts, busy=True)
            busy = _server_seconds(server_stages(server.charges, phases, busy=True), len(hosts))
            costs = Costs(_worker_seconds(stages, exchange), alone, busy)
            factor = friction(few, costs, step_seconds(server.charges, phases))
            costs = replace(costs, friction=factor)
        longer = planning.iterations / planning.played_iterations
        asked = {p: s if p in MESSAGES else longer * s for p, s in stages.asked.items()}
        worker = replace(costs.worker, answer=longer * costs.worker.answer)
        each = planning.worker_bytes or self._sizes(settings).state_bytes
        host = max(0, hosts[0].own_bytes - (len(few.hosts[0]) - 1) * each)
        return Measured(
            replace(costs, worker=worker),
            server_alone,
            asked,
            stages.ahead,
            Memory(shared, server.own_bytes, host, each),
            replace(traffic, thing=thing_bytes),
        )

    def count(self, planning: Planning[Any]) -> Traffic:
        """Counts the bytes of a step only.

        Args:
            planning: what the algorithm says of itself.

        Raises:
            ForkFailed: a step cannot be computed here.
        """
        return self._count(planning)[0]

    def _count(self, planning: Planning[Any]) -> tuple[Traffic, list[Role], Layout]:
        """The bytes of a step, and what each role of a short run with these hosts has told."""
        few, kinds = self._few(planning, _ALONE_HOSTS), self._sizes(planning.settings)
        iterations = _ALONE_STEPS * planning.played_iterations
        roles = play_in_turns(self._dataset, planning.settings, few, iterations)
        sizes = [len(carried) for carried in few.hosts]
        out = [_sum(host.received, kinds.from_server(1)) / _ALONE_STEPS for host in roles[1:]]
        back = [_sum(host.sent, kinds.from_host(1)) / _ALONE_STEPS for host in roles[1:]]
        asked = self._asked(planning)
        traffic = Traffic(bytes_of_hosts(sizes, out, asked), bytes_of_hosts(sizes, back, asked))
        if planning.exchange is not None:
            traffic = replace(traffic, moved=planning.exchange.moved(self._layout.hosts))
        return traffic, roles, few

    def _exchange(self, planning: Planning[Any]) -> tuple[float, float]:
        """The bytes of one thing that hosts exchange, and a worker's seconds for that."""
        if planning.exchange is None:
            return 0.0, 0.0
        # A host with one worker hands over one thing, or sits out.
        few = replace(self._layout, hosts=consecutive([1] * max(2, planning.enough_workers)))
        iterations = _EXCHANGE_STEPS * planning.played_iterations
        settings = planning.exchange.settings
        _, *hosts = play_in_turns(self._dataset, settings, few, iterations)
        kinds = self._sizes(settings).between_hosts(1)
        exchanges = _EXCHANGE_STEPS // 2 - 1  # there is none after the last step
        seconds = self._mean_stages(few, hosts, busy=True).exchange
        return max(_sum(host.sent, kinds) for host in hosts) / exchanges, seconds

    def _sizes(self, settings: RunSettings) -> Any:
        return self._entry.build().message_sizes(settings, self._dataset)

    def _asked(self, planning: Planning[Any]) -> list[int]:
        layout = self._layout.asked(planning.settings.participation)
        return [len(carried) for carried in layout.hosts]

    def _few(self, planning: Planning[Any], most: int) -> Layout:
        sizes = hosts_to_play(self._asked(planning), planning.enough_workers, most)
        return replace(self._layout, hosts=consecutive(sizes))

    def _mean_stages(self, layout: Layout, hosts: Sequence[Role], *, busy: bool) -> HostStages:
        """The mean over hosts; of a worker, but for messages, which are a host's."""
        sizes = [len(carried) for carried in layout.hosts]
        phases = self._entry.host_phases
        found = [host_stages(host.charges, phases, busy=busy) for host in hosts]

        def mean(stages: Sequence[Seconds]) -> Seconds:
            return {
                phase: fmean(
                    host.get(phase, 0.0) / (1 if phase in MESSAGES else size)
                    for host, size in zip(stages, sizes, strict=True)
                )
                for phase in dict.fromkeys(phase for host in stages for phase in host)
            }

        exchange = fmean(host.exchange / n for host, n in zip(found, sizes, strict=True))
        return HostStages(mean([h.asked for h in found]), mean([h.ahead for h in found]), exchange)


def hosts_to_play(asked: Sequence[int], enough: int, most: int) -> list[int]:
    """The workers of each host of a short run, from whose costs those of all hosts follow.

    Args:
        asked: how many workers of each host of the planned run are asked in a step.
        enough: see `Planning.enough_workers`.
        most: hosts, unless it takes more for that many workers or to have hosts of all sizes.
    """
    clipped = [min(size, enough + 1) for size in asked]
    if max(asked) > enough + 1:  # one of the size below shows what one more adds
        clipped.insert(1, enough)
    sizes = list(dict.fromkeys(clipped))
    others = list(clipped)
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
    return tuple(known[n] if n in known else known[largest] + growth * (n - largest) for n in asked)


def _server_seconds(stages: Seconds, hosts: int) -> ServerSeconds:
    send, receive = stages.get("send", 0.0), stages.get("wait", 0.0)
    return ServerSeconds(sum(stages.values()) - send - receive, send / hosts, receive / hosts)


def _worker_seconds(stages: HostStages, exchange: float) -> WorkerSeconds:
    receive, send = stages.asked.get("receive", 0.0), stages.asked.get("send", 0.0)
    answer = sum(stages.asked.values()) - receive - send
    return WorkerSeconds(answer, sum(stages.ahead.values()), receive, send, exchange)


def _sum(traffic: Mapping[str, int], kinds: Iterable[str]) -> int:
    return sum(traffic.get(kind, 0) for kind in kinds)
