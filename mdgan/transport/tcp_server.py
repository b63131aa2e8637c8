"""The server's end over TCP: a door, a link to every host, and links to those that watch."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Admit, Asked, Joined, Lost, Received, Refused, ServerEvent, Traffic
from mdgan.transport.clock import CLOCK_BYTES, tell_clock
from mdgan.transport.door import Complaints, Door, Newcomer, one_line
from mdgan.transport.link import Link, Pulses
from mdgan.transport.until import Inbox, Until

HELLO_BYTES = 1 << 20
_MOST_UNTAKEN_BYTES = 1 << 26
_LOOK_SECONDS = 0.1
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

AcceptsFrom = Callable[[Mapping[str, Any]], Mapping[str, int]]
"""From a hello to the kinds that may come from that host, each with the most bytes of its body."""


class _Guest:
    """A host that was let in: its link, and the bytes of its messages that wait to be taken."""

    def __init__(self, host: int, link: Link) -> None:
        self.host = host
        self.link = link
        self.silenced = False
        self.ended = threading.Event()
        self._untaken_bytes = 0
        self._taken = threading.Condition()

    def silence(self) -> None:
        """Ignores all that the host has sent."""
        self.silenced = True

    def put(self, num_bytes: int) -> None:
        """Waits until there is room for a message: a host cannot fill the server's memory."""
        with self._taken:
            while self._untaken_bytes > _MOST_UNTAKEN_BYTES and self.link.is_open:
                self._taken.wait(_LOOK_SECONDS)
            self._untaken_bytes += num_bytes

    def take(self, num_bytes: int) -> None:
        """A message was taken."""
        with self._taken:
            self._untaken_bytes -= num_bytes
            self._taken.notify_all()


