"""The server and hosts of one machine that train in common memory (`shared_steps.SharedTraining`).

The server sends one question, and hosts then train one iteration after the other; the server writes
to the memory how far they may go. After a short while hosts part: they answer the question, and
listen to messages again. Only then can hosts join or leave, and save checkpoints.
"""

import contextlib
import os
import secrets
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import hypot
from typing import Any

import torch

from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts
from mdgan.engine.stages.contract import pack_answers
from mdgan.families.data_parallel.meeting import (
    END,
    GIVEN_UP,
    LOOKED_AT,
    SERVER,
    UNTIL,
    Order,
    why_left_out,
)
from mdgan.families.data_parallel.messages import TOGETHER_FORM, train_together
from mdgan.families.data_parallel.replica import ReferenceReplica, Replica
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.shared_network import BuffersInOne, LentModel
from mdgan.families.data_parallel.shared_steps import SharedTraining, Stepper
from mdgan.families.data_parallel.step import Reduction, reductions
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer

_TOGETHER_SECONDS = 0.5  # how long hosts train before they listen to messages again
_LISTEN_SECONDS = 0.2


class TogetherServer:
    """The server's side: it lets hosts begin iterations, and steps for hosts that die."""

    def __init__(
        self, replica: ReferenceReplica, shared: SharedTraining, settings: DataParallelSettings
    ) -> None:
        self._replica = replica
        self._shared = shared
        self._meeting = shared.meeting
        self._settings = settings
        self._scaling = settings.scaling()
        self._stepper = Stepper(shared)
        self._buffers = BuffersInOne(*replica.models.values())
        self._processes: dict[int, int] = {}  # host → a file descriptor of its process
        self._hosts: dict[int, list[int]] = {}  # the live hosts of the meeting, with their workers
        self._asked: Hosts = {}
        self._orders: dict[int, Order] = {}
        self._first = 0
        self._num_before = 0
        self._since = self._listened = 0.0
        self._take_in()

    @property
    def meets(self) -> bool:
        """Whether hosts train together now."""
        return bool(self._asked)

    def convene(self, iteration: int, hosts: Hosts, engine: Engine) -> None:
        """Asks hosts to train together from an iteration on, of which some steps may be done."""
        self._take_in()
        self._asked, self._first = dict(hosts), iteration
        self._hosts = {host: list(workers) for host, workers in hosts.items()}
        self._meeting.convene(hosts, iteration, self._num_before)
        self._orders = {}
        self._let_begin(iteration, engine)
        self._since = time.monotonic()
        engine.ask(iteration, hosts, lambda _: train_together(iteration))

    def advance(self, i: int, engine: Engine) -> Advance | None:
        """Lets hosts begin the next iteration, and waits for the end of this one."""
        try:
            return self._advance(i, engine)
        except BaseException:
            self.close()
            raise

    def _advance(self, i: int, engine: Engine) -> Advance | None:
        meeting = self._meeting
        engine.at(i)
        self._listen(engine)
        meeting.server[LOOKED_AT] = i - 1
        if (
            engine.stop_asked
            or i == self._settings.training.iterations
            or engine.checkpoint_due(i - 1, i)
            or engine.peers.taking_part().keys() != self._hosts.keys()
            or time.monotonic() - self._since > _TOGETHER_SECONDS
        ):
            meeting.server[END] = i
        else:
            self._let_begin(i + 1, engine)
        self._shared.wake(self._hosts)
        end = self._end_of(i)
        with engine.span("wait"):
            self._await(end, engine)
        order = self._orders.pop(i)
        if (reduced := int(meeting.given.max())) < end:  # all hosts are lost
            self._replica.num_done = order.first + max(0, reduced - order.before)
            self._part(reduced)
            return None
        self._replica.num_done = 0
        with engine.span("aggregate"):
            self._buffers.write(self._shared.mean_buffers)
            workers = self._judge(i, order, end, engine)
            losses = torch.from_numpy(meeting.losses(i, workers))
        if meeting.server[END] == i:
            self._hosts = {}  # hosts write to the memory no more
            engine.collector.collect(self._first, self._asked, form=TOGETHER_FORM)
            self._part(end)
        else:
            engine.peers.attendance.answered(workers)
        return Advance(i, losses, workers)

    def on_lost(self, engine: Engine) -> None:
        """Ends the processes of lost hosts, so that no other waits; `_await` takes their steps."""
        live = engine.peers.hosts()
        for host in [host for host in self._hosts if host not in live]:
            self._end_process(host)
            del self._hosts[host]
            for i, order in self._orders.items():
                if self._meeting.num_stepped(host) < order.before:  # no host can have begun i
                    self._orders[i] = self._ordered(order.before, order.first, engine)
                    self._meeting.write_order(i, self._orders[i])
            self._meeting.bury(host)
            self._shared.wake(self._shared.hosts)

    def close(self) -> None:
        """Has hosts part at once, and closes the handles of their processes."""
        self._meeting.server[GIVEN_UP] = 1
        self._shared.wake(self._shared.hosts)
        for descriptor in self._processes.values():
            os.close(descriptor)
        self._processes = {}

    # How far hosts may go.

    def _let_begin(self, i: int, engine: Engine) -> None:
        first = 0 if self._orders else self._replica.num_done
        before = max((self._end_of(n) for n in self._orders), default=self._num_before)
        self._orders[i] = self._ordered(before, first, engine)
        self._meeting.write_order(i, self._orders[i])
        self._meeting.server[UNTIL] = i

    def _ordered(self, before: int, first: int, engine: Engine) -> Order:
        live = engine.peers.taking_part()
        workers = sorted(n for host in self._hosts for n in live.get(host, ()))
        shares = self._scaling.shares(workers, DISCRIMINATOR) if workers else {}
        rates = self._scaling.rates(dict.fromkeys((DISCRIMINATOR, GENERATOR), shares))
        return Order(before, first, rates, shares=shares)

    def _reductions(self, i: int) -> list[Reduction]:
        lag = self._settings.asynchrony.lag_at(i)
        return reductions(lag, self._settings.training.local_steps)[self._orders[i].first :]

    def _end_of(self, i: int) -> int:
        return self._orders[i].before + len(self._reductions(i))

    # Hosts that are slow or lost.

    def _await(self, end: int, engine: Engine) -> None:
        """Waits until a reduction is over, or all hosts are lost; takes the steps of lost hosts."""
        meeting = self._meeting
        since = time.monotonic()
        before = -1

        def is_over() -> bool:
            return not self._hosts or meeting.have_stepped(end)

        while True:
            is_due = self._shared.wait(SERVER, lambda: is_over() or bool(self._undone(end)))
            for host, q in self._undone(end):
                i = next(i for i in sorted(self._orders) if q <= self._end_of(i))
                order = self._orders[i]
                self._stepper.step(host, q, i, self._reductions(i)[q - order.before - 1], order)
                self._meeting.step(host, q)
                self._shared.wake(self._hosts)
            if is_over() and not self._undone(end):
                return
            if is_due:
                continue
            self._listen(engine)
            if (done := int(meeting.given.sum() + meeting.stepped.sum())) != before:
                since, before = time.monotonic(), done
            elif time.monotonic() - since > engine.answer_seconds:
                for host in meeting.slowest(self._hosts):
                    engine.peers.give_up_on(host, engine.answer_seconds)
                engine.handle_losses()

    def _undone(self, end: int) -> list[tuple[int, int]]:
        """The hosts that died before they had stepped a reduction up to `end`, and which one."""
        owed = [(host, self._meeting.owes_step(host)) for host in self._shared.hosts]
        return [(host, q) for host, q in owed if 0 < q <= end and self._meeting.have_given(q)]

    def knows(self, host: int, engine: Engine) -> bool:
        """Whether a host has the memory; opens a handle by which the server can end its process."""
        hello = engine.peers.told().get(host, {})
        token, process = hello.get("memory"), hello.get("process")
        if not isinstance(token, str) or type(process) is not int or process < 1:
            return False
        if not secrets.compare_digest(token.encode(), self._shared.token.encode()):
            return False
        if host not in self._processes:
            try:
                self._processes[host] = os.pidfd_open(process)
            except OSError:  # the host has just died
                return False
        return True

    def _end_process(self, host: int) -> None:
        """Kills a lost host's process, which may only have stood still: it must write no more."""
        descriptor = self._processes.pop(host)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll()
        finally:
            os.close(descriptor)

    def _listen(self, engine: Engine) -> None:
        if time.monotonic() - self._listened < _LISTEN_SECONDS:
            return
        self._listened = time.monotonic()
        engine.take_in(engine.transport.receive(0.0))

    # The server's networks.

    def _take_in(self) -> None:
        for name, network in self._shared.networks.items():
            network.take_in(self._replica.networks[name])

    def _part(self, num_before: int) -> None:
        """Updates the server's optimizers to the hosts' steps, and forgets the meeting."""
        for name, network in self._shared.networks.items():
            network.tell(self._replica.networks[name])
        self._num_before = num_before
        self._asked = {}
        self._hosts = {}
        self._orders = {}

    def _judge(self, i: int, order: Order, end: int, engine: Engine) -> list[int]:
        """Counts strikes; returns the workers whose gradients count, or all if none do."""
        members, refused = self._meeting.members(end), self._meeting.refusals(i)
        workers = [n for n in order.shares if self._meeting.host_of[n] in members]
        for worker in workers:
            if worker in refused:
                engine.peers.strikes.refuse(worker)
                engine.peers.refused(worker, why_left_out(refused[worker]))
            else:
                engine.peers.strikes.accept(worker)
        engine.handle_losses()
        return [n for n in workers if n not in refused] or workers


