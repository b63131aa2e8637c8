"""The server's front desk: newcomers, losses, leaves, and all that hosts tell besides feedback."""

import contextlib
import time
from collections.abc import Mapping

from torch import Tensor

from mdgan import messages
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.checkpoints import Saving
from mdgan.engine.server.membership import Roster
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import Interrupted
from mdgan.families.mdgan.server_swaps import Swapping
from mdgan.gan.model_state import part_of
from mdgan.messages import Kind, Message
from mdgan.observe.run_observer import RunObserver
from mdgan.storage.fence import Fenced
from mdgan.storage.state_file import Damaged
from mdgan.transport.base import (
    Asked,
    Joined,
    Lost,
    Received,
    Refused,
    ServerEvent,
    ServerTransport,
)

_NONSENSE = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    Damaged,
)
"""What a message raises that is not what it should be."""


class Reception:
    """Takes in every event that is no feedback, and brings newcomers to where they can train.

    Args:
        transport: the server's end.
        roster: who takes part.
        swapping: is told of reports and losses.
        saving: likewise.
        scoring: likewise.
        attendance: counts losses.
        observer: is told what people should know.
        copies: whether newcomers need a copy of a live worker's discriminator; otherwise what is
            kept here for them is all that they get.
    """

    def __init__(
        self,
        transport: ServerTransport,
        roster: Roster,
        swapping: Swapping,
        saving: Saving,
        scoring: Scoring,
        attendance: Attendance,
        observer: RunObserver,
        *,
        copies: bool = True,
    ) -> None:
        self._copies = copies
        self._transport = transport
        self._roster = roster
        self._swapping = swapping
        self._saving = saving
        self._scoring = scoring
        self._attendance = attendance
        self._observer = observer
        self._needs: dict[int, list[int]] = {}
        self._asked: dict[int, int] = {}
        self._tries: dict[int, int] = {}

    def take(self, event: ServerEvent | None) -> None:
        """Takes in one event, or that there was none for a while.

        Raises:
            Interrupted: somebody asked to stop.
            Fenced: a later server has taken over.
        """
        if isinstance(event, Asked):
            raise Interrupted
        if isinstance(event, Refused):
            if self._roster.fenced_by:
                raise Fenced(event.reason)
            self._observer.note(f"refused a host: {event.reason}")
        elif isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, Lost):
            self.lose(event.peer, event.reason)
        elif isinstance(event, Received):
            self._hear_out(event.sender, event.message)
        elif event is None:  # nobody comes here any more: perhaps all have gone to another server
            with contextlib.suppress(OSError):
                self._saving.check_fence()
        self._tend()

    def lose(self, host: int, reason: str) -> None:
        """A host is gone; the others go on."""
        workers = self._roster.lose(host)
        self._part_from(host)
        if not workers:
            return
        left = len(self._roster.workers())
        self._observer.note(f"lost rank(s) {_in_words(workers)}: {reason}; {left} worker(s) left")
        self._observer.event("lost", self._roster.iteration, workers=workers, reason=reason)
        self._attendance.lost(workers)
        self._without(workers)
        self._tend()

    def see_off(self, hosts: set[int], stop: Message, timeout_seconds: float) -> None:
        """Takes in the last words of hosts that were told to stop.

        Args:
            hosts: all of them.
            stop: what those are told who came too late to be among them.
            timeout_seconds: how long to listen.
        """
        for host in hosts:
            self._roster.lose(host)
        deadline = time.monotonic() + timeout_seconds
        while hosts and (left := deadline - time.monotonic()) > 0:
            event = self._transport.receive(left)
            if isinstance(event, Received):
                self._hear_out(event.sender, event.message)
            elif isinstance(event, Joined):
                hosts.add(event.host)
                self._transport.send(event.host, stop)
            elif isinstance(event, Lost):
                hosts.discard(event.peer)

    def shut_out(self, worker: int, reason: str) -> None:
        """A worker may not take part any more."""
        iteration = self._roster.iteration
        host = self._roster.shut_out(worker)
        self._observer.note(f"rank {worker} is shut out: {reason}")
        self._observer.event("shut out", iteration, workers=[worker], reason=reason)
        self._without([worker])
        member = None if host is None else self._roster.member(host)
        if host is not None and member is not None and not member.workers:
            why = f"rank {worker} is shut out: {reason}"
            self._transport.send(host, messages.stop(iteration, why, shut_out=True))
            self._roster.lose(host)
            self._part_from(host)
        self._tend()

    def _without(self, workers: list[int]) -> None:
        self._attendance.gone(workers)
        self._swapping.lose(workers)
        self._saving.lose(workers)
        self._scoring.check_complete(self._roster.hosts(), self._observer)

    def _join(self, event: Joined) -> None:
        member = self._roster.member(event.host)
        if member is not None:  # it came back before its old link was known to be gone
            self.lose(event.host, "it opened a new link")
        self._roster.joined(event.host, event.hello)

    def _hear_out(self, host: int, message: Message) -> None:
        """Takes in a message; whoever sends one that makes no sense is let go."""
        try:
            self._hear(host, message)
        except _NONSENSE as error:
            self._transport.drop(host)
            self.lose(host, f"its {message.kind.name} message makes no sense ({error!r:.99})")

    def _hear(self, host: int, message: Message) -> None:
        """What hosts tell besides their feedback."""
        fields = message.fields
        if message.kind is Kind.SPANS:
            self._observer.spans(
                f"host-{host}",
                message.iteration,
                fields["rows"],
                fields["sent_bytes"],
                fields["received_bytes"],
            )
        elif message.kind is Kind.SWAPPED:
            self._swapping.note(host, message)
        elif message.kind is Kind.REAL:
            self._scoring.note_real(host, message, self._roster.hosts(), self._observer)
        elif message.kind is Kind.READY:
            self._ready(host, message)
        elif message.kind is Kind.LEAVE:
            self._leave(host)
        elif message.kind is Kind.CHECKPOINTED:
            self._saving.note(host, message)
        elif message.kind is Kind.STATE and fields["purpose"] == "copy":
            self._pass_on(host, fields["taker"], message)
        elif message.kind is Kind.STATE and fields["purpose"] == "leave":
            states = messages.by_worker(message)
            own = states.keys() & self._roster.hosts().get(host, [])
            self._saving.keep({worker: states[worker] for worker in own})
        elif message.kind is Kind.STATE:
            self._saving.note_states(host, message)

    def _leave(self, host: int) -> None:
        workers = self._roster.lose(host)
        self._roster.left(workers)
        self._part_from(host)
        if workers:
            left = len(self._roster.workers())
            self._observer.note(f"rank(s) {_in_words(workers)} left; {left} worker(s) left")
            self._observer.event("left", self._roster.iteration, workers=workers)
            self._without(workers)

    # Newcomers: what they lack is found for them, while training goes on without them.

    def _ready(self, host: int, message: Message) -> None:
        member = self._roster.member(host)
        if member is None or not member.arriving:
            return
        member.told = message.fields["told"] or member.told
        lacking = sorted(set(member.workers) - set(message.fields["holds"]))
        if lacking:
            self._needs[host] = lacking
            self._tries[host] = self._tries.get(host, -1) + 1
            return
        self._forget(host)
        self._roster.arrived(host)
        self._saving.hold(member.workers)
        if self._roster.has_begun:
            ranks, live = _in_words(member.workers), len(self._roster.workers())
            self._observer.note(f"rank(s) {ranks} joined; {live} worker(s) now")
            self._observer.event(
                "joined",
                self._roster.iteration,
                workers=member.workers,
                holdings=self._roster.holdings(member.workers),
            )

    def _tend(self) -> None:
        """Finds discriminators for newcomers: what is kept here, or copies of live workers'."""
        live, late = self._roster.taking_part(), self._roster.late()
        prompt = {host: workers for host, workers in live.items() if host not in late}
        givers = self._roster.free() or prompt or live
        for host, lacking in list(self._needs.items()):
            asked = self._asked.get(host)
            if asked is not None and (asked not in late or not prompt):
                continue
            tries = self._tries[host]
            kept = {} if tries else self._kept_for(lacking)
            nobody_gives = not self._copies or (not givers and self._nobody_will_hold_one())
            if kept or nobody_gives:
                self._hand_over(host, kept)
            elif givers:
                # Who gives to whom is not always one, and another if that did not fit.
                giver = sorted(givers)[(host + tries) % len(givers)]
                self._asked[host] = giver
                copy = messages.copy(self._roster.iteration, givers[giver][0], host)
                self._transport.send(giver, copy)

    def _kept_for(self, lacking: list[int]) -> dict[int, Mapping[str, Tensor]]:
        """What is kept here for some workers; if for one of them, the others get a copy of that."""
        found = {worker: self._saving.state_for(worker) for worker in lacking}
        kept = {worker: state for worker, state in found.items() if state is not None}
        for state in list(kept.values())[: int(self._copies)]:
            copy = part_of(state, "discriminator.")
            return {worker: kept.get(worker, copy) for worker in lacking}
        return kept

    def _hand_over(self, host: int, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Gives a newcomer what it lacks; its workers that get nothing go on as they are."""
        self._transport.send(host, messages.adopt(self._roster.iteration, states))
        self._needs.pop(host)
        self._asked.pop(host, None)

    def _nobody_will_hold_one(self) -> bool:
        """Whether no live host has or may yet tell of a discriminator to copy."""
        arriving = {
            host
            for host in self._roster.hosts()
            if (member := self._roster.member(host)) is not None and member.arriving
        }
        expected = not self._roster.has_begun and self._roster.missing()
        return not expected and arriving <= self._needs.keys()

    def _pass_on(self, giver: int, taker: int, message: Message) -> None:
        """A copy has come; every worker of the newcomer that lacks a discriminator gets it."""
        if self._asked.get(taker) != giver:
            return  # nobody waits for it, or no longer
        (state,) = messages.by_worker(message).values()
        self._hand_over(taker, dict.fromkeys(self._needs[taker], state))

    def _part_from(self, host: int) -> None:
        """A host is gone: nobody waits for its copy, or for what it tells of its data."""
        self._forget(host)
        self._scoring.forget(host)
        for taker, giver in list(self._asked.items()):
            if giver == host:
                del self._asked[taker]

    def _forget(self, host: int) -> None:
        """A host is gone or has arrived: nothing is owed to it."""
        self._needs.pop(host, None)
        self._asked.pop(host, None)
        self._tries.pop(host, None)


def _in_words(workers: list[int]) -> str:
    return ", ".join(map(str, workers))
