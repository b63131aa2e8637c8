"""A few seconds on this machine: what a run takes, how much memory it needs, and what it sends.

Short runs of the server and a few hosts say so: in one, all compute at the same time, so that what
processes that share cores cost each other is measured, too; in the other, each alone.
"""

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
from mdgan.plan.prediction import Costs, Traffic, friction
from mdgan.plan.short_run import Role, play
from mdgan.plan.stages import Counts, Stages, times
from mdgan.records.placements import Placed

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
        costs: seconds of a step of the planned run.
        server: by phase, seconds of the server alone in such a step; messages where it shares cores
            with hosts, if it does.
        workers: by group, seconds of a worker.
        traffic: bytes of a step.
        shared_bytes: memory of every process: Python, torch, mdgan.
        server_bytes: what the server has besides.
        host_bytes: what a host with one worker has besides.
        worker_bytes: what each further worker takes, or each slot of clients without a home.
        placed: where such clients were trained.
    """

    costs: Costs
    server: Seconds
    workers: Mapping[str, HostStages]
    traffic: Traffic
    shared_bytes: int
    server_bytes: int
    host_bytes: int
    worker_bytes: int
    placed: Sequence[Placed] = ()


class _Played(NamedTuple):
    """A short run, whose hosts carry workers of one group each."""

    hosts: Sequence[Counts]
    server: Role
    roles: Sequence[Role]


@dataclass(frozen=True)
class Measurement:
    """Measures an algorithm on this machine; all methods raise ForkFailed if it cannot run here.

    Attributes:
        entry: the algorithm.
        dataset: its models and shape; no data are read.
        layout: of the planned run.
        planning: what the algorithm says of itself.
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
        planning = self.planning
        if planning.placing is None:
            _tell("measuring the server and a few hosts at the same time, on noise (step 1 of 2)")
            together = self._together(_TOGETHER)
            _tell("measuring the server and two hosts in turns (step 2 of 2)")
            in_turns, special = self._in_turns()
        else:
            _tell("measuring the server and all slots of this machine at the same time, on noise")
            together = self._play([[1] * self.hosts_here], planning.settings, _TOGETHER)
            in_turns, special = together, set()

        hosts, traffic = self._asked(), self._traffic(together)
        speeds = self.layout.asked(planning.settings.participation).speeds
        found = self._stages(together, in_turns, special)
        factor = 1.0
        if self.layout.shared:
            few = replace(self.layout, hosts=consecutive([*map(sum, together.hosts)]))
            seconds = self._step_seconds(together)
            costs = found.costs(together.hosts)
            factor = friction(few, costs, seconds, by_arrival=planning.by_arrival)
        if planning.exchange is not None:
            moved_bytes = [role.moved_bytes(special) for role in in_turns.roles]
            thing = max(moved_bytes) / 2  # one given, one taken
            moved = planning.exchange.moved(self.layout.hosts)
            traffic = replace(traffic, thing=thing, moved=moved)
        longer = planning.iterations / planning.played_iterations
        workers = [
            each._replace(asked={phase: longer * s for phase, s in each.asked.items()})
            for each in found.workers
        ]
        if planning.placing is not None:  # what clients take is told by `Placing.shares`
            workers = [HostStages(_of_messages(each.asked), {}, {}) for each in workers]
        limits = self.entry.build().message_sizes(
            planning.settings, models_of(planning.settings, self.dataset)
        )
        worker_bytes = planning.worker_bytes or limits.state_bytes
        if planning.placing is not None:
            worker_bytes = max(role.forked_bytes for role in together.roles)
        own_bytes = [
            role.own_bytes - (sum(counts) - 1) * worker_bytes
            for counts, role in zip(together.hosts, together.roles, strict=True)
        ]
        return Measured(
            replace(found, workers=workers).costs(hosts).times(factor).at(speeds),
            found.of_server(found.server, hosts),
            dict(zip(self._groups(), workers, strict=True)),
            traffic,
            shared_bytes,
            together.server.own_bytes,
            max(0, *own_bytes),
            worker_bytes,
            together.server.placed,
        )

    def count(self) -> Traffic:
        """Counts the bytes of a step, and none of an exchange."""
        _tell("counting the bytes that a remedy would leave")
        return self._traffic(self._together(_SHORTEST))

    def _together(self, least: tuple[int, float]) -> _Played:
        """Plays with hosts of some sizes."""
        planning, asked = self.planning, self._asked()
        carried = max(_CARRIED, planning.enough_in_a_host + 1)
        most = _HOSTS_A_CORE * self.layout.slots
        sizes = []
        for group in zip(*asked, strict=True):
            sizes_asked = [size for size in group if size]
            share = max(1, round(most * len(sizes_asked) / len(asked)))
            sizes.append(hosts_to_play(sizes_asked, carried, planning.enough_workers, share))
            if max(sizes_asked) > carried:  # a host of the size below shows what one worker adds
                sizes[-1].append(carried - 1)
        return self._play(sizes, planning.settings, least)

    def _in_turns(self) -> tuple[_Played, set[str]]:
        """Plays with hosts of one worker, each process alone; also gives exchanges' phases."""
        planning, entry, groups = self.planning, self.entry, self._groups()
        settings, special = planning.settings, set()
        if planning.exchange is not None:
            settings = planning.exchange.settings
            usual = set(chain(*entry.phases(planning.settings)))
            special = set(chain(*entry.phases(settings))) - usual
        count = max(min(2 // len(groups), self.layout.num_workers), planning.enough_workers)
        sizes = [[1] * count] * len(groups)
        return self._play(sizes, settings, _IN_TURNS, special=special, in_turns=True), special

    def _play(
        self,
        sizes: Sequence[Sequence[int]],
        settings: RunSettings,
        least: tuple[int, float],
        *,
        special: Collection[str] = (),
        in_turns: bool = False,
    ) -> _Played:
        """Plays with hosts of so many workers, group by group."""
        hosts = [
            tuple(size if place == group else 0 for place in range(len(sizes)))
            for group, each in enumerate(sizes)
            for size in each
        ]
        few = replace(self.layout, hosts=consecutive([*map(sum, hosts)]))
        chosen = self.planning.with_groups(settings, [*map(sum, sizes)])
        steps, seconds = least
        least = steps * self._times("", hosts), seconds
        server, *roles = play(self.dataset, chosen, few, least, special=special, in_turns=in_turns)
        return _Played(hosts, server, roles)

    def _groups(self) -> Mapping[str, Sequence[int]]:
        """The workers of the planned run that do the same, by what people call one of them."""
        return self.planning.groups or {"worker": range(1, 1 + self.planning.settings.num_workers)}

    def _asked(self) -> list[Counts]:
        """The hosts that are asked in a step."""
        layout = self.layout.asked(self.planning.settings.participation)
        groups = [set(workers) for workers in self._groups().values()]
        return [tuple(len(g.intersection(carried)) for g in groups) for carried in layout.hosts]

    def _stages(self, together: _Played, in_turns: _Played, special: Collection[str]) -> Stages:
        """What the server and a worker of each group do, where they share cores if they will."""
        shared, planning = self.layout.shared, self.planning
        alone = self._server(in_turns, special, busy=False)
        busy = self._server(together, (), busy=True) if shared else alone
        messages = _of_messages(busy)
        played = together if shared else in_turns
        workers = [
            host_stages(
                [
                    per_worker(role.charges, 1 if planning.by_arrival else counts[group])
                    for counts, role in zip(played.hosts, played.roles, strict=True)
                    if counts[group]
                ],
                special,
                busy=shared,
            )
            for group in range(len(self._groups()))
        ]
        charges = [role.charges for role in in_turns.roles]
        exchange = sum(host_stages(charges, special, busy=True).special.values())
        told = planning.questions, planning.by_arrival
        return Stages(alone | messages, busy, workers, exchange, *told)

    def _times(self, phase: str, hosts: Sequence[Counts]) -> int:
        return times(phase, hosts, by_arrival=self.planning.by_arrival)

    def _server(self, played: _Played, special: Collection[str], *, busy: bool) -> Seconds:
        """By phase, each time that the server comes to it."""
        begins = self._times("", played.hosts)
        charges, first = played.server.charges, self.entry.server_phases[0]
        found = stages([charges], first, busy=busy, times=begins)
        return {
            phase: seconds / self._times(phase, played.hosts)
            for phase, seconds in found.items()
            if phase not in special
        }

    def _step_seconds(self, played: _Played) -> float:
        first, begins = self.entry.server_phases[0], self._times("", played.hosts)
        return step_seconds(played.server.charges, first, begins)

    def _traffic(self, played: _Played) -> Traffic:
        """Bytes of a step, and none of an exchange."""
        out, back = (self._bytes(played, phase) for phase in ("receive", "send"))
        return Traffic(out, back)

    def _bytes(self, played: _Played, phase: str) -> tuple[float, ...]:
        """Of each host that is asked; of one with workers of several groups, as if it were more."""
        moved = [role.moved_bytes([phase]) for role in played.roles]
        sums = []
        for asked, played_sizes in zip(
            zip(*self._asked(), strict=True), zip(*played.hosts, strict=True), strict=True
        ):
            known = {n: each for n, each in zip(played_sizes, moved, strict=True) if n}
            found = iter(bytes_of_hosts(known, filter(None, asked)))
            sums.append([next(found) if size else 0.0 for size in asked])
        return tuple(map(sum, zip(*sums, strict=True)))


def _of_messages(found: Seconds) -> Seconds:
    return {phase: seconds for phase, seconds in found.items() if phase in MESSAGES}


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


def bytes_of_hosts(known: Mapping[int, float], asked: Iterable[int]) -> tuple[float, ...]:
    """The bytes of hosts of any size; above the largest that was counted they grow evenly.

    Args:
        known: by how many workers a host has, those that were counted.
        asked: the sizes that are wanted.
    """
    largest = max(known)
    growth = known[largest] - known.get(largest - 1, 0.0)
    return tuple(known.get(n, known[largest] + growth * (n - largest)) for n in asked)
