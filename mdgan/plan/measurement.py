"""Measures seconds, bytes and memory of a planned run by playing a short run on this machine."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psutil

from mdgan.data.dataset_file import DatasetFile
from mdgan.families.contract import Algorithm, Planning
from mdgan.plan import phases
from mdgan.plan.layout import Layout, Link, consecutive
from mdgan.plan.phases import MESSAGES, HostStages, Seconds
from mdgan.plan.prediction import Costs, Question, StepTraffic
from mdgan.plan.short_run import PlayedRole, play
from mdgan.records.rows import Placed

_log = logging.getLogger(__name__)

_LEAST = (6, 3.0)  # the least steps and seconds of a short run
_HOSTS_A_CORE = 2  # hosts of the short run, if the planned run has as many
_CARRIED = 3
"""Workers of a host of the short run: so many that the caches cannot keep all weights."""


@dataclass(frozen=True)
class Stages:
    """Seconds of a step by phase; those of messages are for one message."""

    server: Seconds  # by the clock; of messages, only what the server computes
    server_busy: Seconds  # summed over the server's cores, while hosts compute
    worker: HostStages
    questions: int = 1

    def costs(self, sizes: Sequence[int]) -> Costs:
        """Seconds of hosts with `sizes` workers each, and of the server that asks them."""
        ahead, computed = sum(self.worker.ahead.values()), sum(self.worker.asked.values())
        message = sum(self.worker.asked.get(phase, 0.0) for phase in MESSAGES)
        return Costs(
            tuple(n * (computed - message) + message * self.questions for n in sizes),
            tuple(n * ahead for n in sizes),
            *(sum(of_server(s, len(sizes)).values()) for s in (self.server, self.server_busy)),
        )


def of_server(seconds: Seconds, num_hosts: float) -> Seconds:
    """Seconds of the server in a step by phase: its messages count once for each host."""
    return {phase: s * (num_hosts if phase in MESSAGES else 1) for phase, s in seconds.items()}


class Measured(NamedTuple):
    """What the short run says about the planned run."""

    costs: Costs
    server: Seconds  # of the server by phase and by the clock, in a step of the planned run
    worker: HostStages
    traffic: StepTraffic
    shared_bytes: int  # memory that all processes share: Python, torch, mdgan
    server_bytes: int  # further memory of the server
    host_bytes: int  # further memory of a host with one worker
    worker_bytes: int  # memory of each further worker, or of each slot of placed clients
    placed: Sequence[Placed] = ()  # where placed clients were trained


class ShortRun(NamedTuple):
    """The roles of a finished short run."""

    sizes: Sequence[int]  # workers of each host
    server: PlayedRole
    hosts: Sequence[PlayedRole]


@dataclass(frozen=True)
class Measurement:
    """Measures an algorithm on this machine; raises ForkFailed if its processes fail."""

    entry: Algorithm[Any]
    dataset: DatasetFile
    layout: Layout
    planning: Planning[Any]
    hosts_here: int = 1  # how many hosts of placed clients share this machine

    def take(self) -> Measured:
        """Plays a short run and derives everything that the forecast needs from it."""
        import torch._dynamo  # noqa: F401 - otherwise every fork imports it in its first step

        shared_bytes = psutil.Process().memory_info().rss
        planning, asked = self.planning, self._asked
        played = self.play(_LEAST)
        measured = self._stages(played)
        longer = planning.iterations / planning.played_iterations
        answer = {phase: longer * s for phase, s in measured.worker.asked.items()}
        worker = HostStages(answer, measured.worker.ahead)
        worker_bytes = planning.worker_bytes
        if planning.placing is not None:  # `Placing.shares` computes the clients' seconds
            messages = {phase: s for phase, s in answer.items() if phase in MESSAGES}
            worker = HostStages(messages, {})
            worker_bytes = max(role.forked_bytes for role in played.hosts)
        own_bytes = [
            role.own_bytes - (size - 1) * worker_bytes
            for size, role in zip(played.sizes, played.hosts, strict=True)
        ]
        return Measured(
            replace(measured, worker=worker)
            .costs(asked.sizes)
            .times(self._friction(played, measured), asked.speeds),
            of_server(measured.server, len(asked.hosts)),
            worker,
            traffic=self.traffic(played),
            shared_bytes=shared_bytes,
            server_bytes=played.server.own_bytes,
            host_bytes=max(0, *own_bytes),
            worker_bytes=worker_bytes,
            placed=played.server.placed,
        )

    def play(self, least: tuple[int, float]) -> ShortRun:
        """Plays for the least steps and seconds, in turns if each process has a machine planned."""
        sizes, apart = [1] * self.hosts_here, False
        if self.planning.placing is None:
            asked, apart = self._asked.sizes, not self.layout.shared
            carried = max(_CARRIED, self.planning.enough_in_a_host + 1)
            most = _HOSTS_A_CORE * self.layout.slots
            sizes = hosts_to_play(asked, carried, self.planning.enough_workers, most=most)
            if max(asked) > carried:  # a host with one worker less shows what one worker adds
                sizes.append(carried - 1)
        how = "in turns" if apart else "at the same time"
        _log.info("measuring the server and hosts %s …", how, extra={"shown": "doing"})
        few = replace(self.layout, hosts=consecutive(sizes))
        settings = self.planning.settings
        server, *hosts = play(self.dataset, settings, few, least=least, in_turns=apart)
        return ShortRun(sizes, server, hosts)

    def traffic(self, played: ShortRun) -> StepTraffic:
        """Bytes of a step of the planned run, and of an exchange."""
        exchange = self.planning.exchange

        def moved(phase: str) -> tuple[float, ...]:
            sizes = (role.moved_bytes(phase) for role in played.hosts)
            bytes_by_size = dict(zip(played.sizes, sizes, strict=True))
            return bytes_of_hosts(bytes_by_size, self._asked.sizes)

        exchanged = 0.0 if exchange is None else exchange.moved(self.layout.hosts)
        return StepTraffic(moved("receive"), moved("send"), exchanged)

    def _friction(self, played: ShortRun, measured: Stages) -> float:
        """How many times longer a step took than formulas say, as processes wait and wake up."""
        if not self.layout.shared:
            return 1.0
        few = replace(self.layout, hosts=consecutive(played.sizes))
        nothing = (0.0,) * len(played.sizes)
        planning = replace(self.planning, overlaps=False, exchange=None)
        costs = measured.costs(played.sizes)
        traffic = StepTraffic(nothing, nothing)
        took = phases.step_seconds(played.server.charges, self.entry.server_phases[0])
        return took / Question(few, Link(), costs, traffic=traffic, planning=planning).answer().step

    @property
    def _asked(self) -> Layout:
        return self.layout.asked(self.planning.settings.participation)

    def _stages(self, played: ShortRun) -> Stages:
        """Seconds of the server and of a worker; computed seconds if the run shares cores."""
        shared, first = self.layout.shared, self.entry.server_phases[0]
        clock, busy = (
            of_server(
                phases.stages([played.server.charges], first, busy=is_busy), 1 / len(played.sizes)
            )
            for is_busy in (False, shared)
        )
        workers = [
            phases.per_worker(role.charges, size)
            for size, role in zip(played.sizes, played.hosts, strict=True)
        ]
        return Stages(
            clock, busy, phases.host_stages(workers, busy=shared), questions=self.planning.questions
        )


def hosts_to_play(asked: Sequence[int], carried: int, enough: int, most: int) -> list[int]:
    """Workers of each host of the short run, for workers `asked` of each host of the planned run.

    A host has up to `carried` workers, and all hosts together have `enough` if there are as many.
    There are up to `most` hosts, or more for `enough` workers or for a host of every size.
    """
    enough = min(enough, sum(asked))
    while sum(min(size, carried) for size in asked) < enough:
        carried += 1
    unused = [min(size, carried) for size in asked]
    sizes = list(dict.fromkeys(unused))
    for size in sizes:
        unused.remove(size)
    while unused and (len(sizes) < most or sum(sizes) < enough):
        sizes.append(unused.pop(0))
    return sizes


def bytes_of_hosts(counted: Mapping[int, float], asked: Iterable[int]) -> tuple[float, ...]:
    """Bytes of hosts with `asked` workers; beyond the largest counted size they grow evenly."""
    largest = max(counted)
    growth = counted[largest] - counted.get(largest - 1, 0.0)
    return tuple(counted.get(n, counted[largest] + growth * (n - largest)) for n in asked)
