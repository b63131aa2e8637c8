"""The server's end over every transport: who is in, what has come, who is gone."""

import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from mdgan.errors import Folded, one_line
from mdgan.messages import Message
from mdgan.transport import base
from mdgan.transport.frames import Frame, decode, encode
from mdgan.transport.parcels import Parcels
from mdgan.transport.until import Inbox, Until

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_OF_AN_OWNER_BYTES = 1 << 26
"""What may wait to be taken of the hosts of one owner; then the server reads no further."""
_OF_ALL_BYTES = 1 << 28  # what may wait beside one message of each host


class Line(Protocol):
    """The way to a host that was let in."""

    def put(self, frame: Frame) -> bool:
        """Sends without waiting; False if the host is gone."""

    def end(self) -> None:
        """Says goodbye after all that was sent."""

    def cut(self) -> None:
        """Ends it at once."""


@dataclass(eq=False)
class Guest:
    """A host that was let in."""

    host: int
    line: Line
    owner: str  # the certificate, or the host, that its quotas are kept by
    most_bytes: float  # that one of its messages can take
    silenced: bool = False  # whether nothing that it has sent counts any more
    # When its last message came, by the monotonic clock.
    heard: float = field(default_factory=time.monotonic)
    # How often each kind of message was sent to it, and "" for all.
    asked: Counter[str] = field(default_factory=Counter)
    untaken_bytes: int = 0  # of its messages that the server has not taken yet


