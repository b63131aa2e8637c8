"""The engine of a run on the server: asks hosts, waits, and handles every event that comes."""

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf

from typing_extensions import override

from mdgan import messages
from mdgan.engine.parts import Trainer
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.collecting import Collector
from mdgan.engine.server.encoding import ServerEncoding
from mdgan.engine.server.engine import AllWorkersLost, Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.server.newcomers import Newcomers
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.scoring import ScorerLink, Scoring
from mdgan.engine.settings import RunSettings
from mdgan.errors import Interrupted
from mdgan.messages import Kind, Message
from mdgan.observe.timelines import Timelines
from mdgan.spelling import count
from mdgan.storage.state_file import Damaged
from mdgan.timeouts import Timeouts
from mdgan.transport.base import SLOWED, Asked, Joined, Lost, Received, ServerEvent, Visited

NONSENSE = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    Damaged,
)
"""Errors that reading a malformed message may raise."""

_LOOK_SECONDS = 0.1
_HURRY_SECONDS = 0.5


@dataclass
class RunningEngine(Engine):
    """The server's engine. Families and stages see only the methods of `Engine`."""

    trainer: Trainer
    settings: RunSettings
    peers: Peers
    checkpoints: ServerCheckpoints
    scorer: ScorerLink
    timeouts: Timeouts
    encoding: ServerEncoding

    def __post_init__(self) -> None:
        peers, settings = self.peers, self.settings
        self.part = self.trainer.part
        self.done = peers.iteration
        self.stop_asked = self.all_failed = False
        self.transport = peers.transport
        self.observer = peers.observer
        self.scoring = Scoring(self.scorer, settings, peers)
        self.answer_seconds = self.timeouts.answer
        self._makes_checkpoints = bool(settings.checkpoints.checkpoint_interval)
        self._hurries = self._any_spent = False
        self._spent: dict[int, float] = {}  # worker → ε; these workers will answer once more
        masks = self.part.path is not None and self.part.path.hides_answers
        self._newcomers = Newcomers(peers, self.checkpoints.kept, self.part.copied, gives=not masks)
        self._timelines = Timelines(
            peers.observer, peers.admission.carried, settings.training.iterations
        )
        self._part_handlers = self.part.handlers()
        self.collector = Collector(self, self.part, settings, limits=self.timeouts)

    # Called by algorithms.

    @override
    def held_classes(self) -> list[Sequence[int]]:
        if (learnt := self.encoding.kind.class_counts) is not None:
            return [learnt.tolist()]
        return [holding["classes"] for holding in self.peers.holdings().values()]

    def ask(self, iteration: int, asked: Hosts, question: Callable[[int], Message]) -> None:
        with self.span("send") as sending:
            for host in asked:
                sending.num_bytes += self.transport.send(host, question(host))
        self.peers.owe(asked, iteration)

    def await_hosts(self) -> Hosts:
        self.stop_if_asked()
        live, patience = workers_of(self.peers.taking_part()), self.timeouts.patience
        newest = None
        if not live:
            self.save(alone=True)
        if missing := self.collector.lacking(live):
            newest = self.checkpoints.newest()
            self.note(
                f"{missing} are gone at iteration {self.done + 1}; waiting {patience:g} s for one "
                "to come back, or to join (mdgan join)"
            )

        def can_replace(rank: int) -> bool:
            return bool(missing and live) and not self.collector.lacking([*live, rank])

        with self.peers.admission.awaiting(newest, can_replace):
            hosts = self.collector.await_enough(time.monotonic() + patience)
        self.stop_if_asked()
        if not hosts:
            missing = self.collector.lacking(workers_of(self.peers.taking_part()))
            within = "" if self.all_failed else f" within {patience:g} s"
            problem = f"{missing} are gone at iteration {self.done + 1}"
            raise AllWorkersLost(f"{problem}, and none came{within}")
        return hosts

    def poll(self) -> None:
        while (event := self.transport.receive(0.0)) is not None:
            self.take_in(event)
        self.stop_if_asked()

    # Events.

    def take_in(self, event: ServerEvent | None) -> None:
        match event:
            case Received():
                self._hear(event.sender, event.message)
            case Joined():
                if self.peers.member(event.host) is not None:  # its old link was not seen to end
                    self.peers.cut_off(event.host, "it opened a new link")
                    self.handle_losses()
                self.peers.joined(event.host, event.hello)
            case Lost(lied=True):
                self.peers.blame(event.peer, event.reason)
            case Lost():
                self.peers.cut_off(event.peer, event.reason)
            case Visited():
                if self.peers.admission.heard_of_successor():  # a host said so; the folder tells
                    self._look_at_fence()
                if event.is_refused:
                    self.note(f"refused a host: {event.told}")
                elif event.visitor.purpose == SLOWED:
                    self.note(f"slowed down a host: {event.told}")
                elif not event.told.startswith("answered"):  # why a host cannot join
                    self.note(event.told)
                outcome = f"refused: {event.told}" if event.is_refused else event.told
                self.observer.visited(outcome, self.peers.iteration, event.visitor)
            case Asked():
                self._hurries = self.stop_asked
                if self._hurries or not self.peers.has_begun:
                    raise Interrupted
                self.stop_asked = True
                self.note("stopping when this is done and saved; Ctrl-C again: at once")
            case None:  # perhaps all hosts have joined another server
                self._look_at_fence()
        self.peers.make_room()
        self.handle_losses()
        self._newcomers.serve()

    @override
    def handle_losses(self) -> None:
        while self.peers.losses_to_handle():
            self.collector.on_lost()
            self.part.on_lost(self)
            self.checkpoints.on_lost()
            self.scoring.on_lost()
            self.encoding.on_lost(self)
            self._newcomers.on_lost()
            self._newcomers.serve()

    def _hear(self, host: int, message: Message) -> bool:
        """Handles a message; drops its sender, and returns False, if the message is malformed."""
        try:
            self._understand(host, message)
        except NONSENSE as error:
            self.peers.blame(host, f"its {message.kind} message makes no sense ({error!r:.99})")
            return False
        return True

    def _understand(self, host: int, message: Message) -> None:
        """Passes a message to the component that handles its kind."""
        match message.kind:
            case Kind.READY:
                self.encoding.tell_learnt(host, self)
                self._newcomers.ready(host, message)
            case Kind.STATE if message.fields["purpose"] == "copy":
                self._newcomers.pass_on(host, message)
            case Kind.STATE:
                self.checkpoints.note_states(host, message)
            case Kind.CHECKPOINTED:
                self.checkpoints.note_written(host, message)
            case Kind.REAL:
                self.scoring.note_real(host, message)
            case Kind.SPANS:
                self._timelines.note_spans(host, message)
            case Kind.SPENT:
                self._note_spent(host, message)
            case Kind.ATTEST:
                self.peers.attested(host, message)
            case Kind.LEAVE:
                self.peers.leave(host)
            case kind if kind in self._part_handlers:
                self._part_handlers[kind](self, host, message)

    def _look_at_fence(self) -> None:
        with contextlib.suppress(OSError):
            self.checkpoints.fence.check()

    def _note_spent(self, host: int, message: Message) -> None:
        epsilon = {int(worker): float(e) for worker, e in message.fields["epsilon"].items()}
        carried = self.peers.admission.carried(host)
        self._spent |= {n: epsilon[n] for n in carried if n in epsilon and 0 <= epsilon[n] < inf}
        member = self.peers.member(host)
        if member is not None and member.arriving:  # the server has asked it nothing yet
            self.retire_spent(carried)

    def retire_spent(self, workers: Collection[int] | None = None) -> None:
        """Retires workers, by default all, whose privacy budgets are spent.

        Where workers answer only once (`tells_once`), they stay until their hosts have sent the
        statistics for scores.
        """
        if self.settings.tells_once and not self.scoring.described():
            return
        spent = {n: e for n, e in self._spent.items() if workers is None or n in workers}
        self._spent = {n: e for n, e in self._spent.items() if n not in spent}
        i = self.peers.iteration
        for worker in sorted(spent.keys() & set(self.peers.workers())):
            self._any_spent = True
            after = count(i, "iteration")
            why = f"has spent its privacy budget ε = {spent[worker]:.3g} after {after}"
            if self.settings.tells_once:
                why = f"has told all that it tells (ε = {spent[worker]:.3g}) and goes home"
            self.peers.retire(worker, why)
            self.observer.spent(i, {worker: spent[worker]}, {})  # its own report may come too late
        self.handle_losses()

    @property
    def all_spent(self) -> bool:
        """Whether no worker is left to train, since budgets are spent."""
        return self._any_spent and not self.peers.hosts() and not self.settings.tells_once

    # Saving and ending.

    def save(self, *, alone: bool = False) -> None:
        if not self._makes_checkpoints:
            return
        with self.span("checkpoint"):
            save = self.checkpoints.save_alone if alone else self.checkpoints.order
            save(self.done, self.part.progress(), self.trainer.state())

    def checkpoint_due(self, before: int, iteration: int, *, ends: bool = False) -> bool:
        return self.checkpoints.due(before, iteration, ends=ends)

    def stop_if_asked(self) -> None:
        """Makes a checkpoint and raises `Interrupted` if the user has asked to stop."""
        if not self.stop_asked:
            return
        if self._makes_checkpoints:
            self.await_files()
            if not self.peers.workers() or self.checkpoints.ordered != self.done:
                self.save(alone=not self.peers.workers())
            self.await_reports()
        raise Interrupted

    def await_files(self) -> None:
        """Waits until workers have written the newest ordered checkpoint."""
        while self.checkpoints.waits():
            self.collector.take_one(_LOOK_SECONDS)

    def await_reports(self, also: Callable[[], bool] = lambda: False) -> None:
        """Waits until all hosts have saved their workers and `also` returns False.

        Raises:
            Interrupted: the user has asked the server once more to stop.
        """
        deadline = time.monotonic() + self.timeouts.answer
        while time.monotonic() < deadline and (also() or not self.checkpoints.complete()):
            self.collector.take_one(_LOOK_SECONDS)

    def see_off(self, reason: str) -> None:
        """Tells every host to stop, handles its last messages, and closes the transport."""
        statement = self.peers.statement(self.done, self.trainer.shown)
        stop = messages.stop(self.done, reason, said=statement)
        hosts = self.peers.dismiss_all(stop)
        farewell = self.timeouts.farewell
        deadline = time.monotonic() + (min(farewell, _HURRY_SECONDS) if self._hurries else farewell)
        while hosts and (left := deadline - time.monotonic()) > 0:
            match self.transport.receive(left):
                case Received(sender, message):
                    if not self._hear(sender, message):
                        hosts.discard(sender)
                case Joined(host):
                    hosts.add(host)
                    self.peers.stop(host, stop)
                case Lost(peer):
                    hosts.discard(peer)
        self.transport.close()
