"""What a run takes and sends, by two short runs here: all compute at a time, or each alone."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import psutil

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
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
from mdgan.plan.prediction import Costs, StepTraffic, friction
from mdgan.plan.short_run import PlayedRole, play
from mdgan.records.placements import Placed

_log = logging.getLogger(__name__)

_IN_TURNS, _TOGETHER = (6, 1.0), (3, 3.0)
"""The least steps and seconds of a short run."""
_HOSTS_A_CORE = 2
"""That play together, where there are so many."""
_CARRIED = 3
"""Workers of a host, if there are so many: too many for all weights to stay in the caches."""


@dataclass(frozen=True)
class Stages:
    """Seconds of a step by phase, each time that it comes.

    Attributes:
        server: of the server alone, but for messages.
        server_busy: of all its cores together, while hosts compute.
    """

    server: Seconds
    server_busy: Seconds
    worker: HostStages
    questions: int = 1

    def costs(self, sizes: Sequence[int]) -> Costs:
        """What hosts take that carry so many workers, and a server that asks them."""
        ahead, computed = sum(self.worker.ahead.values()), sum(self.worker.asked.values())
        message = sum(self.worker.asked.get(phase, 0.0) for phase in MESSAGES)
        return Costs(
            tuple(n * (computed - message) + message * self.questions for n in sizes),
            tuple(n * ahead for n in sizes),
            sum(self.worker.special.values()),
            *(sum(of_server(s, len(sizes)).values()) for s in (self.server, self.server_busy)),
        )


def of_server(seconds: Seconds, num_hosts: float) -> Seconds:
    """By phase, how long the server is in it in a step: it has messages for each host."""
    return {phase: s * (num_hosts if phase in MESSAGES else 1) for phase, s in seconds.items()}


class Measured(NamedTuple):
    """What the short runs have shown.

    Attributes:
        server: by phase, seconds of the server alone in such a step; messages where it shares cores
            with hosts, if it does.
        shared_bytes: memory of every process: Python, torch, mdgan.
        server_bytes: what the server has besides.
        host_bytes: what a host with one worker has besides.
        worker_bytes: what each further worker takes, or each slot of clients without a home.
        placed: where such clients were trained.
    """

    costs: Costs
    server: Seconds
    worker: HostStages
    traffic: StepTraffic
    shared_bytes: int
    server_bytes: int
    host_bytes: int
    worker_bytes: int
    placed: Sequence[Placed] = ()


class _ShortRun(NamedTuple):
    sizes: Sequence[int]
    server: PlayedRole
    hosts: Sequence[PlayedRole]


@dataclass(frozen=True)
class Measurement:
    """Measures an algorithm on this machine; raises ForkFailed if it cannot run here.

    Attributes:
        hosts_here: how many hosts of clients without a home share this machine.
    """

    entry: Algorithm[Any]
    dataset: DatasetFile
    layout: Layout
    planning: Planning[Any]
    hosts_here: int = 1

    def take(self) -> Measured:
        """Measures everything."""
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared_bytes = psutil.Process().memory_info().rss
        planning, special = self.planning, set[str]()
        asked = self.layout.asked(planning.settings.participation)
        if planning.placing is None:
            together = self.play_together(_TOGETHER)
            in_turns, special = self._play_in_turns()
        else:
            in_turns = together = self._play([1] * self.hosts_here, planning.settings, _TOGETHER)
        measured, factor = self._stages(together, in_turns, special), 1.0
        if self.layout.shared:
            few = replace(self.layout, hosts=consecutive(together.sizes))
            took = step_seconds(together.server.charges, self.entry.server_phases[0])
            factor = friction(few, measured.costs(together.sizes), took)

        longer = planning.iterations / planning.played_iterations
        answer = {phase: longer * s for phase, s in measured.worker.asked.items()}
        worker = measured.worker._replace(asked=answer)
        worker_bytes = planning.worker_bytes or self._state_bytes()
        if planning.placing is not None:  # what clients take is told by `Placing.shares`
            messages = {phase: s for phase, s in answer.items() if phase in MESSAGES}
            worker = HostStages(messages, {}, {})
            worker_bytes = max(role.forked_bytes for role in together.hosts)
        own_bytes = [
            role.own_bytes - (size - 1) * worker_bytes
            for size, role in zip(together.sizes, together.hosts, strict=True)
        ]
        traffic = self.traffic(together)
        if planning.exchange is not None:
            thing = max(role.moved_bytes(special) for role in in_turns.hosts) / 2  # given and taken
            moved = planning.exchange.moved(self.layout.hosts)
            traffic = replace(traffic, thing=thing, moved=moved)
        return Measured(
            replace(measured, worker=worker).costs(asked.sizes).times(factor, asked.speeds),
            of_server(measured.server, len(asked.hosts)),
            worker,
            traffic,
            shared_bytes,
            together.server.own_bytes,
            max(0, *own_bytes),
            worker_bytes,
            together.server.placed,
        )

    def play_together(self, least: tuple[int, float]) -> _ShortRun:
        """Plays for the least steps and seconds with hosts of some sizes."""
        asked = self.layout.asked(self.planning.settings.participation).sizes
        carried = max(_CARRIED, self.planning.enough_in_a_host + 1)
        most = _HOSTS_A_CORE * self.layout.slots
        sizes = hosts_to_play(asked, carried, self.planning.enough_workers, most)
        if max(asked) > carried:  # a host of the size below shows what one worker adds
            sizes.append(carried - 1)
        return self._play(sizes, self.planning.settings, least)

    def traffic(self, played: _ShortRun) -> StepTraffic:
        """Bytes of a step of the planned run, and none of an exchange."""
        asked = self.layout.asked(self.planning.settings.participation).sizes

        def moved(phase: str) -> tuple[float, ...]:
            sizes = (role.moved_bytes([phase]) for role in played.hosts)
            return bytes_of_hosts(dict(zip(played.sizes, sizes, strict=True)), asked)

        return StepTraffic(moved("receive"), moved("send"))

    def _play_in_turns(self) -> tuple[_ShortRun, set[str]]:
        """Plays with hosts of one worker, each process alone; also gives exchanges' phases."""
        settings, special, exchange = self.planning.settings, set[str](), self.planning.exchange
        if exchange is not None:
            usual, settings = chain(*self.entry.phases(settings)), exchange.settings
            special = set(chain(*self.entry.phases(settings))).difference(usual)
        count = max(min(2, self.layout.num_workers), self.planning.enough_workers)
        return self._play([1] * count, settings, _IN_TURNS, special, in_turns=True), special

    def _play(
        self,
        sizes: Sequence[int],
        settings: RunSettings,
        least: tuple[int, float],
        special: Collection[str] = (),
        *,
        in_turns: bool = False,
    ) -> _ShortRun:
        how = "in turns" if in_turns else "at the same time"
        _log.info("measuring the server and hosts %s …", how, extra={"shown": "doing"})
        few = replace(self.layout, hosts=consecutive(sizes))
        roles = play(self.dataset, settings, few, least, special=special, in_turns=in_turns)
        return _ShortRun(sizes, roles[0], roles[1:])

    def _stages(self, together: _ShortRun, in_turns: _ShortRun, special: Collection[str]) -> Stages:
        """What the server and a worker do, where they share cores if they will."""
        shared, first = self.layout.shared, self.entry.server_phases[0]

        def of(played: _ShortRun, *, busy: bool) -> Seconds:
            seconds = stages([played.server.charges], first, busy=busy)
            usual = {phase: s for phase, s in seconds.items() if phase not in special}
            return of_server(usual, 1 / len(played.sizes))

        alone = of(in_turns, busy=False)
        busy = of(together, busy=True) if shared else alone
        messages = {phase: s for phase, s in busy.items() if phase in MESSAGES}
        played = together if shared else in_turns
        workers = [
            per_worker(role.charges, size)
            for size, role in zip(played.sizes, played.hosts, strict=True)
        ]
        charges = [role.charges for role in in_turns.hosts]
        exchange = host_stages(charges, special, busy=True).special
        worker = host_stages(workers, special, busy=shared)._replace(special=exchange)
        return Stages(alone | messages, busy, worker, self.planning.questions)

    def _state_bytes(self) -> int:
        settings = self.planning.settings
        models = models_of(settings, self.dataset)
        return self.entry.build().message_sizes(settings, models).state_bytes


def hosts_to_play(asked: Sequence[int], carried: int, enough: int, most: int) -> list[int]:
    """The workers of each host of a short run.

    Args:
        asked: how many workers of each host of the planned run are asked in a step.
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


def bytes_of_hosts(known: Mapping[int, float], asked: Iterable[int]) -> tuple[float, ...]:
    """The bytes of hosts of any size; above the largest that was counted they grow evenly."""
    largest = max(known)
    growth = known[largest] - known.get(largest - 1, 0.0)
    return tuple(known.get(n, known[largest] + growth * (n - largest)) for n in asked)
