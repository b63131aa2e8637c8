"""From what was measured to the seconds of a step. Formulas alone: nothing is computed here.

A step, an iteration or a round, is a chain: the server makes questions, they go out, workers
compute answers, these come back, the server goes on from them. What a worker can do ahead of the
next question it does while it would wait for the server and the network. Where all processes share
a machine, no schedule is faster than all the work divided by its cores.
"""

import heapq
from dataclasses import dataclass
from typing import Any

from mdgan.families.contract import Planning
from mdgan.plan.layout import Layout, Link


@dataclass(frozen=True)
class StepTraffic:
    """Bytes on the wire, headers and names included."""

    out: tuple[float, ...]  # of a step, from the server to each host
    back: tuple[float, ...]  # from each host to the server
    # Of all that hosts hand to each other in an exchange, such as a swap, on average.
    exchanged: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, with messages. Of hosts, where cores are shared: of all cores together."""

    answers: tuple[float, ...]  # of each host, from a question to its answer
    ahead: tuple[float, ...]  # of each host, with what does not wait for the next question
    server: float
    server_busy: float  # likewise of all its cores together, while hosts compute

    def times(self, factor: float, speeds: tuple[float, ...] = ()) -> "Costs":
        """All seconds so many times longer, with hosts of such speeds; none: as this machine."""
        factors = [factor / speed for speed in speeds or (1.0,) * len(self.answers)]
        return Costs(
            tuple(each * s for each, s in zip(factors, self.answers, strict=True)),
            tuple(each * s for each, s in zip(factors, self.ahead, strict=True)),
            *(factor * s for s in (self.server, self.server_busy)),
        )


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, and what they are made of."""

    step: float  # all of it, exchanges spread over the steps between them
    exchange: float
    server: float  # the server's arithmetic and messages, on all its threads
    workers: float  # the longest that hosts take, each after the other where they share cores
    out: float  # bytes over the server's link, on their way to hosts
    back: float  # bytes on their way back; partly at the same time
    latency: float
    # The arithmetic of all processes over the cores of the one machine; 0 where each has a machine
    # of its own.
    work: float
    bottleneck: str  # `cores`, `server`, `workers`, `link` or `latency`


@dataclass(frozen=True)
class Question:
    """Everything that a forecast is made of; the layout has the workers asked in a step."""

    layout: Layout
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
    """From the first question of a step to the server's last stage, work ahead beside it."""
    answered = _last_answer(layout, link, costs.answers, traffic=traffic)
    if not layout.shared:
        return answered + server
    # A host that has answered computes ahead while others still wait for a core.
    idle = layout.cores * answered - sum(costs.answers)
    part = max(0.0, 1 - layout.slots / len(layout.hosts))  # that answer before the last begin
    left = sum(costs.ahead) - min(idle, part * sum(costs.ahead))
    # What is left runs beside the server. The system shares cores out by threads that want them.
    threads = len(layout.hosts) * layout.host_threads
    share = layout.server_threads / (layout.server_threads + threads)
    together = left / ((1 - share) * layout.cores)
    served = share * layout.cores * together / costs.server_busy
    if served >= 1:
        return answered + (left + costs.server_busy) / layout.cores
    return answered + together + (1 - served) * server


def _last_answer(
    layout: Layout, link: Link, answers: tuple[float, ...], traffic: StepTraffic
) -> float:
    """When the last answer is in, counted from when the server sends the first question."""
    hosts = len(layout.hosts)
    slots, threads = (layout.slots, layout.host_threads) if layout.shared else (hosts, 1)
    free = [0.0] * min(slots, hosts)  # a heap: when each place to compute is free
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
    """What an exchange adds: the journey, and what could be done ahead but for it."""
    if not traffic.exchanged:
        return 0.0
    journey = link.seconds(traffic.exchanged / len(layout.hosts)) + 3 * link.latency_seconds
    return journey if layout.shared else journey + max(costs.ahead)
