"""MD-GAN without a barrier (Hardy et al. 2019, VII.1): a step for each answer that comes."""

from collections import defaultdict
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.families.mdgan.algorithm import Graph
from mdgan.families.mdgan.server import MDGANServer, Sent


class _Asked(NamedTuple):
    """What a worker was sent.

    Attributes:
        graph: of its batches.
        sent: which of them it judges.
        num_steps: how many steps G had taken when they were made.
    """

    graph: Graph
    sent: Sent
    num_steps: int


class _Used:
    """What was used in an iteration, by worker."""

    def __init__(self) -> None:
        self.number = 0
        self._losses: defaultdict[int, list[Tensor]] = defaultdict(list)
        self._staleness: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, worker: int, losses: Tensor, staleness: int) -> None:
        self.number += 1
        self._losses[worker].append(losses)
        self._staleness[worker].append(staleness)

    def advance(self, i: int) -> Advance:
        """Iteration i is done; a worker's losses are the means over its answers."""
        workers = sorted(self._losses)
        losses = torch.stack([torch.stack(self._losses[n]).mean(dim=0) for n in workers])
        return Advance(i, losses, workers, {n: self._staleness[n] for n in workers})


def rate_scale(staleness: int) -> float:
    """What the learning rate of a step is multiplied by: 1 / √(1 + s).

    With N workers that are equally fast s = N − 1, and a step has b samples instead of N·b: the
    rate falls with the square root of a batch (Krizhevsky 2014). The older an answer, the less it
    weighs.

    Args:
        staleness: s ≥ 0, how many steps G has taken since it made the batches.
    """
    return 1 / sqrt(1 + staleness)


class ArrivalServer(MDGANServer):
    """The server's side of MD-GAN where no worker waits for another one.

    Each worker has batches of its own, and gets new ones as soon as its answer is used. With N live
    workers an iteration is N steps, one for each answer, from whichever workers they come. In an
    iteration before a swap, a checkpoint or the end, no worker gets new batches until all have
    answered.
    """

    _asked: dict[int, _Asked]
    _num_steps: int

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One global iteration."""
        i, used = done + 1, _Used()
        if not engine.members.busy():
            self._asked, self._num_steps = {}, 0
            self._await(i, engine)
        while self._ask_idle(i, used.number, engine):
            self._use(i, engine.arrivals.next(i), used, engine)
        if not used.number:  # all workers were lost: the same iteration again, with newcomers
            return None
        if self._swap_follows(i):
            self._swap(i, engine)
        return used.advance(i)

    def _ask_idle(self, i: int, num_used: int, engine: Engine) -> bool:
        """Sends batches to the workers that owe nothing, unless a pause follows.

        Args:
            i: the iteration.
            num_used: how many answers were used in it.
            engine: knows which workers live.

        Returns:
            Whether the iteration needs further answers.
        """
        live, busy = self._chosen(engine.members.taking_part()), engine.members.busy()
        self._asked = {n: self._asked[n] for workers in busy.values() for n in workers}
        num_live, num_busy = sum(map(len, live.values())), len(self._asked)
        pauses = self._pauses_after(i, engine)
        if num_used >= num_live and not (pauses and num_busy):
            return False
        for host, workers in live.items():
            for worker in sorted(set(workers).difference(busy.get(host, ()))):
                is_of_next = num_used + num_busy >= num_live
                if not (pauses and is_of_next):
                    self._ask(i + is_of_next, host, worker, engine)
                    num_busy += 1
        engine.at(i)
        return num_busy > 0

    def _ask(self, i: int, host: int, worker: int, engine: Engine) -> None:
        sent = self._send_batches(i, engine, {host: [worker]})
        self._asked[worker] = _Asked(self._learner.set_aside(), sent, self._num_steps)

    def _use(self, i: int, answers: Answers, used: _Used, engine: Engine) -> None:
        """One optimizer step for each answer."""
        for worker in sorted(answers.singles):
            asked = self._asked.pop(worker)
            self._learner.put_first(asked.graph)
            staleness = self._num_steps - asked.num_steps
            with engine.span("aggregate"):
                feedback = {worker: answers.singles[worker]}
                self._aggregation.update_gradient(
                    self._learner, feedback, asked.sent.assignment, asked.sent.kappa
                )
            with engine.span("step"):
                self._learner.at(i, rate_scale(staleness))
                self._learner.step()
            self._num_steps += 1
            used.add(worker, answers.losses[worker], staleness)

    def _pauses_after(self, i: int, engine: Engine) -> bool:
        """Whether all workers must have answered at the end of an iteration."""
        if (
            self._swap_follows(i)
            or i == self._settings.training.iterations
            or engine.desk.stop_asked
        ):
            return True
        return engine.checkpoints.due(i - 1, i)
