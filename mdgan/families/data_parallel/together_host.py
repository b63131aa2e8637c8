"""Workers of one machine that train together: gradients and weights lie in common memory."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import hypot
from typing import Any

import torch

from mdgan.engine.answers import pack_answers
from mdgan.families.data_parallel.meeting import END, GIVEN_UP, LOOKED_AT, SERVER, UNTIL, Order
from mdgan.families.data_parallel.messages import TOGETHER_FORM
from mdgan.families.data_parallel.replica import Replica
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.shared_network import BuffersInOne, LentModel
from mdgan.families.data_parallel.shared_steps import SharedTraining, Stepper
from mdgan.families.data_parallel.step import Reduction, reductions
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer


class _Parted(Exception):
    """The server is gone, or has given up."""


@dataclass(eq=False)
class TogetherHost:
    """A host's workers, as they meet those of others."""

    host: int
    replicas: Mapping[int, Replica]
    shared: SharedTraining
    settings: DataParallelSettings
    tracer: Tracer

    def __post_init__(self) -> None:
        self._meeting = self.shared.meeting
        self._others = [other for other in self.shared.hosts if other != self.host]
        self._stepper = Stepper(self.shared)
        self._lent = {
            worker: {
                name: LentModel(self.shared.networks[name], model, worker)
                for name, model in replica.models.items()
            }
            for worker, replica in self.replicas.items()
        }
        self._buffers = {
            worker: BuffersInOne(*replica.models.values())
            for worker, replica in self.replicas.items()
        }
        self._is_lent = False
        self._server_is_gone: Callable[[], bool] = lambda: False
        self._losses = dict.fromkeys(self.replicas, torch.zeros(2))

    def tell(self) -> dict[str, Any]:
        """What shows the server that this process has the memory, and by which it can end it."""
        return {"memory": self.shared.token, "process": os.getpid()}

    def take_back(self) -> None:
        """The workers have weights of their own again."""
        if self._is_lent:
            for lent in self._lent.values():
                for model in lent.values():
                    model.take_back()
        self._is_lent = False

    def train(self, iteration: int, server_is_gone: Callable[[], bool]) -> Message:
        """Trains from an iteration on, until the server lets the hosts part; returns the answer."""
        self._server_is_gone = server_is_gone
        meeting, i = self._meeting, iteration
        for lent in self._lent.values():
            for model in lent.values():
                model.lend()
        self._is_lent = True
        try:
            self._wait_to_begin(i)
            while i <= meeting.server[END]:
                self.tracer.iteration = i
                self._iterate(i)
                i += 1
                self._wait_to_begin(i)
        except _Parted:
            pass  # the server's next message, or the loss of it, says why
        nothing = dict.fromkeys(self.replicas, torch.zeros(TOGETHER_FORM.shape))
        return pack_answers(
            iteration, nothing, self._losses, dict.fromkeys(nothing, 0), TOGETHER_FORM
        )

    def _wait_to_begin(self, i: int) -> None:
        server = self._meeting.server
        self._wait(lambda: i <= server[UNTIL] or i > server[END])

    def _iterate(self, i: int) -> None:
        order, meeting = self._meeting.order_for(i), self._meeting
        lag = self.settings.asynchrony.lag_at(i)
        left = reductions(lag, self.settings.training.local_steps)[order.first :]
        for q, reduction in enumerate(left, order.before + 1):
            self._find_gradients(i, reduction, order, lag)
            meeting.give(self.host, q)
            self.shared.wake(self._others)
            with self.tracer.span("receive"):
                self._wait(partial(meeting.have_given, q))
                if reduction.last:  # it changes what the server may still be looking at
                    self._wait(lambda: meeting.server[LOOKED_AT] >= i - 1)
            with self.tracer.span("step"):
                self._stepper.step(self.host, q, i, reduction, order)
            meeting.step(self.host, q)
            self.shared.wake(self._others)
            if reduction.last and meeting.have_stepped(q):
                self.shared.wake([SERVER])
            self._wait(partial(meeting.have_stepped, q))
        if left:
            for vector in self._buffers.values():
                vector.write(self.shared.mean_buffers)

    def _find_gradients(self, i: int, reduction: Reduction, order: Order, lag: int) -> None:
        for worker, replica in self.replicas.items():
            if worker not in order.shares:
                continue
            share, stage = order.shares[worker], self.tracer.of_worker(worker)
            losses = replica.learn(reduction, share.batch_sizes, lag, stage)
            with self.tracer.span("send"):
                lent = [self._lent[worker][name] for name in reduction.networks]
                norms = [float(torch.linalg.vector_norm(model.lay_down())) for model in lent]
                if reduction.last:
                    self._buffers[worker].read(self.shared.buffers[worker])
                self._losses[worker] = losses
                self._meeting.note(i, worker, reduction, hypot(*norms), losses.tolist())

    def _wait(self, is_over: Callable[[], bool]) -> None:
        while not self.shared.wait(self.host, is_over):
            if self._meeting.server[GIVEN_UP] or self._server_is_gone():
                raise _Parted
        if self._meeting.server[GIVEN_UP]:
            raise _Parted