class TcpServerTransport:
    """The server's end; see `ServerTransport`.

    Args:
        listener: bound and listening; closed with this.
        token: the secret that hosts need to join; empty if they need none.
        admit: called with every hello, in the newcomer's thread; several calls may overlap.
        accepts_from: what may come from a host with a hello that was admitted.
        timeouts: the time limits.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        admit: Admit,
        accepts_from: AcceptsFrom,
        timeouts: Timeouts,
    ) -> None:
        self.traffic = Traffic()
        self._admit = admit
        self._accepts_from = accepts_from
        self._timeouts = timeouts
        self._inbox: Inbox[tuple[ServerEvent, _Guest | None]] = Inbox()
        self._lock = threading.Lock()
        self._guests: dict[int, _Guest] = {}
        self._watchers: set[Link] = set()
        self._closing = False
        self._peers_key = secrets.token_bytes(32)
        self._pulses = Pulses(timeouts.liveness)
        self._refusals = Complaints(self._tell_refused)
        self._door = Door(
            listener,
            token,
            {Kind.HELLO: HELLO_BYTES},
            self._enter,
            self._tell_refused,
            timeouts.liveness,
        )

    def send(self, host: int, message: Message) -> int:
        """Sends without waiting for arrival; nothing happens if the host is gone."""
        guest = self._guests.get(host)
        if guest is not None:
            with contextlib.suppress(RuntimeError):  # its reader reports the loss
                return self.traffic.count_sent(message.kind, guest.link.send(message))
        return 0

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        until = Until(timeout_seconds)
        while (taken := self._inbox.take(until.left())) is not None:
            event, guest = taken
            if guest is not None and isinstance(event, Received):
                guest.take(event.num_bytes)
            if guest is not None and guest.silenced:
                continue
            if isinstance(event, Received):
                self.traffic.count_received(event.message.kind, event.num_bytes)
            return event
        return None

    def drop(self, host: int) -> None:
        """Ends the link to a host that is no longer needed; no `Lost` follows."""
        with self._lock:
            guest = self._guests.pop(host, None)
        if guest is not None:
            guest.silence()
            threading.Thread(target=self._part, args=([guest],), daemon=True).start()

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self._inbox.put((Asked(), None))

    def close(self) -> None:
        """Accepts no more hosts, says goodbye to every host, and waits a moment for theirs."""
        with self._lock:
            self._closing = True
            guests, watchers = list(self._guests.values()), list(self._watchers)
        self._door.close()
        for link in watchers:
            with contextlib.suppress(RuntimeError):
                link.send(messages.bye())
        self._part(guests)
        until = Until(self._timeouts.farewell)
        for link in watchers:
            link.end(until.left())
            link.close()
        self._pulses.stop()

    def _part(self, guests: list[_Guest]) -> None:
        """Says goodbye; the readers end when the hosts have answered, or a moment later."""
        for guest in guests:
            with contextlib.suppress(RuntimeError):
                guest.link.send(messages.bye())
        until = Until(self._timeouts.farewell)
        for guest in guests:
            guest.link.end(until.left())
        for guest in guests:
            guest.ended.wait(until.left())
            guest.link.close()

    def _tell_refused(self, reason: str) -> None:
        self._inbox.put((Refused(reason), None))

    def _enter(self, newcomer: Newcomer) -> None:
        """Decides on a newcomer that has proved that it knows the token, in its own thread."""
        hello = newcomer.first.fields
        answer = self._decide(hello)
        if isinstance(answer, str):
            self._refusals.add(one_line(answer))
            self._answer_and_close(newcomer.link, messages.refused(answer))
            return
        welcome = {**answer, "liveness": self._timeouts.liveness}
        if hello["purpose"] == "ask":
            self._answer_and_close(newcomer.link, messages.welcome(welcome))
        elif hello["purpose"] == "watch":
            self._watch(newcomer.link, welcome, hello)
        else:
            self._join(newcomer.link, {**welcome, "peers_key": self._peers_key.hex()}, hello)

    def _decide(self, hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        purpose, host = hello.get("purpose"), hello.get("host")
        if purpose not in ("join", "ask", "watch"):
            return "its hello is malformed; use the same version of mdgan everywhere"
        if purpose == "join" and (type(host) is not int or host < 1):
            return "its hello names no host; use the same version of mdgan everywhere"
        if self._closing:
            return "the server is about to end"
        try:
            return self._admit(hello)
        except _MALFORMED as error:
            return f"its hello is malformed ({type(error).__name__}: {one_line(error)})"

    def _answer_and_close(self, link: Link, answer: Message) -> None:
        with contextlib.suppress(RuntimeError):
            link.send(answer)
            link.end(self._timeouts.farewell)
            link.wait_for_end(Until(self._timeouts.farewell))
        link.close()

    def _watch(self, link: Link, welcome: Mapping[str, Any], hello: Mapping[str, Any]) -> None:
        link.expect({})
        with self._lock:
            self._watchers.add(link)
        with contextlib.suppress(RuntimeError):
            link.send(messages.welcome(welcome))
            self._pulses.add(link, hello.get("liveness"))
            while link.receive()[0].kind != Kind.BYE:
                pass
        with self._lock:
            self._watchers.discard(link)
        link.close()

    def _join(self, link: Link, welcome: Mapping[str, Any], hello: Mapping[str, Any]) -> None:
        host = hello["host"]
        try:
            link.expect({**self._accepts_from(hello), Kind.CLOCK: CLOCK_BYTES})
            link.send(messages.welcome(welcome))
            tell_clock(link, Until(self._timeouts.link))
            link.expect(self._accepts_from(hello))
        except (RuntimeError, *_MALFORMED) as error:
            link.close()
            with self._lock:
                if host not in self._guests:
                    self._inbox.put((Lost(host, f"it did not come in: {one_line(error)}"), None))
            return
        guest = _Guest(host, link)
        with self._lock:
            if self._closing:
                link.close()
                return
            before = self._guests.get(guest.host)
            if before is not None:
                before.silence()
            self._guests[guest.host] = guest
            self._inbox.put((Joined(guest.host, hello), guest))
        if before is not None:
            before.link.close()
        self._pulses.add(link, hello.get("liveness"))
        self._read(guest)

    def _read(self, guest: _Guest) -> None:
        """Feeds the inbox until BYE or the link breaks."""
        reason = "it said goodbye"
        try:
            while True:
                message, num_bytes = guest.link.receive()
                if message.kind == Kind.BYE:
                    break
                guest.put(num_bytes)
                self._inbox.put((Received(guest.host, message, num_bytes), guest))
        except RuntimeError as error:
            reason = one_line(error)
        guest.ended.set()
        guest.link.close()
        with self._lock:
            if self._guests.get(guest.host) is guest:
                del self._guests[guest.host]
                self._inbox.put((Lost(guest.host, reason), guest))
