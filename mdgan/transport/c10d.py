"""Processes on any number of machines: a star of two-rank links, partners linked directly."""

import contextlib
import json
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from mdgan.errors import BadInput
from mdgan.messages import Kind, Message, bye
from mdgan.timeouts import Timeouts
from mdgan.transport.base import (
    SERVER,
    Asked,
    HostEvent,
    Joined,
    Lost,
    Received,
    Refused,
    ServerEvent,
)
from mdgan.transport.clock import ask_clock, tell_clock
from mdgan.transport.inbox import Inbox
from mdgan.transport.link import Link, LinkOpener, why_broken
from mdgan.transport.rendezvous import Store, ask_to_join, link_name
from mdgan.transport.traffic import Traffic

Admit = Callable[[Mapping[str, Any]], str | None]
"""From a hello to None (welcome) or the reason why not."""

_CLOSING: dict[str, Any] = {}
_ASK_STORE_SECONDS = 0.05
_TICKET_PATIENCE_SECONDS = 5.0


class _Reader:
    """The one thread that receives on a link and feeds an inbox, until BYE or the link breaks."""

    def __init__(self, peer: int, link: Link, inbox: Inbox[Any]) -> None:
        self.silenced = False
        self._peer = peer
        self._link = link
        self._inbox = inbox
        self.thread = threading.Thread(target=self._read, name=f"reader-{peer}", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            while True:
                message, num_bytes = self._link.receive()
                if message.kind is Kind.BYE:
                    break
                self._put(Received(self._peer, message, num_bytes))
            self._put(Lost(self._peer, "it said goodbye"))
        except RuntimeError as error:
            self._put(Lost(self._peer, why_broken(error)))

    def _put(self, event: Received | Lost) -> None:
        if not self.silenced:
            self._inbox.put(event)


class C10dServerTransport:
    """The server's end; see `ServerTransport`.

    Args:
        store: rank 0's own, open.
        acceptor_store: a second connection to it, for the thread that admits hosts.
        open_link: from `link_opener`.
        admit: asked for every hello, in the acceptor's thread.
        timeouts: all time limits.
    """

    def __init__(
        self,
        store: Store,
        acceptor_store: Store,
        open_link: LinkOpener,
        admit: Admit,
        timeouts: Timeouts,
    ) -> None:
        self._store = store
        self._acceptor_store = acceptor_store
        self._open_link = open_link
        self._admit = admit
        self._timeouts = timeouts
        self.traffic = Traffic()
        self._inbox: Inbox[ServerEvent] = Inbox()
        self._links: dict[int, Link] = {}
        self._readers: dict[int, _Reader] = {}
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="acceptor", daemon=True)
        self._acceptor.start()

    def send(self, host: int, message: Message) -> int:
        """Sends without waiting for arrival; nothing happens if the host is gone."""
        if host in self._links:
            with contextlib.suppress(RuntimeError):  # its reader reports the loss
                num_bytes = self._links[host].send(message)
                return self.traffic.count_sent(message.kind, num_bytes)
        return 0

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        event = self._inbox.take(timeout_seconds)
        if isinstance(event, Received):
            self.traffic.count_received(event.message.kind, event.num_bytes)
        return event

    def drop(self, host: int) -> None:
        """Ends the link to a host that is of no more use; no `Lost` follows."""
        if host in self._readers:
            self._readers[host].silenced = True
        self._links.pop(host, None)

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self._inbox.put(Asked())

    def close(self) -> None:
        """Says goodbye to every host, waits a moment for theirs, and stops admitting."""
        self._closing.set()
        limit = timedelta(seconds=self._timeouts.farewell)
        links = list(self._links.values())
        for link in links:
            with contextlib.suppress(RuntimeError):
                link.send(bye())
        for link in links:
            with contextlib.suppress(RuntimeError):
                link.flush(limit)
        for host in list(self._links):
            self._readers[host].thread.join(self._timeouts.farewell)
        self._acceptor.join(self._timeouts.farewell)

    def _accept(self) -> None:
        ticket = 1
        while (hello := self._await_hello(ticket)) is not _CLOSING:
            if hello is not None:
                refusal = self._admit(hello)
                answer = {"admitted": True} if refusal is None else {"refused": refusal}
                self._acceptor_store.set(f"answer/{ticket}", json.dumps(answer))
                if refusal is None:
                    self._welcome(ticket, hello)
                else:
                    self._inbox.put(Refused(refusal))
            ticket += 1

    def _await_hello(self, ticket: int) -> dict[str, Any] | None:
        """The hello with a ticket; None if whoever drew the ticket says nothing that makes sense.

        A wait inside the store could not be ended from here, so the store is asked now and then.
        """
        waited = 0.0
        while not self._acceptor_store.check([f"hello/{ticket}"]):
            if self._closing.wait(_ASK_STORE_SECONDS):
                return _CLOSING
            drawn = self._acceptor_store.add("tickets", 0) >= ticket
            waited += _ASK_STORE_SECONDS * drawn
            if waited > _TICKET_PATIENCE_SECONDS:
                return None
        try:
            hello = json.loads(self._acceptor_store.get(f"hello/{ticket}"))
        except ValueError:
            return None
        return hello if isinstance(hello, dict) else None

    def _welcome(self, ticket: int, hello: Mapping[str, Any]) -> None:
        host = int(hello["host"])
        try:
            link = self._open_link(self._acceptor_store, link_name(ticket), 0)
            tell_clock(link, timedelta(seconds=self._timeouts.link))
        except RuntimeError as error:
            self._inbox.put(Lost(host, f"its link did not open: {why_broken(error)}"))
            return
        self._links[host] = link
        self._inbox.put(Joined(host, hello))
        self._readers[host] = _Reader(host, link, self._inbox)