class _Parted(Exception):
    """The server is lost, or has ended the meeting."""


@dataclass(eq=False)
class TogetherHost:
    """The host's side: its workers train iterations until the server has all hosts part."""

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
        models_of = {worker: replica.models for worker, replica in self.replicas.items()}
        self._buffers = {n: BuffersInOne(*models.values()) for n, models in models_of.items()}
        self._is_lent = False
        self._server_is_gone: Callable[[], bool] = lambda: False
        self._losses = dict.fromkeys(self.replicas, torch.zeros(2))

    def tell(self) -> dict[str, Any]:
        """For `TogetherServer.knows`: the token of the memory, and this process's id."""
        return {"memory": self.shared.token, "process": os.getpid()}

    def take_back(self) -> None:
        """Gives the workers private weights again."""
        if self._is_lent:
            for lent in self._lent.values():
                for model in lent.values():
                    model.take_back()
        self._is_lent = False

    def train(self, iteration: int, server_is_gone: Callable[[], bool]) -> Message:
        """Trains from an iteration on, until the server has hosts part; returns the answer."""
        self._server_is_gone = server_is_gone
        meeting, i = self._meeting, iteration
        for lent in self._lent.values():
            for model in lent.values():
                model.lend()
        self._is_lent = True
        # If hosts part, this host learns why from the server's next message, or from its loss.
        with contextlib.suppress(_Parted):
            self._wait_to_begin(i)
            while i <= meeting.server[END]:
                self.tracer.iteration = i
                self._iterate(i)
                i += 1
                self._wait_to_begin(i)
        empty = dict.fromkeys(self.replicas, torch.zeros(TOGETHER_FORM.shape))
        groups = dict.fromkeys(empty, 0)
        return pack_answers(iteration, empty, self._losses, groups=groups, form=TOGETHER_FORM)

    def _wait_to_begin(self, i: int) -> None:
        server = self._meeting.server
        self._wait(lambda: i <= server[UNTIL] or i > server[END])

    def _iterate(self, i: int) -> None:
        order, meeting = self._meeting.order_for(i), self._meeting
        lag = self.settings.asynchrony.lag_at(i)
        remaining = reductions(lag, self.settings.training.local_steps)[order.first :]
        for q, reduction in enumerate(remaining, order.before + 1):
            self._find_gradients(i, reduction, order, lag=lag)
            meeting.give(self.host, q)
            self.shared.wake(self._others)
            with self.tracer.span("receive"):
                self._wait(partial(meeting.have_given, q))
                if reduction.last:  # the server may still read the generator, which now changes
                    self._wait(lambda: meeting.server[LOOKED_AT] >= i - 1)
            with self.tracer.span("step"):
                self._stepper.step(self.host, q, i, reduction, order)
            meeting.step(self.host, q)
            self.shared.wake(self._others)
            if reduction.last and meeting.have_stepped(q):
                self.shared.wake([SERVER])
            self._wait(partial(meeting.have_stepped, q))
        if remaining:
            for vector in self._buffers.values():
                vector.write(self.shared.mean_buffers)

    def _find_gradients(self, i: int, reduction: Reduction, order: Order, lag: int) -> None:
        for worker, replica in self.replicas.items():
            if worker not in order.shares:
                continue
            share, stage = order.shares[worker], self.tracer.of_worker(worker)
            losses = replica.learn(reduction, share.batch_sizes, lag, stage)
            with self.tracer.span("send"):
                models = [self._lent[worker][name] for name in reduction.networks]
                norms = [float(torch.linalg.vector_norm(model.lay_down())) for model in models]
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
