"""`--updates arrival`, MD-GAN without a barrier (Hardy et al. 2019, VII.1): G steps each answer."""

from collections.abc import Collection
from math import sqrt
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.families.mdgan.algorithm import Graph, Sent, ask, mean_feedback
from mdgan.families.mdgan.server import MDGANServer
from mdgan.families.mdgan.variants.ahead import GeneratorAhead


class _OpenQuestion(NamedTuple):
    """A question to one worker: its batches, their graph, and the steps that G had taken then."""

    graph: Graph
    sent: Sent
    num_steps: int


class _Used(NamedTuple):
    """An answer that G learnt from; `staleness` counts the steps of G since it made the batches."""

    worker: int
    feedback: Tensor
    losses: Tensor
    staleness: int


class ByArrival:
    """The form of an iteration in which G steps with each answer: no worker waits for another.

    The server generates batches for each worker alone, and sends new ones as soon as it has used
    the answer. With N live workers an iteration is N steps; a fast worker may answer several times
    in it. Before a swap, a checkpoint or the end the server waits for all answers.
    """

    def __init__(self) -> None:
        self._open: dict[int, _OpenQuestion] = {}
        self._num_steps = 0
        self._left_out: Collection[int] = ()  # attackers, whose answers the next iteration ignores

    def __call__(self, i: int, server: MDGANServer, engine: Engine) -> Advance | None:
        used: list[_Used] = []
        if not engine.peers.busy():
            self._open, self._num_steps = {}, 0
            server.await_hosts(i, engine)
        while self._ask_idle(i, len(used), server, engine=engine):
            self._use(i, engine.collector.next_answer(i), used, server=server, engine=engine)
        if not used:  # all workers were lost: the server repeats the iteration with newcomers
            return None
        feedbacks = {answer.worker: answer.feedback for answer in used}
        self._left_out = server.suspects.opposing(feedbacks, (), engine)
        if server.swap_follows(i):
            server.swap(i, engine)
        workers = sorted({answer.worker for answer in used})
        losses, staleness = [], {}
        for n in workers:
            losses.append(torch.stack([a.losses for a in used if a.worker == n]).mean(dim=0))
            steps = [answer.staleness for answer in used if answer.worker == n]
            staleness[n] = [fmean(steps), max(steps)]
        return Advance(i, torch.stack(losses), workers, measures={"staleness": staleness})

    def _ask_idle(self, i: int, num_used: int, server: MDGANServer, engine: Engine) -> bool:
        """Sends batches to idle workers, unless a pause follows; whether i needs more answers."""
        live, busy = server.judges(engine.peers.taking_part()), engine.peers.busy()
        self._open = {n: self._open[n] for workers in busy.values() for n in workers}
        num_live, num_busy = sum(map(len, live.values())), len(self._open)
        pauses = server.pauses_after(i, engine)
        if num_used >= num_live and not (pauses and num_busy):
            return False
        for host, workers in live.items():
            for worker in sorted(set(workers).difference(busy.get(host, ()))):
                is_of_next = num_used + num_busy >= num_live
                if not (pauses and is_of_next):
                    sent = ask(i + is_of_next, server, {host: [worker]}, engine)
                    graph = _learner(server).set_aside()
                    self._open[worker] = _OpenQuestion(graph, sent, self._num_steps)
                    num_busy += 1
        engine.at(i)
        return num_busy > 0

    def _use(
        self, i: int, answers: Answers, used: list[_Used], server: MDGANServer, engine: Engine
    ) -> None:
        learner = _learner(server)
        for worker in sorted(answers.singles):
            question = self._open.pop(worker)
            staleness = self._num_steps - question.num_steps
            used.append(_Used(worker, answers.singles[worker], answers.losses[worker], staleness))
            if worker in self._left_out:
                continue
            learner.put_first(question.graph)
            with engine.span("aggregate"):
                feedback, sent = {worker: answers.singles[worker]}, question.sent
                learner.backward(mean_feedback(feedback, sent.assignment, sent.plan.generated))
            with engine.span("step"):
                # N - 1 if N workers are equally fast: the rate falls with the square root of a
                # step's samples (Krizhevsky 2014).
                learner.at(i, 1 / sqrt(1 + staleness))
                learner.step()
            self._num_steps += 1


def _learner(server: MDGANServer) -> GeneratorAhead:
    assert isinstance(server.learner, GeneratorAhead), "feedback comes in any order"
    return server.learner