class C10dHostTransport:
    """A host's end; see `HostTransport`.

    Args:
        store: a connection to the server's store.
        open_link: from `link_opener`.
        hello: what the server is told, with the host's number as `host`.
        timeouts: all time limits.

    Raises:
        BadInput: the server refused this host, did not answer, or cannot be linked to.
    """

    def __init__(
        self,
        store: Store,
        open_link: LinkOpener,
        hello: Mapping[str, Any],
        timeouts: Timeouts,
    ) -> None:
        self._store = store
        self._open_link = open_link
        self._host = int(hello["host"])
        self._timeouts = timeouts
        self.traffic = Traffic()
        self._inbox: Inbox[HostEvent] = Inbox()
        self._partners: dict[int, Link] = {}
        name = ask_to_join(store, hello, timeouts.connect)
        try:
            self._server = open_link(store, name, 1)
            limit = timedelta(seconds=timeouts.link)
            self.clock_offset_seconds = ask_clock(self._server, limit)
        except RuntimeError as error:
            raise BadInput(
                "the server admitted this host, but no link to it could be opened "
                f"({why_broken(error)}): machines must reach each other on every port above 1023"
            ) from error
        self._reader = _Reader(SERVER, self._server, self._inbox)

    def send(self, message: Message) -> int:
        """Sends to the server without waiting for arrival; nothing happens if it is gone."""
        with contextlib.suppress(RuntimeError):  # the reader reports the loss
            return self.traffic.count_sent(message.kind, self._server.send(message))
        return 0

    def receive(self, timeout_seconds: float) -> HostEvent | None:
        """The next event from the server, or None when the time is up."""
        event = self._inbox.take(timeout_seconds)
        if isinstance(event, Received):
            self.traffic.count_received(event.message.kind, event.num_bytes)
        return event

    def exchange(
        self, iteration: int, outgoing: Mapping[int, Message], incoming: Collection[int]
    ) -> dict[int, Message | Lost]:
        """Sends and receives one message a host over direct links; see `HostTransport.exchange`."""
        # Opening a link is a meeting of two: all hosts go through their pairs in one order.
        for partner in sorted({*outgoing, *incoming}, key=self._pair):
            self._open_partner(partner, iteration)
        for receiver, message in outgoing.items():
            if receiver in self._partners:
                with contextlib.suppress(RuntimeError):
                    num_bytes = self._partners[receiver].send(message)
                    self.traffic.count_sent(message.kind, num_bytes)
        return {sender: self._receive_from(sender) for sender in incoming}

    def interrupt(self) -> None:
        """Makes `receive` yield `Asked`."""
        self._inbox.put(Asked())

    def close(self) -> None:
        """Says goodbye to the server and waits a moment for its own."""
        limit = timedelta(seconds=self._timeouts.farewell)
        with contextlib.suppress(RuntimeError):
            self._server.send(bye())
            self._server.flush(limit)
        for link in self._partners.values():
            with contextlib.suppress(RuntimeError):
                link.flush(limit)
        self._reader.thread.join(self._timeouts.farewell)

    def _pair(self, partner: int) -> tuple[int, int]:
        return min(self._host, partner), max(self._host, partner)

    def _open_partner(self, partner: int, iteration: int) -> None:
        if partner in self._partners:
            return
        low, high = self._pair(partner)
        name = f"partners/{low}-{high}/{iteration}"  # a broken link is never met again
        with contextlib.suppress(RuntimeError):
            self._partners[partner] = self._open_link(self._store, name, int(self._host == high))

    def _receive_from(self, sender: int) -> Message | Lost:
        if sender not in self._partners:
            return Lost(sender, "no link to it could be opened")
        try:
            limit = timedelta(seconds=self._timeouts.swap)
            message, num_bytes = self._partners[sender].receive(limit)
            self.traffic.count_received(message.kind, num_bytes)
            return message
        except RuntimeError as error:
            del self._partners[sender]
            return Lost(sender, why_broken(error))
