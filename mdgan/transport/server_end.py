"""The server's end of its links, for every transport: admits hosts and queues their messages."""

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
"""Most bytes of one owner's hosts that wait in the inbox; beyond, their messages are not read."""
_OF_ALL_BYTES = 1 << 28  # most bytes of all hosts that wait, beside one message of each host


class Line(Protocol):
    """What each transport provides to send to one admitted host."""

    def put(self, frame: Frame) -> bool:
        """Sends without waiting; False if the link has ended."""

    def end(self) -> None:
        """Says goodbye after all frames that were put."""

    def cut(self) -> None:
        """Ends the link at once."""


@dataclass(eq=False)
class Guest:
    """A host that the server has admitted."""

    host: int
    line: Line
    owner: str  # its certificate's fingerprint or its number: quotas are counted per owner
    most_bytes: float  # the most that one message of this host can take
    silenced: bool = False  # whether `receive` skips its messages, as its link has ended
    # When its last message came, by the monotonic clock.
    heard: float = field(default_factory=time.monotonic)
    # How many messages the server has sent to it, by kind, and under "" all of them.
    asked: Counter[str] = field(default_factory=Counter)
    untaken_bytes: int = 0  # of its messages that wait in the inbox


class ServerTransport:
    """The server's end. It calls `admit` in the threads of joining hosts, which may overlap."""

    def __init__(self, admit: base.Admit, swap_seconds: float) -> None:
        self.traffic = base.Traffic()
        self.parcels = Parcels(swap_seconds)  # parcels of hosts that other hosts cannot reach
        self.own_address = base.LOOPBACK  # an address of this machine at which hosts can reach it
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
        """Sends a copy without waiting; returns the bytes, or 0 if the host's link has ended."""
        guest = self._guests.get(host)
        if guest is None:
            return 0
        # A message that the server sends to several hosts in a row is encoded once.
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
        while (entry := self._inbox.take(until.left())) is not None:
            event, guest, held_bytes = entry
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

        Whichever process shows a ticket gets the parcel, so send it to its giver and taker alone.
        """
        tickets = {pair: secrets.token_hex(16) for pair in pairs if len(set(pair)) > 1}
        by_giver: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for (giver, taker), ticket in tickets.items():
            by_giver[giver][taker] = ticket
        for giver, ticket_by_taker in by_giver.items():
            self.parcels.expect(giver, iteration, ticket_by_taker)
        return tickets

    def drop(self, host: int) -> None:
        """Ends the link to a host that the server no longer needs; no `Lost` follows."""
        with self._lock:
            guest = self._guests.pop(host, None)
        if guest is not None:
            self._silence(guest)
            guest.line.end()

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`; may be called from a signal handler."""
        self._inbox.put((base.Asked(), None, 0))

    def close(self) -> None:
        """Admits no more hosts, and says goodbye to every host."""
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
        """Answers a caller's hello: a welcome, or the reason why it may not come in.

        Args:
            certificate: the fingerprint of the caller's certificate; empty if machines share it.
            address: where the caller's connection comes from; empty on this machine.
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
        """Puts a refused caller into the inbox, for the log; of repeated refusals only some."""
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
        """Adds a host, tells the server by `Joined`, and cuts an earlier link of the same host.

        Args:
            hello: the host's hello, or the part of it that the server needs.
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
        """Puts a message of a host into the inbox.

        Raises:
            WireError: the frame is no message.
        """
        event = base.Received(guest.host, decode(frame), len(frame.body))
        guest.heard = time.monotonic()
        self._count(guest, frame.held_bytes)
        self._inbox.put((event, guest, frame.held_bytes))

    def tell_slowed(self, visitor: base.Visitor, what: str) -> None:
        """Puts a host whose messages wait unread into the inbox, for the log; repeats are rare."""
        if line := self._folded.line(what, visitor[1:]):
            slowed = visitor._replace(purpose=base.SLOWED)
            self._inbox.put((base.Visited(line, False, slowed), None, 0))

    def await_room(self, guest: Guest, seconds: float | None = None) -> bool:
        """Waits until the inbox has room for the host's owner; False if the time is up."""

        def there_is_room() -> bool:
            same = [other for other in self._guests.values() if other.owner == guest.owner]
            num_bytes = sum(other.untaken_bytes for other in same)
            return guest.silenced or num_bytes <= _OF_AN_OWNER_BYTES

        with self._changed:
            return self._changed.wait_for(there_is_room, seconds)

    def _count(self, guest: Guest, num_bytes: int) -> None:
        """Counts bytes into the inbox, or out (below 0); if it is full, cuts its largest owner."""
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
                self.lose(other, f"its waiting messages take most memory: {num_bytes:,} bytes")
                other.line.cut()

    def _silence(self, guest: Guest) -> None:
        """Makes `receive` skip the messages of a host, and wakes the thread that waits for room."""
        with self._changed:
            guest.silenced = True
            self._changed.notify_all()

    def lose(self, guest: Guest, reason: str, *, lied: bool = False) -> None:
        """Removes a host whose link has ended, and puts `Lost` into the inbox if it was there."""
        with self._lock:
            if self._guests.get(guest.host) is guest:
                del self._guests[guest.host]
                self._inbox.put((base.Lost(guest.host, reason, lied), guest, 0))
