"""A host: the process that carries one or more workers of any algorithm."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from mdgan import messages
from mdgan.data.fetching import Fetcher
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.spending import Spending
from mdgan.engine.host.telling import Teller
from mdgan.engine.host_keys import SEALED, NotMasked, run_digest
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.errors import BadInput, Interrupted, one_line
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer, memory_bytes
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Asked, Lost, Received
from mdgan.transport.host_end import HostTransport

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0

Connect = Callable[[Mapping[str, Any], float], HostTransport]
"""Takes a hello and the seconds to try for; returns a link with the server.

It raises BadInput if no server lets this host in, and Interrupted if it was asked to stop.
"""


class ServerLost(RuntimeError):
    """The server is gone, and no other server has taken over."""


class HostFailed(RuntimeError):
    """A host cannot go on, for a reason of its own; the others can."""


class _LinkLost(Exception):
    """The link to the server is gone; the server itself may still be there."""


class Host:
    """What a host does, whatever the algorithm: it joins, answers, saves, comes back, leaves.

    Args:
        part: what the algorithm adds, with the workers.
        hello: what the server is told; see `make_hello`.
        connect: links this host with the server.
        timeouts: the time limits.
        describer: tells of the real data, if the server wants scores.
        checkpoints: writes the workers' states.
        tracer: records what this host does when.
        fetcher: reads its workers' samples ahead.
        teller: tells the user, if the server does not do so on this machine.
        spending: of its workers' samples.
    """

    def __init__(
        self,
        part: HostPart,
        hello: Mapping[str, Any],
        connect: Connect,
        timeouts: Timeouts,
        describer: Describer,
        checkpoints: HostCheckpoints,
        tracer: Tracer,
        fetcher: Fetcher,
        teller: Teller | None = None,
        spending: Spending | None = None,
    ) -> None:
        self._part = part
        self._spending = spending or Spending({})
        self._learners = part.learners
        self._hello = dict(hello)
        self._connect = connect
        self._timeouts = timeouts
        self._describer = describer
        self._checkpoints = checkpoints
        self._tracer = tracer
        self._fetcher = fetcher
        self._teller = teller
        self._has_trained = False
        self._lacks: set[int] = set()
        self._of_algorithm = part.handlers()
        self._of_engine: dict[str, HostHandler] = {
            Kind.EXTRACTOR: lambda message, _: describer.begin(message),
            Kind.CHECKPOINT: self._save,
            Kind.ADOPT: self._adopt,
            Kind.KEYS: self._learn_keys,
            Kind.SURVIVORS: self._confirm,
            Kind.UNMASK: self._reveal,
        }
        self._stopping = threading.Event()
        self._transport: HostTransport

    def run(self) -> None:
        """Answers the server until it says stop; looks for it when it is gone.

        Raises:
            BadInput: no server let this host in.
            Interrupted: this process, or the server, was asked to stop before the last iteration.
            ServerLost: the server is gone, and no other server has taken over.
            HostFailed: a sample could not be read, or the server has shut this host out.
        """
        self._transport = self._connect(self._hello, self._timeouts.connect)
        try:
            while True:
                try:
                    self._attend()
                    return
                except _LinkLost as lost:
                    self._transport.close()
                    self._return(str(lost))
        except NotMasked as error:
            raise HostFailed(f"this host does not answer the server: {error}") from error
        except BadInput as error:
            raise HostFailed(str(error)) from error
        finally:
            self._checkpoints.close()
            self._fetcher.close()
            self._part.close()
            self._spending.close()
            self._transport.close()

    def interrupt(self) -> None:
        """Makes `run` leave; may be called from a signal handler."""
        self._stopping.set()
        if hasattr(self, "_transport"):
            self._transport.interrupt()

    def _return(self, reason: str) -> None:
        """Looks for the server, or the one that has taken over; the workers stay as they are."""
        if self._stopping.is_set():
            raise Interrupted
        if not self._timeouts.patience:
            raise ServerLost(f"the server is gone: {reason}")
        ranks = ", ".join(map(str, self._learners))
        _log.warning("rank %s lost the server (%s); looking for it", ranks, reason)
        begin = time.monotonic()
        try:
            self._transport = self._connect(self._hello, self._timeouts.patience)
        except BadInput as error:
            raise ServerLost(f"the server is gone: {reason}; {error}") from error
        away = time.monotonic() - begin
        _log.warning("rank %s is back after %.1f s", ranks, away)

    def _attend(self) -> None:
        """Arrives at a server and answers it until it says stop."""
        if self._stopping.is_set():  # the link that was told of it is gone
            self._transport.interrupt()
        welcome = self._transport.welcome
        self._tracer.clock_offset_seconds = self._transport.clock_offset_seconds
        self._hello["generation"] = welcome["generation"]
        self._spending.attend(self._checkpoints.attend(welcome))
        holds = self._what_holds(welcome)
        told = self._part.tell()
        self._spending.over().tell(int(welcome["iteration"]), self._transport)
        masks = self._part.masks
        key = None if masks is None else masks.begin(run_digest(welcome, self._hello["identity"]))
        self._transport.send(messages.ready(int(welcome["iteration"]), holds, told, key))
        self._lacks = set(self._learners) - set(holds)
        self._part.arrived(holds)
        if self._teller is not None:
            self._teller.joined(welcome)
        while (message := self._next_message()).kind != Kind.STOP:
            if message.kind in self._of_algorithm:
                self._of_algorithm[message.kind](message, self._transport)
                self._has_trained = True
                if self._tracer.due():
                    self._tell_spans()
            elif message.kind in self._of_engine:
                self._of_engine[message.kind](message, self._transport)
        self._stop(message)

    def _what_holds(self, welcome: Mapping[str, Any]) -> list[int]:
        """The workers that can go on as they are; the server finds states for the others.

        Those of a host that comes back can, and before the first iteration those of every host,
        unless the run begins with weights that the server brings.
        """
        newest = welcome.get("checkpoint")
        as_drawn = welcome["iteration"] == 0 and not welcome.get("brings_states")
        if self._has_trained or as_drawn:
            return list(self._learners)
        return [] if newest is None else self._checkpoints.restore(newest, self._learners)

    def _next_message(self) -> Message:
        """Waits for the next message, and meanwhile describes the real data if asked to."""
        while True:
            with self._tracer.span("receive") as span:
                event = self._transport.receive(0.0 if self._describer.busy else _LOOK_SECONDS)
                if isinstance(event, Received):
                    span.num_bytes = event.num_bytes
                    if event.message.kind == self._part.begins:
                        self._tracer.iteration = event.message.iteration
                        if self._teller is not None:
                            self._teller.reached(event.message.iteration)
                    return event.message
            if isinstance(event, Lost):
                raise _LinkLost(event.reason)
            if isinstance(event, Asked):
                self._leave()
            if self._tracer.due():  # in a stall, too: it shows the user which process waits
                self._tell_spans()
            if self._describer.busy:
                with self._tracer.span("evaluate"):
                    answer = self._describer.step(self._tracer.iteration)
                if answer is not None:
                    self._transport.send(answer)

    def _leave(self) -> None:
        """Leaves, after all answers; first sends its workers' states if the server wants them."""
        iteration = self._tracer.iteration
        if self._transport.welcome.get("wants_states") and self._part.masks is None:
            states = {rank: worker.state() for rank, worker in self._learners.items()}
            self._transport.send(messages.state(iteration, states, "leave"))
        self._transport.send(messages.leave(iteration))
        raise Interrupted

    def _stop(self, message: Message) -> None:
        self._tell_spans(at_end=True)
        if message.fields["shut_out"]:
            raise HostFailed(one_line(message.fields["reason"]))
        if message.fields["reason"]:
            raise Interrupted(one_line(message.fields["reason"]))
        if self._teller is not None:
            self._teller.done(self._tracer.iteration)

    def _save(self, order: Message, transport: HostTransport) -> None:
        if order.fields["to_server"] and self._part.masks is not None:
            raise NotMasked("it wants states of workers, which tell what each has answered")
        with self._tracer.span("checkpoint"):
            self._checkpoints.save(order, self._learners, transport.send)

    def _learn_keys(self, message: Message, _transport: HostTransport) -> None:
        if self._part.masks is not None:
            self._part.masks.keys.learn(message.fields["keys"])

    def _confirm(self, order: Message, transport: HostTransport) -> None:
        if self._part.masks is not None:
            transport.send(self._part.masks.confirm(order))

    def _reveal(self, order: Message, transport: HostTransport) -> None:
        if self._part.masks is not None:
            with self._tracer.span("send"):
                transport.send(self._part.masks.reveal(order))
            self._part.masks.revealed()

    def _adopt(self, message: Message, transport: HostTransport) -> None:
        """Takes over what the server found for those workers that had nothing to go on with."""
        holds, brought = list(self._learners), self._brought(message)
        if self._part.masks is not None and not brought.keys() <= self._lacks:
            # With networks of its choice in all others, the sum would be what one has answered.
            raise NotMasked("it gives states to workers that lack none")
        for rank, state in brought.items():
            try:
                self._part.adopt(rank, state)
            except (KeyError, RuntimeError):  # not of this architecture
                holds.remove(rank)
        self._lacks = set(self._learners) - set(holds)
        transport.send(messages.ready(message.iteration, holds))
        self._part.adopted()

    def _brought(self, message: Message) -> Mapping[int, Mapping[str, Tensor]]:
        """States by worker: the server's, or one that another host has sealed for this one."""
        masks, fields = self._part.masks, message.fields
        if masks is None or SEALED not in message.tensors:
            return messages.by_worker(message)
        copy: dict[str, Tensor] = {}  # fits no model
        try:
            state = masks.keys.unseal_message(
                *(fields["giver"], Kind.STATE, fields["given"], message.tensors[SEALED])
            )
            (found,) = messages.by_worker(state).values()
            copy = {name: t for name, t in found.items() if name.startswith(fields["prefix"])}
        except ValueError as error:
            _log.warning("a copy for rank(s) %s is refused: %s", fields["workers"], error)
        return dict.fromkeys(fields["workers"], copy)

    def _tell_spans(self, *, at_end: bool = False) -> None:
        traffic, iteration = self._transport.traffic, self._tracer.iteration
        rows = self._tracer.take()
        own = memory_bytes() if self._tracer.records else 0  # it follows what samples are
        memory = own + self._part.memory_bytes() if own else 0
        told = rows, traffic.sent, traffic.received, memory
        fetching = self._fetcher.tell(at_end=at_end)
        profile = self._tracer.profile(at_end=at_end)
        spent = self._spending.told(exactly=at_end)
        self._transport.send(messages.spans(iteration, *told, fetching, profile, spent))
