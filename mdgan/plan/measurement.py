"""What a run takes and sends, by a short run here: all compute at a time, or each alone."""

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
_HOSTS_A_CORE = 2  # that play, where there are so many
_CARRIED = 3
"""Workers of a host, if there are so many: too many for all weights to stay in the caches."""


@dataclass(frozen=True)
class Stages:
    """Seconds of a step by phase, each time that it comes."""

    server: Seconds  # of the server by the clock, but for messages
    server_busy: Seconds  # of all its cores together, while hosts compute
    worker: HostStages
    questions: int = 1

    def costs(self, sizes: Sequence[int]) -> Costs:
        """What hosts take that carry so many workers, and a server that asks them."""
        ahead, computed = sum(self.worker.ahead.values()), sum(self.worker.asked.values())
        message = sum(self.worker.asked.get(phase, 0.0) for phase in MESSAGES)
        return Costs(
            tuple(n * (computed - message) + message * self.questions for n in sizes),
            tuple(n * ahead for n in sizes),
            *(sum(of_server(s, len(sizes)).values()) for s in (self.server, self.server_busy)),
        )


def of_server(seconds: Seconds, num_hosts: float) -> Seconds:
    """By phase, how long the server is in it in a step: it has messages for each host."""
    return {phase: s * (num_hosts if phase in MESSAGES else 1) for phase, s in seconds.items()}


class Measured(NamedTuple):
    """What the short run has shown."""

    costs: Costs
    server: Seconds  # by phase, seconds of the server by the clock in a step of the planned run
    worker: HostStages
    traffic: StepTraffic
    shared_bytes: int  # memory of every process: Python, torch, mdgan
    server_bytes: int  # what the server has besides
    host_bytes: int  # what a host with one worker has besides
    worker_bytes: int  # what each further worker takes, or each slot of placed clients
    placed: Sequence[Placed] = ()  # where such clients were trained


class ShortRun(NamedTuple):
    """What was played, with how many workers of each host."""

    sizes: Sequence[int]
    server: PlayedRole
    hosts: Sequence[PlayedRole]


@dataclass(frozen=True)
class Measurement:
    """Measures an algorithm on this machine; raises ForkFailed if it cannot run here."""

    entry: Algorithm[Any]
    dataset: DatasetFile
    layout: Layout
    planning: Planning[Any]
    hosts_here: int = 1  # how many hosts of placed clients share this machine

    def take(self) -> Measured:
        """Measures everything."""
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared_bytes = psutil.Process().memory_info().rss
        planning, asked = self.planning, self._asked
        played = self.play(_LEAST)
        measured = self._stages(played)
        longer = planning.iterations / planning.played_iterations
        answer = {phase: longer * s for phase, s in measured.worker.asked.items()}
        worker = HostStages(answer, measured.worker.ahead)
        worker_bytes = planning.worker_bytes
        if planning.placing is not None:  # what clients take is told by `Placing.shares`
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
        """Plays for the least steps and seconds; each process alone if the run's are apart."""
        sizes, apart = [1] * self.hosts_here, False
        if self.planning.placing is None:
            asked, apart = self._asked.sizes, not self.layout.shared
            carried = max(_CARRIED, self.planning.enough_in_a_host + 1)
            most = _HOSTS_A_CORE * self.layout.slots
            sizes = hosts_to_play(asked, carried, self.planning.enough_workers, most=most)
            if max(asked) > carried:  # a host of the size below shows what one worker adds
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
            known = dict(zip(played.sizes, sizes, strict=True))
            return bytes_of_hosts(known, self._asked.sizes)

        exchanged = 0.0 if exchange is None else exchange.moved(self.layout.hosts)
        return StepTraffic(moved("receive"), moved("send"), exchanged)

    def _friction(self, played: ShortRun, measured: Stages) -> float:
        """How many times longer a step took than formulas say: for turns and waking up."""
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
        """What the server and a worker do, where they share cores if they will."""
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
    """The workers of each host of a short run, by how many are `asked` in the planned one."""
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


def bytes_of_hosts(known: Mapping[int, float], asked: Iterable[int]) -> tuple[float, ...]:
    """The bytes of hosts of any size; above the largest that was counted they grow evenly."""
    largest = max(known)
    growth = known[largest] - known.get(largest - 1, 0.0)
    return tuple(known.get(n, known[largest] + growth * (n - largest)) for n in asked)
