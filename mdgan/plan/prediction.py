"""From what was measured to the seconds of a step. Formulas alone: nothing is computed here.

A step, an iteration or a round, is a chain: the server makes questions, they go out, workers
compute answers, these come back, the server goes on from them. What a worker can do ahead of the
next question it does while it would wait for the server and the network. Where all processes share
a machine, no schedule is faster than all the work divided by its cores.

Where no worker waits for another, each has a chain of its own, and the server answers one after the
other. A step is then as many answers as there are workers.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mdgan.plan.layout import Layout, Link


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wire, headers and names included.

    Attributes:
        out: of a step, from the server to each host.
        back: from each host to the server.
        thing: of one thing that hosts hand to each other in an exchange, such as a swap.
        moved: how many things change their host in an exchange, on average.
    """

    out: tuple[float, ...]
    back: tuple[float, ...]
    thing: float = 0.0
    moved: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, with messages. Of hosts, where cores are shared: of all cores together.

    Attributes:
        answers: of each host, from a question to its answer; by arrival, of all its workers.
        ahead: of each host, with what does not wait for the next question.
        exchange: a worker, in an exchange with other hosts.
        server: the server alone.
        server_busy: likewise of all its cores together, while hosts compute.
    """

    answers: tuple[float, ...]
    ahead: tuple[float, ...]
    exchange: float
    server: float
    server_busy: float

    def times(self, factor: float) -> "Costs":
        """All seconds, so many times longer."""
        return Costs(
            tuple(factor * each for each in self.answers),
            tuple(factor * each for each in self.ahead),
            *(factor * each for each in (self.exchange, self.server, self.server_busy)),
        )

    def at(self, speeds: Sequence[float]) -> "Costs":
        """With hosts so many times as fast; none if all are as fast as this machine."""
        if not speeds:
            return self
        answers = (seconds / speed for seconds, speed in zip(self.answers, speeds, strict=True))
        ahead = (seconds / speed for seconds, speed in zip(self.ahead, speeds, strict=True))
        return replace(self, answers=tuple(answers), ahead=tuple(ahead))


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, and what they are made of.

    Attributes:
        step: all of it, exchanges spread over the steps between them.
        exchange: what one exchange adds.
        server: the server's arithmetic and messages, on all its threads.
        workers: the longest that hosts take, each after the other where they share cores.
        out: bytes over the server's link, on their way to hosts.
        back: bytes on their way back; partly at the same time.
        latency: there and back.
        work: the arithmetic of all processes over the cores of the one machine; 0 where each has
            a machine of its own.
        bottleneck: `cores`, `server`, `workers`, `link` or `latency`.
    """

    step: float
    exchange: float
    server: float
    workers: float
    out: float
    back: float
    latency: float
    work: float
    bottleneck: str


def predict(
    layout: Layout,
    link: Link,
    costs: Costs,
    traffic: Traffic,
    *,
    questions: int = 1,
    overlaps: bool = False,
    by_arrival: bool = False,
    exchange_every: int = 0,
) -> Forecast:
    """Predicts the seconds of a step.

    Args:
        layout: which hosts are asked in a step.
        link: of every machine.
        costs: as measured.
        traffic: bytes of a step.
        questions: how many times the server asks in a step, each after the last answer.
        overlaps: whether two steps are under way at a time, so that their stages overlap.
        by_arrival: whether the server goes on from each answer by itself.
        exchange_every: steps between two exchanges; 0 for none, or if that is not known.
    """
    server, work = costs.server, 0.0
    workers = max(map(sum, zip(costs.answers, costs.ahead, strict=True)))
    if layout.shared:
        computed = sum(costs.answers) + sum(costs.ahead)
        server = max(server, costs.server_busy / layout.cores)
        alone = (max(costs.answers) + max(costs.ahead)) / layout.host_threads
        workers = max(alone, computed / layout.cores)
        work = (computed + costs.server_busy) / layout.cores
    out, back = link.seconds(sum(traffic.out)), link.seconds(sum(traffic.back))
    latency = 2 * questions * link.latency_seconds
    if by_arrival:
        seconds = max(_own_chains(layout, link, costs, traffic), work, server, out, back)
    else:
        chain = max(_chain(layout, link, costs, traffic, server), workers)
        seconds = max(chain + (questions - 1) * 2 * link.latency_seconds, work)
        if overlaps:
            seconds = max(chain / 2, work, workers, server, out, back)
    exchange = _exchange(layout, link, costs, traffic)
    if exchange_every:
        seconds += exchange / exchange_every
    bottleneck = _bottleneck(layout, seconds, server, workers, out + back, latency)
    return Forecast(seconds, exchange, server, workers, out, back, latency, work, bottleneck)


