"""Formulas that predict the seconds of a step from measured costs.

A step (an iteration or a round) is a chain: the server makes questions, the link carries them,
workers compute answers, the link carries the answers, the server works on them. Workers do what
does not need the next question while they wait for it. Where all processes share a machine, no
schedule is faster than all the work divided by its cores.
"""

import heapq
from dataclasses import dataclass
from typing import Any

from mdgan.families.contract import Planning
from mdgan.plan.layout import Layout, Link


@dataclass(frozen=True)
class StepTraffic:
    """Bytes on the wire in a step, headers and names included."""

    out: tuple[float, ...]  # from the server to each host
    back: tuple[float, ...]  # from each host to the server
    exchanged: float = 0.0  # between hosts in one exchange, such as a swap: the sum, on average


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, with messages; of hosts that share cores, busy seconds of all cores."""

    answers: tuple[float, ...]  # of each host, from a question to its answer
    ahead: tuple[float, ...]  # of each host, for what does not need the next question
    server: float
    server_busy: float  # busy seconds of the server, while hosts compute

    def times(self, factor: float, speeds: tuple[float, ...] = ()) -> "Costs":
        """All seconds multiplied by `factor`; a host's divided by its speed (none given: 1)."""
        factors = [factor / speed for speed in speeds or (1.0,) * len(self.answers)]
        return Costs(
            tuple(f * s for f, s in zip(factors, self.answers, strict=True)),
            tuple(f * s for f, s in zip(factors, self.ahead, strict=True)),
            *(factor * s for s in (self.server, self.server_busy)),
        )


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, and of its parts."""

    step: float  # the whole step, with its part of the next exchange
    exchange: float
    server: float  # the server's arithmetic and messages, on all its threads
    workers: float  # until the slowest host is done; hosts that share cores take turns on them
    out: float  # the server's link carries questions to hosts
    back: float  # the server's link carries answers; partly at the same time
    latency: float
    work: float  # arithmetic of all processes that share a machine, divided by its cores; else 0
    bottleneck: str  # `cores`, `server`, `workers`, `link` or `latency`


@dataclass(frozen=True)
class Question:
    """Everything that a forecast is computed from."""

    layout: Layout  # with only the workers that are asked in a step
    link: Link
    costs: Costs
    traffic: StepTraffic
    planning: Planning[Any]

    def answer(self) -> Forecast:
        """Predicts the seconds of a step."""
        layout, link, costs, traffic = self.layout, self.link, self.costs, self.traffic
        planning, latency_seconds = self.planning, self.link.latency_seconds
        server, work = costs.server, 0.0
        workers = max(map(sum, zip(costs.answers, costs.ahead, strict=True)))
        if layout.shared:
            computed = sum(costs.answers) + sum(costs.ahead)
            server = max(server, costs.server_busy / layout.cores)
            alone = (max(costs.answers) + max(costs.ahead)) / layout.host_threads
            workers = max(alone, computed / layout.cores)
            work = (computed + costs.server_busy) / layout.cores
        out, back = link.seconds(sum(traffic.out)), link.seconds(sum(traffic.back))
        latency = 2 * planning.questions * latency_seconds
        chain = max(_chain(layout, link, costs, traffic=traffic, server=server), workers)
        seconds = max(chain + latency - 2 * latency_seconds, work)
        if planning.overlaps:  # two steps are under way at a time
            seconds = max(chain / 2, work, workers, server, out, back)
        exchange = _exchange(layout, link, costs, traffic=traffic)
        if planning.exchange is not None and planning.exchange.every:
            seconds += exchange / planning.exchange.every
        times = {"link": out + back, "latency": latency}
        if max(times.values()) <= seconds / 2:
            times = {"server": server, "workers": workers}
            if layout.shared and len(layout.hosts) * layout.host_threads >= layout.cores:
                times = {"cores": work}
        bottleneck = max(times, key=times.__getitem__)
        return Forecast(
            seconds,
            exchange,
            server,
            workers=workers,
            out=out,
            back=back,
            latency=latency,
            work=work,
            bottleneck=bottleneck,
        )


def _chain(layout: Layout, link: Link, costs: Costs, traffic: StepTraffic, server: float) -> float:
    """Seconds from the first question of a step until the server is done and can ask again."""
    answered = _last_answer(layout, link, costs.answers, traffic=traffic)
    if not layout.shared:
        return answered + server
    # A host that has answered computes ahead while others still wait for a core.
    idle = layout.cores * answered - sum(costs.answers)
    # The share of hosts that answer before the last slots.
    early = max(0.0, 1 - layout.slots / len(layout.hosts))
    remaining = sum(costs.ahead) - min(idle, early * sum(costs.ahead))
    # The remaining work runs beside the server. The system shares cores out by waiting threads.
    threads = len(layout.hosts) * layout.host_threads
    share = layout.server_threads / (layout.server_threads + threads)
    together = remaining / ((1 - share) * layout.cores)
    served = share * layout.cores * together / costs.server_busy
    if served >= 1:
        return answered + (remaining + costs.server_busy) / layout.cores
    return answered + together + (1 - served) * server


def _last_answer(
    layout: Layout, link: Link, answers: tuple[float, ...], traffic: StepTraffic
) -> float:
    """Seconds from the server's first question until it has read the last answer."""
    hosts = len(layout.hosts)
    slots, threads = (layout.slots, layout.host_threads) if layout.shared else (hosts, 1)
    free = [0.0] * min(slots, hosts)  # a heap: when each slot becomes free
    arrived, answered = link.latency_seconds, []
    for seconds, num_bytes in zip(answers, traffic.out, strict=True):
        arrived += link.seconds(num_bytes)
        answered.append(max(arrived, free[0]) + seconds / threads)
        heapq.heapreplace(free, answered[-1])
    received = 0.0
    for moment, num_bytes in sorted(zip(answered, traffic.back, strict=True)):
        received = max(received, moment) + link.seconds(num_bytes)
    return received + link.latency_seconds


def _exchange(layout: Layout, link: Link, costs: Costs, traffic: StepTraffic) -> float:
    """Seconds that an exchange adds: for its bytes, and for work ahead that must wait for them."""
    if not traffic.exchanged:
        return 0.0
    journey = link.seconds(traffic.exchanged / len(layout.hosts)) + 3 * link.latency_seconds
    return journey if layout.shared else journey + max(costs.ahead)