class ServerTransport:
    """The server's end; calls of `admit`, in the threads of newcomers, may overlap."""

    def __init__(self, admit: base.Admit, swap_seconds: float) -> None:
        self.traffic = base.Traffic()
        self.parcels = Parcels(swap_seconds)  # those that hosts lay out here, for other hosts
        self.own_address = base.LOOPBACK  # of this machine, where hosts can reach it besides
        self._admit = admit
        self._inbox: Inbox[tuple[base.ServerEvent, Guest | None, int]] = Inbox()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._folded = Folded()
        self._guests: dict[int, Guest] = {}
        self._closing = False
        self._sent: tuple[Message, Frame] | None = None

    # The server's thread.

    def send(self, host: int, message: Message) -> int:
        """Sends a copy without waiting for arrival; returns the bytes, 0 if the host is gone."""
        guest = self._guests.get(host)
        if guest is None:
            return 0
        # One message that goes to several hosts, one after the other, is encoded once.
        if self._sent is None or self._sent[0] is not message:
            self._sent = message, encode(message)
        frame = self._sent[1]
        for counted in (frame.kind, ""):
            guest.asked[counted] += 1
        if not guest.line.put(frame):
            return 0
        self.traffic.sent[frame.kind] += len(frame.body)
        return len(frame.body)

    def receive(self, timeout_seconds: float) -> base.ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        self._sent = None
        until = Until(timeout_seconds)
        while (taken := self._inbox.take(until.left())) is not None:
            event, guest, held_bytes = taken
            if guest is not None and held_bytes:
                self._count(guest, -held_bytes)
            if guest is not None and guest.silenced:
                continue
            if isinstance(event, base.Received):
                self.traffic.received[str(event.message.kind)] += event.num_bytes
            return event
        return None

    def order_exchange(
        self, iteration: int, pairs: Iterable[tuple[int, int]]
    ) -> dict[tuple[int, int], str]:
        """Makes a random ticket for each pair of a giver and a taker.

        A process that shows it gets the parcel, so only those two may be told.
        """
        tickets = {pair: secrets.token_hex(16) for pair in pairs if len(set(pair)) > 1}
        by_giver: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for (giver, taker), ticket in tickets.items():
            by_giver[giver][taker] = ticket
        for giver, own in by_giver.items():
            self.parcels.expect(giver, iteration, own)
        return tickets

    def drop(self, host: int) -> None:
        """Ends the link to a host that is no longer needed; no `Lost` follows."""
        with self._lock:
            guest = self._guests.pop(host, None)
        if guest is not None:
            self._silence(guest)
            guest.line.end()

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""
        self._inbox.put((base.Asked(), None, 0))

    def close(self) -> None:
        """Lets no more hosts in, and says goodbye to every host."""
        with self._lock:
            self._closing = True
            guests = list(self._guests.values())
        for guest in guests:
            guest.line.end()
            self._silence(guest)

    # The transport's threads.

    def decide(
        self, hello: Mapping[str, Any], certificate: str = "", address: str = ""
    ) -> Mapping[str, Any] | str:
        """What a newcomer is told; or why it may not come in.

        Args:
            certificate: the fingerprint of one that is its own, by which it is known.
            address: where its connection comes from; empty on this machine.
        """
        visitor = base.Visitor(str(hello.get("purpose")), certificate, address)
        host = hello.get("host")
        answer: Mapping[str, Any] | str
        if visitor.purpose == "join" and (type(host) is not int or host < 1):
            answer = "its hello names no host; use the same version of mdgan everywhere"
        elif self._closing:
            answer = "the server is about to end"
        else:
            try:
                answer = self._admit({**hello, "certificate": certificate, "address": address})
            except _MALFORMED as error:
                answer = f"its hello is malformed ({type(error).__name__}: {one_line(error)})"
        if isinstance(answer, str):
            self.tell_refused(visitor, one_line(answer))
        elif visitor.purpose != "join" and (
            line := self._folded.line(str(answer.get("noted", "answered")), visitor)
        ):
            self._inbox.put((base.Visited(line, False, visitor), None, 0))
        return answer

    def tell_refused(self, visitor: base.Visitor, reason: str) -> None:
        """Tells the server of a caller that was not let in, of one that comes often less often."""
        if line := self._folded.line(reason, visitor[1:]):
            self._inbox.put((base.Visited(line, True, visitor), None, 0))

    def let_in(
        self,
        host: int,
        hello: Mapping[str, Any],
        line: Line,
        owner: str = "",
        most_bytes: float = inf,
    ) -> Guest:
        """Tells the server that a host has joined; an earlier link of the same host is gone.

        Args:
            hello: what others need to know of it.
            owner: see `Guest`; `most_bytes`, too.
        """
        guest = Guest(host, line, owner, most_bytes=most_bytes)
        with self._lock:
            before = self._guests.get(host)
            if before is not None:
                before.silenced = True
                self._changed.notify_all()
            self._guests[host] = guest
            self._inbox.put((base.Joined(host, hello), guest, 0))
            if self._closing:
                line.end()
        if before is not None:
            before.line.cut()
        return guest

    def take_in(self, guest: Guest, frame: Frame) -> None:
        """A host has sent something.

        Raises:
            WireError: it is no message.
        """
        event = base.Received(guest.host, decode(frame), len(frame.body))
        guest.heard = time.monotonic()
        self._count(guest, frame.held_bytes)
        self._inbox.put((event, guest, frame.held_bytes))

    def tell_slowed(self, visitor: base.Visitor, what: str) -> None:
        """Tells the server whose messages are not read for now, if that goes on less often."""
        if line := self._folded.line(what, visitor[1:]):
            slowed = visitor._replace(purpose=base.SLOWED)
            self._inbox.put((base.Visited(line, False, slowed), None, 0))

    def await_room(self, guest: Guest, seconds: float | None = None) -> bool:
        """Waits until few bytes of a host's owner wait to be taken; False if the time is up."""

        def there_is_room() -> bool:
            own = [other for other in self._guests.values() if other.owner == guest.owner]
            return guest.silenced or sum(other.untaken_bytes for other in own) <= _OF_AN_OWNER_BYTES

        with self._changed:
            return self._changed.wait_for(there_is_room, seconds)

    def _count(self, guest: Guest, num_bytes: int) -> None:
        """A message has come, or was taken (below 0); the owner that holds most goes if need be."""
        with self._changed:
            guest.untaken_bytes += num_bytes
            if num_bytes < 0:
                self._changed.notify_all()
                return
            guests = [*self._guests.values()]
            most = _OF_ALL_BYTES + sum(other.most_bytes for other in guests)
            if sum(other.untaken_bytes for other in guests) <= most:
                return
        held = Counter[str]()
        for other in guests:
            held[other.owner] += other.untaken_bytes
        owner, num_bytes = held.most_common(1)[0]
        for other in guests:
            if other.owner == owner:
                self.lose(other, f"of all hosts it has most that waits here: {num_bytes:,} bytes")
                other.line.cut()

    def _silence(self, guest: Guest) -> None:
        """Ignores all that a host has sent."""
        with self._changed:
            guest.silenced = True
            self._changed.notify_all()

    def lose(self, guest: Guest, reason: str, *, lied: bool = False) -> None:
        """A host is gone; the server is told if it does not know."""
        with self._lock:
            if self._guests.get(guest.host) is guest:
                del self._guests[guest.host]
                self._inbox.put((base.Lost(guest.host, reason, lied), guest, 0))