def friction(layout: Layout, costs: Costs, seconds: float, *, by_arrival: bool = False) -> float:
    """How many times longer a step took than the formulas say.

    All together take longer than the formulas say: for taking turns on cores, and for waking up.

    Args:
        layout: of the short run.
        costs: what each process took.
        seconds: what a step took, without a limit of the network.
        by_arrival: see `predict`.
    """
    none = (0,) * len(layout.hosts)
    return seconds / predict(layout, Link(), costs, Traffic(none, none), by_arrival=by_arrival).step


def _own_chains(layout: Layout, link: Link, costs: Costs, traffic: Traffic) -> float:
    """How long as many answers as there are workers take, if no host and no message is in the way.

    A worker computes its answer and waits until the server has stepped and new batches have come;
    meanwhile its host computes ahead, and what its other workers were asked.
    """
    threads, count = layout.host_threads if layout.shared else 1, layout.num_workers
    away = costs.server / count + 2 * link.latency_seconds
    away += link.seconds((sum(traffic.out) + sum(traffic.back)) / count)
    rate = 0.0  # answers a second
    for size, answers, ahead in zip(layout.sizes, costs.answers, costs.ahead, strict=True):
        rate += size / max((answers + ahead) / threads, answers / size / threads + away)
    return count / rate


def _chain(layout: Layout, link: Link, costs: Costs, traffic: Traffic, server: float) -> float:
    """From the first question of a step to the server's last stage, work ahead beside it."""
    answered = _last_answer(layout, link, costs.answers, traffic)
    if not layout.shared:
        return answered + server
    # A host that has answered computes ahead while others still wait for a core.
    idle = layout.cores * answered - sum(costs.answers)
    done = min(idle, sum(costs.ahead) * _part_done(layout))
    return answered + _beside_hosts(layout, sum(costs.ahead) - done, server, costs.server_busy)


def _last_answer(layout: Layout, link: Link, critical: Sequence[float], traffic: Traffic) -> float:
    """When the last answer is in, counted from when the server sends the first question.

    Questions leave one after the other, so that the first host computes while the last still waits
    for its own, and answers travel while others compute.
    """
    hosts = len(layout.hosts)
    slots = layout.slots if layout.shared else hosts
    threads = layout.host_threads if layout.shared else 1
    free = [0.0] * min(slots, hosts)  # a heap: when each place to compute is free
    arrived, answers = link.latency_seconds, []
    for seconds, num_bytes in zip(critical, traffic.out, strict=True):
        arrived += link.seconds(num_bytes)
        answers.append(max(arrived, free[0]) + seconds / threads)
        heapq.heapreplace(free, answers[-1])
    received = 0.0
    for answered, num_bytes in sorted(zip(answers, traffic.back, strict=True)):
        received = max(received, answered) + link.seconds(num_bytes)
    return received + link.latency_seconds


def _part_done(layout: Layout) -> float:
    """The part of the hosts that have answered before the last to compute begin."""
    return max(0.0, 1 - layout.slots / len(layout.hosts))


def _beside_hosts(layout: Layout, ahead: float, server: float, busy_server: float) -> float:
    """How long the server takes, hosts beside it on the same cores, until both are done.

    Args:
        layout: which hosts are asked.
        ahead: all that hosts have left to do ahead of the next question, on one core.
        server: the server alone.
        busy_server: the server, all its cores together.
    """
    # The system shares cores out by threads that want them.
    threads = len(layout.hosts) * layout.host_threads
    share = layout.server_threads / (layout.server_threads + threads)
    together = ahead / ((1 - share) * layout.cores)
    served = share * layout.cores * together / busy_server
    if served >= 1:
        return (ahead + busy_server) / layout.cores
    return together + (1 - served) * server


def _exchange(layout: Layout, link: Link, costs: Costs, traffic: Traffic) -> float:
    """What an exchange adds: the things' journey, and what could be done ahead but for it."""
    if layout.num_workers < 2:
        return 0.0
    largest = max(layout.sizes)
    carried = traffic.moved / len(layout.hosts)
    journey = link.seconds(carried * traffic.thing) + 3 * link.latency_seconds * (carried > 0)
    if layout.shared:
        alone, all_hosts = largest / layout.host_threads, layout.num_workers / layout.cores
        return journey + costs.exchange * max(alone, all_hosts)
    return journey + largest * costs.exchange + max(costs.ahead)


def _bottleneck(
    layout: Layout, seconds: float, server: float, workers: float, link: float, latency: float
) -> str:
    if max(link, latency) > seconds / 2:
        return "link" if link >= latency else "latency"
    if layout.shared and len(layout.hosts) * layout.host_threads >= layout.cores:
        return "cores"
    return "server" if server >= workers else "workers"
