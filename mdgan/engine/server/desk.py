"""Where every event of the server's transport is taken in: messages by kind, newcomers, losses."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf

from mdgan import messages
from mdgan.engine.server.attendance import Attendance
from mdgan.engine.server.conduct import Conduct
from mdgan.engine.server.membership import Membership
from mdgan.errors import Interrupted
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.storage.state_file import Damaged
from mdgan.transport.base import Asked, Joined, Lost, Received, Refused, ServerEvent
from mdgan.transport.server_end import ServerTransport

Handler = Callable[[int, Message], None]
"""Takes in a message of one kind from a host, given by its number; raises what `NONSENSE` names if
the message is malformed."""

NONSENSE = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    Damaged,
)
"""What reading a malformed message may raise."""


class Desk:
    """Takes in one event at a time. A host that sends nonsense is let go, and has a strike more.

    Args:
        transport: the server's end.
        members: the hosts and workers that take part.
        attendance: counts losses.
        observer: records what people should know.
        check_fence: raises `Fenced` if a later server has taken over.
        conduct: counts strikes.

    Attributes:
        handlers: of every kind of message that hosts send on their own.
        settling: called in this order when hosts are gone: each stops waiting for these.
        after_each: called after every event.
        finishes_first: whether the server finishes its iteration when the user asks it to stop.
        stop_asked: whether the user has asked.
        hurries: whether the user has asked twice.
    """

    def __init__(
        self,
        transport: ServerTransport,
        members: Membership,
        attendance: Attendance,
        observer: RunObserver,
        check_fence: Callable[[], None],
        conduct: Conduct,
    ) -> None:
        self.handlers: dict[str, Handler] = {
            messages.Kind.LEAVE: self._leave,
            messages.Kind.SPENT: self._note_spent,
        }
        self._ending: dict[int, float] = {}
        self._any_spent = False
        self.finishes_first = self.stop_asked = self.hurries = False
        self.settling: list[Callable[[], None]] = []
        self.after_each: Callable[[], None] = lambda: None
        self._transport = transport
        self._members = members
        self._attendance = attendance
        self._observer = observer
        self._check_fence = check_fence
        self._conduct = conduct

    def take(self, event: ServerEvent | None) -> None:
        """Takes in one event, or None: there was no event for a while.

        Raises:
            Interrupted: the user has asked the server to stop, and for the second time if it
                finishes its iteration first.
            Fenced: a later server has taken over.
        """
        if isinstance(event, Asked):
            self.hurries = self.stop_asked
            if self.hurries or not self.finishes_first:
                raise Interrupted
            self.stop_asked = True
            self._observer.note("stopping when this is done and saved; Ctrl-C again: at once")
        if isinstance(event, Refused):
            if self._members.fenced_by:  # a host says so; the folder knows
                self._members.fenced_by = 0
                self._look_at_fence()
            self._observer.note(f"refused a host: {event.reason}")
        elif isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, Lost) and event.lied:
            self._let_liar_go(event.peer, event.reason)
        elif isinstance(event, Lost):
            self.lose(event.peer, event.reason)
        elif isinstance(event, Received):
            self._hear(event.sender, event.message)
        elif event is None:  # perhaps all hosts have gone to another server
            self._look_at_fence()
        self.after_each()

    def _look_at_fence(self) -> None:
        with contextlib.suppress(OSError):
            self._check_fence()

    def lose(self, host: int, reason: str) -> None:
        """A host is gone; the server goes on with the others."""
        workers = self._members.lose(host)
        if workers:
            self._attendance.lost(workers)
            left = len(self._members.workers())
            ranks = in_words(workers)
            self._observer.note(f"lost rank(s) {ranks}: {reason}; {left} left")
            self._observer.event("lost", self._members.iteration, workers=workers, reason=reason)
        self._settle()

    def drop(self, host: int, reason: str) -> None:
        """Ends the link to a host; the server goes on with the others."""
        self._transport.drop(host)
        self.lose(host, reason)

    def dismiss(self, host: int, reason: str) -> None:
        """Ends the link to a host, and tells it to end; its workers are not shut out."""
        stop = messages.stop(self._members.iteration, reason, shut_out=True)
        self._transport.send(host, stop)
        self.drop(host, reason)

    def shut_out(self, worker: int, reason: str) -> None:
        """A worker may not take part any more; its host is told to stop if it carries no other."""
        iteration = self._members.iteration
        self._observer.note(f"rank {worker} is shut out: {reason}")
        self._observer.event("shut out", iteration, workers=[worker], reason=reason)
        self._let_go(worker, f"rank {worker} is shut out: {reason}")
        self._settle()

    def _let_go(self, worker: int, why: str) -> None:
        """Goes on without a worker; a host that carries no other stops."""
        host = self._members.shut_out(worker)
        member = None if host is None else self._members.member(host)
        if host is not None and member is not None and not member.workers:
            stop = messages.stop(self._members.iteration, why, shut_out=bool(why))
            self._transport.send(host, stop)
            self._members.lose(host)

    def let_spent_go(self) -> None:
        """Between two iterations: workers that have spent their budgets take part no more."""
        ending, self._ending = self._ending, {}
        self._let_spent_go(ending)

    def _let_spent_go(self, ending: Mapping[int, float]) -> None:
        for worker in sorted(ending.keys() & set(self._members.workers())):
            i, self._any_spent = self._members.iteration, True
            reason = f"has spent its privacy budget ε = {ending[worker]:.3g} after {i:,} iterations"
            self._let_go(worker, "")
            left = len(self._members.workers())
            self._observer.note(f"rank {worker} {reason}; {left} left")
            self._observer.event("left", i, workers=[worker], reason=reason)
            self._observer.spent(
                i, {worker: ending[worker]}, {}
            )  # its last words may come too late
            self._settle()

    @property
    def all_spent(self) -> bool:
        """Whether no worker is left, the last ones because their budgets are spent."""
        return self._any_spent and not self._members.hosts()

    def see_off(self, stop: Message, timeout_seconds: float) -> None:
        """Tells every host to stop, and takes in what they still send.

        Args:
            stop: what they are told, and hosts that join meanwhile.
            timeout_seconds: how long to listen.
        """
        hosts = set(self._members.hosts())
        for host in hosts:
            self._transport.send(host, stop)
            self._members.lose(host)
        deadline = time.monotonic() + timeout_seconds
        while hosts and (left := deadline - time.monotonic()) > 0:
            event = self._transport.receive(left)
            if isinstance(event, Received):
                if not self._hear(event.sender, event.message):
                    hosts.discard(event.sender)
            elif isinstance(event, Joined):
                hosts.add(event.host)
                self._transport.send(event.host, stop)
            elif isinstance(event, Lost):
                hosts.discard(event.peer)

    def _settle(self) -> None:
        for settle in self.settling:
            settle()
        self.after_each()

    def _join(self, event: Joined) -> None:
        if self._members.member(event.host) is not None:  # its old link is not yet known to be gone
            self.lose(event.host, "it opened a new link")
        self._members.joined(event.host, event.hello)

    def _hear(self, host: int, message: Message) -> bool:
        """Takes in a message; False if its sender was let go."""
        handler = self.handlers.get(message.kind)
        if handler is None:
            return True
        try:
            handler(host, message)
        except NONSENSE as error:
            reason = f"its {message.kind} message makes no sense ({error!r:.99})"
            self._let_liar_go(host, reason)
            return False
        return True

    def _let_liar_go(self, host: int, reason: str) -> None:
        """A host has said what no host of the run would: its link ends, and it has a strike more.

        It comes back at once, so strikes are what keeps it from doing so without end.
        """
        member = self._members.member(host)
        workers = [] if member is None else list(member.workers)
        self._conduct.blame(workers)
        for worker in filter(self._conduct.is_out, workers):
            self.shut_out(worker, f"strike {self._conduct.strikes_of(worker)}: {reason}")
        strikes = {worker: self._conduct.strikes_of(worker) for worker in workers}
        self.drop(host, f"{reason}; strike {max(strikes.values(), default=0)}")

    def _note_spent(self, host: int, message: Message) -> None:
        ending, member = self._epsilon(host, message.fields["epsilon"]), self._members.member(host)
        if member is not None and member.arriving:  # it was asked for nothing
            self._let_spent_go(ending)
        else:  # its last answer follows
            self._ending |= ending

    def _epsilon(self, host: int, told: Mapping[str, float]) -> dict[int, float]:
        """What a host says that the samples of its own workers have spent."""
        found = {int(worker): float(epsilon) for worker, epsilon in told.items()}
        carried = self._members.carried(host)
        return {n: found[n] for n in carried if n in found and 0 <= found[n] < inf}

    def _leave(self, host: int, _message: Message) -> None:
        workers = self._members.lose(host)
        self._members.left(workers)
        if workers:
            left = len(self._members.workers())
            self._observer.note(f"rank(s) {in_words(workers)} left; {left} left")
            self._observer.event("left", self._members.iteration, workers=workers)
        self._settle()


def in_words(workers: Iterable[int]) -> str:
    """`1, 2, 5`."""
    return ", ".join(map(str, workers))
