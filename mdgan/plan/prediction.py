"""From what was measured to the seconds of an iteration. Formulas alone: nothing is computed here.

An iteration is a chain: the server generates, its messages go out, workers learn the fake half,
step and judge, their feedback comes back, the server steps. Real halves are learnt while workers
would wait for the server and the network. Where everybody shares a machine, no schedule is faster
than all the work divided by its cores.
"""

import heapq
from dataclasses import astuple, dataclass

from mdgan.plan.layout import Layout, Link
from mdgan.plan.traffic import Traffic


@dataclass(frozen=True)
class WorkerSeconds:
    """What a worker and its host take.

    Attributes:
        real_half: the half of a local step that does not wait for generated samples.
        learn: the rest of L local steps.
        feedback: F_n.
        receive: of a host: reading BATCHES.
        send: of a host: writing FEEDBACK.
        swap: of a discriminator that is given and one that is taken.
    """

    real_half: float
    learn: float
    feedback: float
    receive: float
    send: float
    swap: float


@dataclass(frozen=True)
class ServerSeconds:
    """What the server takes.

    Attributes:
        generate: κ batches.
        update: from all feedback to the step.
        send: writing BATCHES, for one host.
        receive: reading FEEDBACK, of one host.
    """

    generate: float
    update: float
    send: float
    receive: float

    def total(self, num_hosts: int) -> float:
        """An iteration of the server."""
        return self.generate + self.update + num_hosts * (self.send + self.receive)


@dataclass(frozen=True)
class Costs:
    """Seconds of everybody.

    Attributes:
        worker: of the worker and its host; where cores are shared, of all their cores together,
            while others compute, too.
        server: of the server alone.
        server_busy: likewise of all its cores together, while workers compute.
        friction: how many times longer everybody together takes than the formulas say: for taking
            turns on cores, and for waking up.
    """

    worker: WorkerSeconds
    server: ServerSeconds
    server_busy: ServerSeconds
    friction: float = 1.0


@dataclass(frozen=True)
class Forecast:
    """Seconds of an iteration, and what they are made of.

    Attributes:
        iteration: all of it, swaps spread over the iterations between them.
        swap: what one swap adds.
        server: the server's arithmetic and messages, on all its threads.
        workers: the longest that hosts take, each after the other where they share cores.
        out: bytes over the server's link, on their way to hosts.
        back: bytes on their way back; partly at the same time.
        latency: there and back.
        work: everybody's arithmetic over the cores of the one machine; 0 where each has its own.
        bottleneck: `cores`, `server`, `workers`, `link` or `latency`.
    """

    iteration: float
    swap: float
    server: float
    workers: float
    out: float
    back: float
    latency: float
    work: float
    bottleneck: str


def predict(
    layout: Layout, link: Link, costs: Costs, traffic: Traffic, *, stale: int, swap_every: int
) -> Forecast:
    """Predicts the seconds of an iteration.

    Args:
        layout: who computes where.
        link: of every machine.
        costs: as measured.
        traffic: bytes of an iteration.
        stale: `--stale`; with 1 two iterations are under way, and stages overlap.
        swap_every: iterations between two swaps; 0 for none, or if nobody knows.
    """
    costs = _with_friction(costs)
    hosts = len(layout.hosts)
    server, busy_server = costs.server.total(hosts), costs.server_busy.total(hosts)
    critical = [_critical(costs.worker, len(carried)) for carried in layout.hosts]
    real = [costs.worker.real_half * len(carried) for carried in layout.hosts]
    out, back = link.seconds(sum(traffic.out)), link.seconds(sum(traffic.back))
    latency = 2 * link.latency_seconds
    if layout.shared:
        server = max(server, busy_server / layout.cores)
        alone = (max(critical) + max(real)) / layout.host_threads
        workers = max(alone, (sum(critical) + sum(real)) / layout.cores)
        work = (sum(critical) + sum(real) + busy_server) / layout.cores
        answered = _last_answer(layout, link, critical, traffic)
        # Whoever has answered learns its next real half while others still wait for a core.
        idle = layout.cores * answered - sum(critical)
        ahead = min(idle, sum(real) * _part_ahead(layout))
        stepped = _beside_real_halves(layout, sum(real) - ahead, server, busy_server)
        chain = max(answered + stepped, workers)
    else:
        workers, work = max(map(sum, zip(critical, real, strict=True))), 0.0
        chain = max(_last_answer(layout, link, critical, traffic) + server, workers)
    seconds = max(chain, work)
    if stale:
        seconds = max(chain / 2, work, workers, server, out, back)
    swap = _swap(layout, link, costs, traffic)
    if swap_every:
        seconds += swap / swap_every
    bottleneck = _bottleneck(layout, seconds, server, workers, out + back, latency)
    return Forecast(seconds, swap, server, workers, out, back, latency, work, bottleneck)


