"""Forecasts of made-up machines."""

from math import inf

from mdgan.plan.layout import Layout, Link
from mdgan.plan.prediction import Costs, Forecast, ServerSeconds, WorkerSeconds, predict
from mdgan.plan.traffic import Traffic

MEGABIT = 1e6 * 1538 / 1448
"""A rate that carries a million bits of content a second."""


def hosts(num_workers: int, carried: int = 1) -> tuple[tuple[int, ...], ...]:
    workers = range(1, num_workers + 1)
    return tuple(tuple(workers[n : n + carried]) for n in range(0, num_workers, carried))


def layout(num_workers: int, *, cores: int = 2, carried: int = 1, shared: bool = True) -> Layout:
    threads = 1 if shared else cores
    return Layout(hosts(num_workers, carried), cores, threads, cores, shared)


def costs(
    *,
    real_half: float = 0.0,
    learn: float = 0.0,
    feedback: float = 0.0,
    server: float = 0.0,
    busy: float = 0.0,
    friction: float = 1.0,
) -> Costs:
    worker = WorkerSeconds(real_half, learn, feedback, 0.0, 0.0, 0.5)
    alone, together = (ServerSeconds(seconds, 0.0, 0.0, 0.0) for seconds in (server, busy))
    return Costs(worker, alone, together, friction)


def foretold(
    where: Layout,
    what: Costs,
    *,
    out: int = 0,
    back: int = 0,
    megabits: float = inf,
    latency: float = 0.0,
    stale: int = 0,
    swap_every: int = 0,
    swap: int = 0,
) -> Forecast:
    """Predicts with so many bytes to and from every host."""
    count = len(where.hosts)
    moved = float(where.num_workers) if count > 1 else 0.0
    traffic = Traffic((out,) * count, (back,) * count, swap, moved)
    link = Link(MEGABIT * megabits, latency)
    return predict(where, link, what, traffic, stale=stale, swap_every=swap_every)
