"""Forecasts of made-up machines."""

from math import inf
from typing import NamedTuple

from mdgan.plan.layout import Layout, Link, consecutive
from mdgan.plan.prediction import Costs, Forecast, Traffic, predict

MEGABIT = 1e6 * 1538 / 1448
"""A rate that carries a million bits of content a second."""


def layout(num_workers: int, *, cores: int = 2, carried: int = 1, shared: bool = True) -> Layout:
    sizes = [min(carried, num_workers - n) for n in range(0, num_workers, carried)]
    threads = 1 if shared else cores
    return Layout(consecutive(sizes), cores, threads, cores, shared)


class Each(NamedTuple):
    """What each worker takes, and the server; no messages."""

    answer: float = 0.0
    ahead: float = 0.0
    server: float = 0.0
    busy: float = 0.0
    friction: float = 1.0

    def on(self, where: Layout) -> Costs:
        """What hosts take; an exchange takes a worker half a second."""
        answers = tuple(size * self.answer for size in where.sizes)
        ahead = tuple(size * self.ahead for size in where.sizes)
        return Costs(answers, ahead, 0.5, self.server, self.busy).times(self.friction)


def foretold(
    where: Layout,
    what: Each,
    *,
    out: int = 0,
    back: int = 0,
    megabits: float = inf,
    latency: float = 0.0,
    questions: int = 1,
    overlaps: bool = False,
    by_arrival: bool = False,
    exchange_every: int = 0,
    thing: int = 0,
) -> Forecast:
    """Predicts with so many bytes to and from every host."""
    count = len(where.hosts)
    moved = float(where.num_workers) if count > 1 else 0.0
    traffic = Traffic((out,) * count, (back,) * count, thing, moved)
    link = Link(MEGABIT * megabits, latency)
    return predict(
        where,
        link,
        what.on(where),
        traffic,
        questions=questions,
        overlaps=overlaps,
        by_arrival=by_arrival,
        exchange_every=exchange_every,
    )