def friction(layout: Layout, costs: Costs, seconds: float) -> float:
    """How many times longer an iteration took than the formulas say.

    Args:
        layout: of those who played.
        costs: what each took.
        seconds: what an iteration took, without a limit of the network.
    """
    none = (0,) * len(layout.hosts)
    nothing = Traffic(none, none, 0, 0.0)
    return seconds / predict(layout, Link(), costs, nothing, stale=0, swap_every=0).iteration


def _critical(worker: WorkerSeconds, carried: int) -> float:
    """From a host's batches to its answer."""
    return worker.receive + carried * (worker.learn + worker.feedback) + worker.send


def _with_friction(costs: Costs) -> Costs:
    """All seconds as they are when everybody works."""

    def longer(seconds: WorkerSeconds | ServerSeconds) -> list[float]:
        return [costs.friction * each for each in astuple(seconds)]

    return Costs(
        WorkerSeconds(*longer(costs.worker)),
        ServerSeconds(*longer(costs.server)),
        ServerSeconds(*longer(costs.server_busy)),
    )


def _last_answer(layout: Layout, link: Link, critical: list[float], traffic: Traffic) -> float:
    """When the last feedback is in, counted from when the server sends the first batches.

    Batches leave one after the other, so that the first host computes while the last still waits
    for its own, and answers travel while others compute.
    """
    hosts = len(layout.hosts)
    slots = max(1, layout.cores // layout.host_threads) if layout.shared else hosts
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


def _part_ahead(layout: Layout) -> float:
    """The part of the hosts that have answered before the last to compute begin."""
    together = max(1, layout.cores // layout.host_threads)
    return max(0.0, 1 - together / len(layout.hosts))


def _beside_real_halves(layout: Layout, real: float, server: float, busy_server: float) -> float:
    """How long the server takes, real halves beside it on the same cores, until both are done.

    Args:
        layout: who computes where.
        real: all real halves that are left, on one core.
        server: the server alone.
        busy_server: the server, all its cores together.
    """
    # The system shares cores out by threads that want them.
    threads = len(layout.hosts) * layout.host_threads
    share = layout.server_threads / (layout.server_threads + threads)
    together = real / ((1 - share) * layout.cores)
    served = share * layout.cores * together / busy_server
    if served >= 1:
        return (real + busy_server) / layout.cores
    return together + (1 - served) * server


def _swap(layout: Layout, link: Link, costs: Costs, traffic: Traffic) -> float:
    """What a swap adds: the states' journey, and real halves that must wait for it."""
    if layout.num_workers < 2:
        return 0.0
    moved = [costs.worker.swap * len(carried) for carried in layout.hosts]
    real = [costs.worker.real_half * len(carried) for carried in layout.hosts]
    carried = traffic.num_moved / len(layout.hosts)
    journey = link.seconds(carried * traffic.swap) + 3 * link.latency_seconds * (carried > 0)
    if layout.shared:
        return journey + max(max(moved) / layout.host_threads, sum(moved) / layout.cores)
    return journey + max(moved) + max(real)


def _bottleneck(
    layout: Layout, seconds: float, server: float, workers: float, link: float, latency: float
) -> str:
    if max(link, latency) > seconds / 2:
        return "link" if link >= latency else "latency"
    if layout.shared and len(layout.hosts) * layout.host_threads >= layout.cores:
        return "cores"
    return "server" if server >= workers else "workers"
