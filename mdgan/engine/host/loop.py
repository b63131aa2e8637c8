"""A host: the process that carries one or more workers of any algorithm."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from mdgan import messages
from mdgan.engine.host import protocol
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.encoding import HostEncoding
from mdgan.engine.host.telling import HostReports
from mdgan.engine.host_keys import NotMasked, run_digest
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.errors import BadInput, Interrupted, one_line
from mdgan.messages import Kind, Message
from mdgan.privacy.attestation import Statement
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Asked, Lost, Received
from mdgan.transport.host_end import HostTransport

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0

Connect = Callable[[Mapping[str, Any], float], HostTransport]
"""Tries for some seconds to join with a hello; returns the link with the server.

It raises BadInput if no server lets this host in, and Interrupted if the user asked to stop.
"""


class ServerLost(RuntimeError):
    """The server is gone, and no other server has taken over."""


class HostFailed(RuntimeError):
    """This host cannot go on, for a reason that does not concern other hosts."""


class _LinkLost(Exception):
    """The link to the server is gone; the server itself may still be there."""


@dataclass
class Host:
    """Runs a host with any algorithm: it joins, answers, saves, comes back, leaves."""

    part: HostPart
    hello: Mapping[str, Any]
    connect: Connect
    timeouts: Timeouts
    describer: Describer
    checkpoints: HostCheckpoints
    reports: HostReports
    encoding: HostEncoding
    iterations: float = inf  # of the run

    def __post_init__(self) -> None:
        self._path, self._learners = self.part.path, self.part.learners
        self._tracer, self._teller = self.reports.tracer, self.reports.teller
        self._has_trained = False
        self._lacks: set[int] = set()
        self._of_algorithm = self.part.handlers()
        usual = {kind: protocol.Turn(above={kind: 0}) for kind in self._of_algorithm}
        rules = {**usual, **protocol.ENGINE, **self._path.rules, **self.part.rules}
        self._protocol = protocol.Protocol(rules, self.part.begins, self.iterations)
        self._handlers: dict[str, HostHandler] = {
            Kind.ASKCOUNTS: lambda message, to: to.send(self.encoding.answer(message, self._path)),
            Kind.LEARNT: lambda message, _: self.encoding.learn(message),
            Kind.EXTRACTOR: lambda message, _: self.describer.begin(message),
            Kind.CHECKPOINT: self._save,
            Kind.ADOPT: self._adopt,
            **self._path.handlers(self._tracer),
            **self._of_algorithm,
        }
        self._stopping = threading.Event()
        self._transport: HostTransport | None = None

    def run(self) -> None:
        """Answers the server until it sends STOP; looks for a server when the link is lost.

        Raises:
            BadInput: no server let this host in.
            Interrupted: the user asked this process, or the server, to stop early.
            ServerLost: the server is gone, and no other server has taken over.
            HostFailed: a sample could not be read, or the server shut this host out, or lies.
        """
        try:
            self._run()
        finally:
            if not self._has_trained:
                self.reports.tell_untrained()

    def _run(self) -> None:
        transport = self._transport = self.connect(self.hello, self.timeouts.connect)
        try:
            while True:
                try:
                    self._attend(transport)
                    return
                except _LinkLost as lost:
                    transport.close()
                    transport = self._transport = self._return(str(lost))
        except (NotMasked, protocol.OutOfTurn) as error:
            where = transport.server
            raise HostFailed(f"this host does not answer the server {where}: {error}") from error
        except BadInput as error:
            raise HostFailed(str(error)) from error
        finally:
            self.checkpoints.close()
            self.reports.close()
            self.part.close()
            transport.close()

    def interrupt(self) -> None:
        """Makes `run` leave the training; may be called from a signal handler."""
        self._stopping.set()
        if self._transport is not None:
            self._transport.interrupt()

    def _return(self, reason: str) -> HostTransport:
        if self._stopping.is_set():
            raise Interrupted
        if not self.timeouts.patience:
            raise ServerLost(f"the server is gone: {reason}")
        ranks = ", ".join(map(str, self._learners))
        _log.warning("rank %s lost the server (%s); looking for it", ranks, reason)
        begin = time.monotonic()
        try:
            transport = self.connect(self.hello, self.timeouts.patience)
        except BadInput as error:
            raise ServerLost(f"the server is gone: {reason}; {error}") from error
        away = time.monotonic() - begin
        _log.warning("rank %s is back after %.1f s", ranks, away)
        return transport

    def _attend(self, transport: HostTransport) -> None:
        """Tells a server which workers have states, and answers it until it sends STOP."""
        if self._stopping.is_set():  # `interrupt` reached only an earlier link
            transport.interrupt()
        welcome = transport.welcome
        self._protocol.attend(welcome)
        iteration = int(welcome["iteration"])
        self._tracer.clock_offset_seconds = transport.clock_offset_seconds
        self.hello = {**self.hello, "generation": welcome["generation"]}
        spending = self.reports.spending
        spending.attend(self.checkpoints.attend(welcome))
        holds = self._what_holds(welcome)
        told = {**self.part.tell(), **self.encoding.tell()}
        spending.over().tell(iteration, transport.send)
        key = self._path.begin(run_digest(welcome, self.hello["identity"]))
        transport.send(messages.ready(iteration, holds, told, key=key))
        self._lacks = set(self._learners) - set(holds)
        self.encoding.once_known(partial(self.part.arrived, holds))
        if self._teller is not None:
            self._teller.joined(welcome)
        while (message := self._next_message(transport)).kind != Kind.STOP:
            self._obey(message, transport)
        run = str(welcome.get("run_id", ""))
        known = Statement(run, self.hello["identity"], 0, learnt=self.encoding.learnt)
        self._stop(message, transport, known)

    @property
    def _state(self) -> protocol.State:
        if self._lacks:
            return protocol.State.LACKS
        return protocol.State.TRAINS if self.encoding.is_known else protocol.State.WAITS

    def _obey(self, message: Message, transport: HostTransport) -> None:
        kind = message.kind
        is_of_algorithm = kind in self._of_algorithm
        self._has_trained |= is_of_algorithm
        # An answer runs the user's code, which may raise anything; the user needs the whole error.
        with contextlib.nullcontext() if kind == self.part.begins else protocol.sensible(kind):
            self._handlers[kind](message, transport)
        if is_of_algorithm and self._tracer.due():
            self._tell_spans(transport)

    def _save(self, order: Message, transport: HostTransport) -> None:
        with self._tracer.span("checkpoint"):
            self.checkpoints.save(order, self._learners, transport.send)

    def _what_holds(self, welcome: Mapping[str, Any]) -> list[int]:
        """The workers that have states; the server finds states for the others."""
        newest = welcome.get("checkpoint")
        as_drawn = welcome["iteration"] == 0 and not welcome.get("brings_states")
        if self._has_trained or as_drawn:
            return list(self._learners)
        with protocol.sensible(Kind.WELCOME):
            return [] if newest is None else self.checkpoints.restore(newest, self._learners)

    def _next_message(self, transport: HostTransport) -> Message:
        """Waits for the next message; meanwhile computes statistics of real data if asked to."""
        while True:
            with self._tracer.span("receive") as span:
                event = transport.receive(0.0 if self.describer.busy else _LOOK_SECONDS)
                if isinstance(event, Received):
                    span.num_bytes = event.num_bytes
                    self._protocol.check(event.message, self._state)
                    if event.message.kind == self.part.begins:
                        self._tracer.iteration = event.message.iteration
                        if self._teller is not None:
                            self._teller.reached(event.message.iteration)
                    return event.message
            if isinstance(event, Lost):
                raise _LinkLost(event.reason)
            if isinstance(event, Asked):
                self._leave(transport)
            if self._tracer.due():  # also while nothing comes: the user sees which process waits
                self._tell_spans(transport)
            if self.describer.busy:
                with self._tracer.span("evaluate"):
                    answer = self.describer.step(self._tracer.iteration)
                if answer is not None:
                    transport.send(answer)

    def _leave(self, transport: HostTransport) -> None:
        """Leaves after all answers; tells before what was spent, and wanted states of workers."""
        iteration = self._tracer.iteration
        if transport.welcome.get("wants_states") and self.checkpoints.to_server:
            states = {rank: worker.state() for rank, worker in self._learners.items()}
            transport.send(messages.state(iteration, states, "leave"))
        self._tell_spans(transport, at_end=True)
        transport.send(messages.leave(iteration))
        raise Interrupted

    def _stop(self, message: Message, transport: HostTransport, known: Statement) -> None:
        self._tell_spans(transport, at_end=True)
        with protocol.sensible(message.kind):
            shut_out = message.fields["shut_out"]
            reason = one_line(message.fields["reason"])
        self.reports.attest(transport, message, known, workers=list(self._learners))
        if shut_out:
            raise HostFailed(reason)
        if reason:
            raise Interrupted(reason)
        if self._teller is not None:
            self._teller.done(self._tracer.iteration)

    def _adopt(self, message: Message, transport: HostTransport) -> None:
        """Loads the states that the server found for workers without one."""
        holds, brought = list(self._learners), self._path.adopted(message)
        if not brought.keys() <= self._lacks:
            raise protocol.OutOfTurn(protocol.NONE_LACKS)
        for rank, state in brought.items():
            try:
                self.part.adopt(rank, state)
            except (KeyError, RuntimeError):  # not of this architecture
                holds.remove(rank)
        self._lacks = set(self._learners) - set(holds)
        transport.send(messages.ready(message.iteration, holds))
        self.encoding.once_known(self.part.adopted)

    def _tell_spans(self, transport: HostTransport, *, at_end: bool = False) -> None:
        self.reports.send(transport, self.part.memory_bytes(), at_end=at_end)
